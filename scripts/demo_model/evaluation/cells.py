"""The cells of the evaluation, and the answers of one conversation in a variant of the engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM
from deepseek_v32.model.config import Precision
from deepseek_v32.model.metadata import Selection
from demo_model.dialogues import FAMILIES
from demo_model.training.data import Answer


@dataclass(frozen=True)
class Variant:
    """A set of conversations (length, wording) and how the engine attends to them."""

    length: int
    wording: str = "train"  # split of phrasings: train, or test for those that training never used
    attention: str = "dsa"  # dsa; dense: index_topk past the context; window: the last index_topk tokens
    precision: Precision = "fp8"
    interleaved: bool = False  # the indexer rotated as in early public code
    families: tuple[str, ...] = FAMILIES

    @property
    def engine(self) -> tuple:
        """Variants with the same value share an engine."""
        return self.precision, self.attention == "dense", self.interleaved


LENGTHS = (1024, 4096, 8192, 16384, 32768)
CELLS = {
    **{f"{n // 1024}K": Variant(n) for n in LENGTHS},
    **{f"{n // 1024}K new": Variant(n, "test") for n in (1024, 4096)},
    **{f"1K {family}": Variant(1024, families=(family,)) for family in FAMILIES},
    **{f"{n // 1024}K dense": Variant(n, attention="dense") for n in LENGTHS},
    **{f"{n // 1024}K exact": Variant(n, precision="exact") for n in (1024, 4096)},
    "4K window": Variant(4096, attention="window"),
    "4K interleaved": Variant(4096, interleaved=True),
}


def open_engine(folder: Path, variant: Variant, device: str | None, backend: str) -> LLM:
    overrides: dict = {"indexer_rope_interleave": True} if variant.interleaved else {}
    if variant.attention == "dense":
        overrides["index_topk"] = 32768  # every context fits, so attention is dense
    return LLM(
        folder, device=device, backend=backend, precision=variant.precision, config_overrides=overrides or None,
        max_model_len=32768, page_count=1024, reuse_pages=True,
    )  # fmt: skip


class SelectionProbe:
    """Stands for a layer's `Indexer.select_prefill`: records the selection of some query positions, or replaces all by a window."""

    def __init__(self, attention: Any, window: bool, rows: list[int]):
        self._attention, self._window, self._rows = attention, window, rows
        self.selected: dict[int, set] = {}  # query position → selected context positions

    def select(self, queries: Any, prefill: Any, cache: Any, with_scores: bool = False) -> Selection:
        if self._window:
            ends = torch.arange(prefill.start, prefill.length, dtype=torch.int32, device=queries.q.device)
            positions = ends[:, None] - torch.arange(self._attention.topk, dtype=torch.int32, device=ends.device)
            return Selection(positions.clamp_min(-1))
        indexer = self._attention.indexer
        selection = type(indexer).select_prefill(indexer, queries, prefill, cache, with_scores)
        inside = [row for row in self._rows if prefill.start <= row < prefill.length]
        if inside:
            chosen = selection.positions[[row - prefill.start for row in inside]].tolist()
            self.selected.update((row, set(line)) for row, line in zip(inside, chosen, strict=True))
        return selection


@contextmanager
def probes(llm: LLM, window: bool, rows: list[int]) -> Iterator[list[SelectionProbe]]:
    """A probe in each layer of a model that runs on one rank."""
    model: Any = llm.model
    found = [SelectionProbe(layer.self_attn, window, rows) for layer in model.layers]
    for layer, probe in zip(model.layers, found, strict=True):
        layer.self_attn.indexer.select_prefill = probe.select
    try:
        yield found
    finally:
        for layer in model.layers:
            del layer.self_attn.indexer.select_prefill


@dataclass(frozen=True)
class Found:
    """What the engine predicts where an answer stands.

    value, whole: whether every token of its value, and of all of it, is the likeliest. first: the first token predicted. layers:
    for each layer, whether the selection held each token of the stated value when the answer copied it; None unless DSA ran and
    the value was stated in the same tokens.
    """

    value: bool
    whole: bool
    first: int
    layers: list[bool] | None


def answers_of(llm: LLM, variant: Variant, ids: list[int], answers: list[Answer]) -> list[Found]:
    """What is predicted for each answer of a conversation, in one pass over it."""
    produced_at = [[p - 1 for p in range(a.first, a.last)] for a in answers]
    rows = sorted({row for group in produced_at for row in group})
    with probes(llm, variant.attention == "window", rows) as found:
        predicted = llm.logits(ids)[rows].argmax(-1).tolist()
    token = dict(zip(rows, predicted, strict=True))
    results = []
    for answer, group in zip(answers, produced_at, strict=True):
        produced, expected = [token[row] for row in group], ids[answer.first : answer.last]
        count = answer.end - answer.first
        layers = None
        if variant.attention == "dsa" and answer.stated >= 0 and answer.stated_end - answer.stated == count:
            layers = [
                # A row that was not recorded had at most index_topk tokens of context and attended to all of them.
                all(
                    row not in probe.selected or answer.stated + j in probe.selected[row]
                    for j, row in enumerate(group[:count])
                )
                for probe in found
            ]
        results.append(Found(produced[:count] == expected[:count], produced == expected, produced[0], layers))
    return results
