"""What DSA selected for one query."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class TokenSelection:
    """The context positions that each layer attended to when one token was generated: DSA's selection."""

    position: int  # of the query, which is the token before the generated one
    # By layer: int32 [K] context positions, ascending.
    layers: dict[int, np.ndarray] = field(default_factory=dict)
    # By layer: fp32 [K] index scores of those positions, for the layers that had more than index_topk tokens to choose from.
    scores: dict[int, np.ndarray] = field(default_factory=dict)
    drafted: bool = False  # the generated token was guessed by the draft layer before this position was computed
    # By layer: fp32 [H], the share of dense attention's mass that falls on the selected positions; with SelectionPolicy.measure.
    # Of several ranks, these are rank 0's heads.
    mass: dict[int, np.ndarray] = field(default_factory=dict)

    def positions(self, layer: int) -> np.ndarray:
        """int32 [K], ascending: a layer without a record had no need to select and attended to the whole context."""
        selected = self.layers.get(layer)
        return np.arange(self.position + 1, dtype=np.int32) if selected is None else selected
