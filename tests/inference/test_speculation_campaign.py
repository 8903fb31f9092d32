"""The campaign that compares speculation with plain decoding, on a random model whose drafts are right at a chosen rate."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from campaigns.speculation import Answer, Asked, difference, make_case, run
from deepseek_v32.inference.engine.running.eager_step import EagerStep
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.step import Choices
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.metadata import AttentionMetadata
from deepseek_v32.model.transformer import Transformer
from tiny_model.checkpoint import TINY, write_checkpoint

CONFIG = replace(
    TINY, num_hidden_layers=2, num_nextn_predict_layers=1, index_topk=16, vocab_size=64, eos_token_ids=(1,)
)
PLAIN = {"max_batch_tokens": 256, "max_sequences": 8, "page_count": 64, "reuse_pages": False}
CASES = range(3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    directory = tmp_path_factory.mktemp("mtp")
    write_checkpoint(directory, CONFIG)
    return load_model(directory, mtp=True)


def draft_well(monkeypatch: pytest.MonkeyPatch, asked: list[Asked], plain: list[Answer], seed: int) -> None:
    """Put the tokens of plain decoding in place of four fifths of the drafts."""
    draft, rng = EagerStep.draft, random.Random(seed)

    def better(self: EagerStep, choices: Choices | None = None) -> None:
        choices = choices or self.choices()
        draft(self, choices)
        for row, request in enumerate(self.batch.sampling):
            answer = next(
                each.tokens
                for one, each in zip(asked, plain, strict=True)
                if (list(request.prompt), request.params) == (one.prompt, one.params)
            )
            first = request.output_count + int(choices.accepted[row]) + 1
            for number, token in enumerate(answer[first : first + (self.batch.draft_tokens or 0)]):
                if rng.random() < 0.8:
                    self.runner.drafts[row, number] = token

    monkeypatch.setattr(EagerStep, "draft", better)


def failures(model: Transformer, monkeypatch: pytest.MonkeyPatch, cases: range) -> tuple[list[Any], dict[str, int]]:
    """Return differences from plain decoding, and counts of events."""
    found: list[Any] = []
    seen = dict.fromkeys(("drafted", "accepted", "preempted", "cached"), 0)
    for seed in cases:
        limits, drafts, asked = make_case(seed, CONFIG.vocab_size)
        plain, _ = run(model, PLAIN, 0, asked, None)
        with monkeypatch.context() as patches:
            draft_well(patches, asked, plain, seed)
            answers, counts = run(model, limits, drafts, asked, random.Random(seed))
        found += [wrong for pair in zip(plain, answers, strict=True) if (wrong := difference(*pair))]
        seen = {name: seen[name] + counts[name] for name in seen}
    return found, seen


def test_nothing_differs(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen = failures(model, monkeypatch, CASES)
    assert not found
    assert 0.3 < seen["accepted"] / seen["drafted"] < 0.8 and seen["preempted"] and seen["cached"], seen


def _rows_see_later_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a request see its length at the end of the step: a draft is judged by what comes after it."""
    forward = Transformer.forward_with_hidden

    def wrong(self: Transformer, tokens: Any, positions: Any, metadata: AttentionMetadata, caches: Any) -> Any:
        ends = metadata.lengths.clone()
        rows = metadata.block_table[: metadata.decodes]
        for row in range(metadata.decodes - 2, -1, -1):
            if torch.equal(rows[row], rows[row + 1]) and ends[row + 1] > ends[row]:
                ends[row] = ends[row + 1]
        return forward(self, tokens, positions, replace(metadata, lengths=ends), caches)

    monkeypatch.setattr(Transformer, "forward_with_hidden", wrong)


def _drafts_in_the_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Runner.__init__

    def first_layer(self: Runner, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        if self.drafter is not None:
            self.drafter.cache = self.caches[0]

    monkeypatch.setattr(Runner, "__init__", first_layer)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "rows see the drafts after them": _rows_see_later_drafts,
    "drafts in the main model's cache": _drafts_in_the_first_layer,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant: str, model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    assert any(failures(model, monkeypatch, range(seed, seed + 1))[0] for seed in CASES)
