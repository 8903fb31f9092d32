"""One query's selection as a report reads it, and as values for JSON."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .packing import pack_bitmap, pack_fractions, relative_strengths, score_range


class Selection(Protocol):
    """What DSA selected for one query; `token_selection.TokenSelection` has this shape."""

    @property
    def position(self) -> int:
        """Position of the query: of the token before the generated one."""

    @property
    def is_read(self) -> bool:
        """Whether the arrays are at hand; if not, all layers have what the model selects by itself."""

    @property
    def layers(self) -> Mapping[int, np.ndarray]:
        """Layer → int32 [K] selected positions, ascending; a layer that is absent selected the whole context."""

    @property
    def scores(self) -> Mapping[int, np.ndarray]:
        """Layer → fp32 [K] indexer scores of these positions, where the context was longer than index_topk."""

    @property
    def drafted(self) -> bool:
        """Whether the generated token was guessed by the draft layer before."""

    @property
    def mass(self) -> Mapping[int, np.ndarray]:
        """Layer → fp32 [H], the share of dense attention's mass on these positions, if it was measured."""

    def positions(self, layer: int) -> np.ndarray:
        """int32 [K]: the selected positions, also of a layer that is absent from `layers`."""


def strengths_of(selection: Selection, layer: int) -> np.ndarray:
    """fp64 [K]: how clearly a layer selected each of its positions, as `relative_strengths`."""
    return relative_strengths(selection.scores.get(layer), len(selection.positions(layer)))


def packed(selection: Selection, num_layers: int) -> dict[str, Any]:
    """Layer by layer: a bitmap of context positions (base64, lowest bit first), the strengths of the selected positions (uint8,
    base64), and the lowest and highest score where the layer had a choice."""
    length, layers = selection.position + 1, range(num_layers)
    return {
        "position": selection.position,
        "layers": [pack_bitmap(selection.positions(layer), length) for layer in layers],
        "strengths": [pack_fractions(strengths_of(selection, layer)) for layer in layers],
        "scores": [score_range(selection.scores.get(layer)) for layer in layers],
    }
