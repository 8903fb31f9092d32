"""The engine on a Hopper GPU: compiled kernels, decode graphs, and the CPU's answers in exact precision."""

import itertools
import random
from functools import cache
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO
from demo_model.dialogues import write
from support.pages import check_pool

pytestmark = pytest.mark.gpu

GREEDY = SamplingParams(temperature=0, max_tokens=40)
PAGES = 4096
LENGTHS = (400, 3000, 12_000, 45_000)  # characters: about 150, 1K, 4K and 15K tokens; index_topk is 128


def questions(llm: LLM, count: int) -> tuple[list[list[int]], list[str]]:
    """Prompts that end in a question about a fact stated in them, and the right answers."""
    prompts: list[list[int]] = []
    answers: list[str] = []
    for seed in itertools.count():
        length = LENGTHS[len(prompts) % len(LENGTHS)]
        talk = write(f"gpu {seed}", length=length, split="test", wording="train", thinking=0.0, functions=0.0)
        number = max((n for n, turn in enumerate(talk.turns) if turn.kind == "stated"), default=None)
        if number is None:  # a short conversation may have no question
            continue
        prompts.append(llm.chat_token_ids(talk.messages(until=number)))
        answers.append(talk.turns[number].value)
        if len(prompts) == count:
            return prompts, answers
    raise AssertionError


def wrong_answers(llm: LLM, count: int) -> list[tuple[int, str, str]]:
    """The questions that are not answered with the value that the conversation holds: number, value, answer."""
    prompts, answers = questions(llm, count)
    assert max(map(len, prompts)) > 50 * llm.config.index_topk and len(set(answers)) > count / 2
    said = [completion.text.strip() for completion in llm.generate(prompts, GREEDY)]
    pairs = enumerate(zip(answers, said, strict=True))
    return [(number, value, text) for number, (value, text) in pairs if not text.startswith(value.strip())]


@cache
def wrong_in_fp32(count: int) -> list[tuple[int, str, str]]:
    """Wrong answers of plain PyTorch in fp32, without drafts."""
    options: dict[str, Any] = {
        "precision": "exact",
        "backend": "reference",
        "speculative_tokens": 0,
        "page_count": PAGES,
    }
    wrong = wrong_answers(LLM(DEMO, device="cuda", **options), count)
    assert len(wrong) < count / 2
    return wrong


def check_memory(llm: LLM, count: int) -> None:
    """At most a sixteenth more of the questions are answered wrong than in fp32."""
    wrong, expected = wrong_answers(llm, count), wrong_in_fp32(count)
    assert len(wrong) <= len(expected) + count // 16, (wrong, expected)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(DEMO, device="cuda", precision="fp8", page_count=PAGES, max_sequences=64)


def test_decode_runs_as_graphs_and_remembers(llm: LLM) -> None:
    assert llm.engine.runner.graphs is not None
    check_memory(llm, 64)


def test_graphs_change_no_bit() -> None:
    """The same steps with and without graphs, one request at a time, with sums that no bound on contexts divides."""
    options: dict[str, Any] = {"precision": "fp8", "deterministic": True, "page_count": PAGES, "max_sequences": 64}
    captured, eager = (LLM(DEMO, device="cuda", decode_graphs=graphs, **options) for graphs in (True, False))
    assert captured.engine.runner.graphs is not None and eager.engine.runner.graphs is None
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, logprobs=1)
    for prompt in questions(captured, 8)[0]:
        one, other = (llm.generate(prompt, params)[0] for llm in (captured, eager))
        assert one.token_ids == other.token_ids and one.logprobs and one.logprobs == other.logprobs


def test_graphs_change_no_answer(llm: LLM) -> None:
    """The fastest kernels divide keys by a graph's bound on contexts, so sums may round apart; that decides no answer."""
    prompts, _ = questions(llm, 8)
    without = LLM(DEMO, device="cuda", precision="fp8", page_count=PAGES, max_sequences=64, decode_graphs=False)
    said = [[one.generate(prompt, GREEDY)[0].text.split(".")[0] for prompt in prompts] for one in (llm, without)]
    assert sum(a == b for a, b in zip(*said, strict=True)) >= 7


