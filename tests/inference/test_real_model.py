"""The engine around the real model, small and random: in exact precision greedy tokens depend on nothing but the prompt."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from support.pages import check_pool
from support.preemption import preempt_every_other_step
from tiny_model.checkpoint import TINY, write_checkpoint

COUNT = 24
GREEDY = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)
# Lengths below, at and above index_topk = 64, and over a page. The last two share pages with others.
PROMPTS = [
    [5, 6, 7],
    [(i * 37) % 1000 for i in range(60)],
    [(i * i) % 997 for i in range(150)],
    [(i * 37) % 1000 for i in range(60)],
    [(i * i) % 997 for i in range(130)] + [3],
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2), "fp32")
    return directory


@pytest.fixture(scope="module")
def single(checkpoint: Path) -> list[list[int]]:
    """Each prompt by itself, with an empty cache."""
    llm = load(checkpoint, reuse_pages=False)
    return [llm.generate(prompt, GREEDY)[0].token_ids for prompt in PROMPTS]


def load(checkpoint: Path, page_count: int = 32, **options: object) -> LLM:
    llm = LLM(checkpoint, device="cpu", page_count=page_count, **options)
    for cache in llm.engine.runner.caches:  # slots that no token has written must not be read
        for tensor in (cache.latent, cache.index):
            tensor.view(torch.uint8).fill_(0xFF)  # NaN in every format
    return llm


def test_answers_alone_agree_with_teacher_forcing(checkpoint: Path, single: list[list[int]]) -> None:
    llm = load(checkpoint)
    for prompt, answer in zip(PROMPTS, single, strict=True):
        logits = llm.logits(prompt + answer)
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer


@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "no-reuse"])
@pytest.mark.parametrize("max_batch_tokens", [2048, 100, 7])
def test_any_batch_gives_the_same_answers(
    checkpoint: Path, single: list[list[int]], max_batch_tokens: int, reuse: bool
) -> None:
    llm = load(checkpoint, max_batch_tokens=max_batch_tokens, reuse_pages=reuse)
    for order in (slice(None), slice(None, None, -1)):
        assert [c.token_ids for c in llm.generate(PROMPTS[order], GREEDY)] == single[order]
    assert (llm.stats().cached_tokens > 0) == reuse


@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "no-reuse"])
def test_preemption_every_other_step_gives_the_same_answers(
    checkpoint: Path, single: list[list[int]], reuse: bool
) -> None:
    llm = load(checkpoint, reuse_pages=reuse)
    preempt_every_other_step(llm)
    assert [c.token_ids for c in llm.generate(PROMPTS, GREEDY)] == single
    assert llm.stats().preemptions >= COUNT // 2 - 1


def test_a_lack_of_pages_gives_the_same_answers(checkpoint: Path, single: list[list[int]]) -> None:
    llm = load(checkpoint, page_count=4)
    assert [c.token_ids for c in llm.generate(PROMPTS, GREEDY)] == single
    check_pool(llm.engine.pool)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_other_precisions_serve(checkpoint: Path, precision: str) -> None:
    llm = load(checkpoint, precision=precision)
    for completion in llm.generate(PROMPTS, GREEDY, inspect=True):
        assert completion.error is None and len(completion.token_ids) == COUNT
        for selection in completion.selection or []:
            for layer in range(2):
                positions = selection.positions(layer).tolist()
                assert len(set(positions)) == len(positions) == min(selection.position + 1, 64)
                assert positions[0] >= 0 and positions[-1] <= selection.position


def test_a_missing_checkpoint_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        LLM(tmp_path)
    assert "\n" not in str(caught.value) and "config.json" in str(caught.value)
