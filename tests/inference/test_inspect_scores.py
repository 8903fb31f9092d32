"""The scores that the inspector shows are those by which the indexer selected, in every precision."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deepseek_v32.model.indexer as indexer
from deepseek_v32.inference import LLM, SamplingParams
from support.tiny import tiny_checkpoint

PROMPT = [3 + i * 7 % 200 for i in range(150)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("inspect"))


def tiny_llm(checkpoint: Path, precision: Any = "exact", **options: Any) -> LLM:
    return LLM(
        checkpoint, device="cpu", precision=precision, config_overrides={"index_topk": 64}, page_count=16, **options
    )


@pytest.mark.parametrize("precision", ["exact", "bf16", "fp8"])
@pytest.mark.parametrize("chunk", [2048, 64], ids=["whole", "chunks"])
def test_scores_are_the_logits_of_the_selected(
    precision: Any, chunk: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    select_topk, select_topk_slots = indexer.select_topk, indexer.select_topk_slots

    def spy(logits: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        positions = select_topk(logits, *arguments, **options)
        seen.append((logits[-1].clone(), positions[-1]))
        return positions

    def spy_of_decodes(logits: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        slots = select_topk_slots(logits, *arguments, **options)
        seen.append((logits[-1].clone(), arguments[-1][-1, 0].clone()))  # what is written to the record
        return slots

    monkeypatch.setattr(indexer, "select_topk", spy)
    monkeypatch.setattr(indexer, "select_topk_slots", spy_of_decodes)
    llm: LLM = tiny_llm(checkpoint, precision, max_batch_tokens=chunk)
    [completion] = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=3, ignore_eos=True), inspect=True)
    assert completion.selection is not None
    layers = llm.config.num_hidden_layers
    calls = iter(seen[-3 * layers :])
    for selection in completion.selection:
        for layer in range(layers):
            logits, positions = next(calls)
            assert sorted(p for p in positions.tolist() if p >= 0) == selection.layers[layer].tolist()
            expected = logits[torch.from_numpy(selection.layers[layer]).long()].numpy()
            np.testing.assert_allclose(selection.scores[layer], expected, rtol=1e-4, atol=1e-5 * abs(expected).max())


def test_no_scores_where_nothing_had_to_be_chosen(checkpoint: Path) -> None:
    llm = tiny_llm(checkpoint)
    [completion] = llm.generate(PROMPT[:10], SamplingParams(max_tokens=2, ignore_eos=True), inspect=True)
    assert completion.selection is not None and all(not selection.scores for selection in completion.selection)