def test_an_open_inspector_sees_what_graphs_select(llm: LLM) -> None:
    prompts, _ = questions(llm, 4)
    for completion, prompt in zip(llm.generate(prompts, GREEDY, inspect=True), prompts, strict=True):
        assert completion.selection is not None and len(completion.selection) == len(completion.token_ids)
        for selection in completion.selection:
            for layer in range(llm.config.num_hidden_layers):
                positions = selection.positions(layer)
                assert len(set(positions.tolist())) == min(selection.position + 1, llm.config.index_topk)
                assert positions.min() >= 0 and positions.max() <= selection.position
        assert completion.selection[0].position == len(prompt) - 1


@pytest.mark.parametrize("backend", ["cuda", "tile", "reference"])
def test_backends_remember(backend: str) -> None:
    check_memory(LLM(DEMO, device="cuda", precision="fp8", backend=backend, page_count=PAGES), 16)


@pytest.mark.parametrize("precision", ["bf16", "exact"])
def test_other_precisions_remember(precision: str) -> None:
    check_memory(LLM(DEMO, device="cuda", precision=precision, page_count=PAGES), 16)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("precision", ["exact", "fp8"])
def test_tokens_are_read_after_they_are_sampled_on_any_gpu(precision: str) -> None:
    """On another GPU than the thread's current one, as with --device cuda:1. Nothing else waits for the tokens; in fp8, graphs are
    captured there."""
    assert torch.cuda.current_device() == 0
    check_memory(LLM(DEMO, device="cuda:1", precision=precision, page_count=PAGES), 16)


def test_exact_precision_answers_as_the_cpu_does() -> None:
    """Greedy and sampled answers, and logits that agree more closely than with TF32 (1e-3)."""
    on_gpu = LLM(DEMO, device="cuda", precision="exact", page_count=PAGES)
    on_cpu = LLM(DEMO, device="cpu", precision="exact", page_count=PAGES)
    prompts, _ = questions(on_gpu, 4)
    for seed, prompt in enumerate(prompts):
        for params in (GREEDY, SamplingParams(temperature=1, top_p=0.95, seed=seed, max_tokens=20)):
            assert on_gpu.generate(prompt, params)[0].token_ids == on_cpu.generate(prompt, params)[0].token_ids
    ids = prompts[1]
    there, here = on_gpu.logits(ids), on_cpu.logits(ids)
    apart = (there - here).norm(dim=-1) / here.norm(dim=-1)
    assert apart.median() < 1e-5  # the median: where two index scores tie, another token may be selected


def test_mixed_requests_leak_nothing(llm: LLM) -> None:
    """Requests are cancelled while they wait, in prefill and in decode; more of them wait than can run."""
    chance = random.Random(0)
    prompts, _ = questions(llm, 16)
    engine = llm.engine
    llm.generate(prompts, GREEDY)
    running: list[int] = []
    reasons: dict[str, int] = {}
    memory = added = 0
    while engine.has_work or added < 1000:
        while added < 1000 and len(running) < 100:
            added += 1
            prompt = chance.choice(prompts)[: chance.randint(2, 6000)]
            params = SamplingParams(
                temperature=chance.choice([0, 1]), max_tokens=chance.randint(1, 60), ignore_eos=True
            )
            running.append(engine.add_request(prompt, params).id)
            if chance.random() < 0.1:
                engine.abort(running[-1])
        if running and chance.random() < 0.1:
            engine.abort(chance.choice(running))
        for delta in engine.step():
            if delta.finish_reason is not None:
                reasons[delta.finish_reason] = reasons.get(delta.finish_reason, 0) + 1
                running.remove(delta.request_id)
        if sum(reasons.values()) > 100 and not memory:
            memory = torch.cuda.memory_allocated()
    check_pool(engine.pool)
    assert engine.pool.used == 0 and not running
    assert reasons["length"] > 500 and reasons["abort"] > 50 and set(reasons) == {"length", "abort"}, reasons
    assert torch.cuda.memory_allocated() <= memory + 64 * 2**20  # graphs that were captured later
