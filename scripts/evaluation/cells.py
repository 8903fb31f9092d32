"""The cells of the evaluation, and one conversation's answers under a variant of the engine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from training.data import Answer  # type: ignore[import-not-found]

from deepseek_v32.inference import LLM
from deepseek_v32.model.config import Precision
from deepseek_v32.model.metadata import Selection


@dataclass(frozen=True)
class Variant:
    """length and wording say which conversations; the rest how the engine attends."""

    length: int
    wording: str = "train"  # whose phrasings: train, or test for those that training never saw
    attention: str = "dsa"  # dsa; dense: index_topk past the context; window: the last index_topk tokens
    precision: Precision = "fp8"
    interleaved: bool = False  # the indexer rotated as in early public code

    @property
    def engine(self) -> tuple:
        """What an engine is built for."""
        return self.precision, self.attention == "dense", self.interleaved

    @property
    def generates(self) -> bool:
        return self.attention == "dsa" and self.precision == "fp8" and not self.interleaved


CELLS = {
    **{f"{n // 1024}K": Variant(n) for n in (1024, 4096, 8192, 16384)},
    **{f"{n // 1024}K new": Variant(n, "test") for n in (1024, 4096)},
    **{f"{n // 1024}K dense": Variant(n, attention="dense") for n in (1024, 4096, 8192, 16384)},
    **{f"{n // 1024}K exact": Variant(n, precision="exact") for n in (1024, 4096)},
    "4K window": Variant(4096, attention="window"),
    "4K interleaved": Variant(4096, interleaved=True),
}


def open_engine(folder: Path, variant: Variant, device: str | None, backend: str) -> LLM:
    overrides: dict = {"indexer_rope_interleave": True} if variant.interleaved else {}
    if variant.attention == "dense":
        overrides["index_topk"] = 32768  # every context fits, so nothing is left out
    return LLM(
        folder, device=device, backend=backend, precision=variant.precision, config_overrides=overrides or None,
        max_model_len=17408, page_count=2048, reuse_pages=True,
    )  # fmt: skip


class Watch:
    """Stands between the indexers and the attention of an engine: notes what was selected, or selects a window instead."""

    def __init__(self, llm: LLM, window: bool, rows: list[int]):
        model: Any = llm.model
        self.indexers = [layer.self_attn.indexer for layer in model.layers]
        self.window, self.rows = window, rows
        self.selected: list[dict[int, set]] = [{} for _ in self.indexers]  # layer → query position → context positions

    def __enter__(self) -> "Watch":
        for layer, indexer in enumerate(self.indexers):
            indexer.select_prefill = self._between(layer, indexer, indexer.select_prefill)
        return self

    def __exit__(self, *_: object) -> None:
        for indexer in self.indexers:
            del indexer.select_prefill  # the class's own method shows again

    def _between(self, layer: int, indexer: Any, select: Callable) -> Callable:
        def select_prefill(queries: Any, prefill: Any, cache: Any, with_scores: bool = False) -> Selection:
            if self.window:
                ends = torch.arange(prefill.start, prefill.length, dtype=torch.int32, device=queries.q.device)
                positions = ends[:, None] - torch.arange(indexer.topk, dtype=torch.int32, device=ends.device)
                return Selection(positions.clamp_min(-1))
            selection = select(queries, prefill, cache, with_scores)
            inside = [row for row in self.rows if prefill.start <= row < prefill.length]
            if inside:
                chosen = selection.positions[[row - prefill.start for row in inside]].tolist()
                self.selected[layer].update((row, set(line)) for row, line in zip(inside, chosen, strict=True))
            return selection

        return select_prefill


def answers_of(llm: LLM, variant: Variant, ids: list[int], answers: list[Answer]) -> list[tuple]:
    """For each answer: are all its value's tokens the likeliest; the first token predicted; and for each layer, whether every
    token of the told value was among the selected when its copy was produced (None unless DSA ran and the value was told)."""
    answers_rows = [[p - 1 for p in range(a.first, a.end)] for a in answers]
    rows = sorted({row for group in answers_rows for row in group})
    with Watch(llm, variant.attention == "window", rows) as watch:
        predicted = llm.logits(ids)[rows].argmax(-1).tolist()
    token = dict(zip(rows, predicted, strict=True))
    results = []
    for answer, group in zip(answers, answers_rows, strict=True):
        got = [token[row] for row in group]
        layers = None
        if variant.attention == "dsa" and answer.told >= 0 and answer.told_end - answer.told == len(group):
            layers = [
                # a row that nobody recorded had no more context than index_topk: it attended to all of it
                all(row not in chosen or answer.told + j in chosen[row] for j, row in enumerate(group))
                for chosen in watch.selected
            ]
        results.append((got == ids[answer.first : answer.end], got[0], layers))
    return results
