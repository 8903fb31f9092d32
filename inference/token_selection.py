"""What DSA selected: the selections of a step, and of the query that generated one token."""

import numpy as np


class TokenSelection:
    """The context positions that each layer attended to when one token was generated: DSA's selection."""

    __slots__ = ("_layers", "_mass", "_record", "_scores", "drafted", "position")

    def __init__(self, position: int, record: np.ndarray | None = None, drafted: bool = False) -> None:
        """position: of the query, which is the token before the generated one. drafted: the generated token was guessed by the
        draft layer before this position was computed.

        record: int32 [L, 2, K]: each layer's positions, ascending and then -1, and the bits of their fp32 scores. The properties
        are made of it when they are looked at, because most selections are looked at late or never.
        """
        self.position, self.drafted, self._record = position, drafted, record
        self._layers: dict[int, np.ndarray] = {}
        self._scores: dict[int, np.ndarray] = {}
        self._mass: dict[int, np.ndarray] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(position={self.position}, drafted={self.drafted}, layers={self.layers})"

    @property
    def layers(self) -> dict[int, np.ndarray]:
        """By layer: int32 [K] context positions, ascending."""
        return self._known()._layers

    @property
    def scores(self) -> dict[int, np.ndarray]:
        """By layer: fp32 [K] index scores of those positions, for layers that had more than index_topk tokens to choose from."""
        return self._known()._scores

    @property
    def mass(self) -> dict[int, np.ndarray]:
        """By layer: fp32 [H], the share of dense attention's mass that falls on the selected positions; with
        SelectionPolicy.measure. Of several ranks, these are rank 0's heads."""
        return self._known()._mass

    @property
    def is_read(self) -> bool:
        """Tell whether the arrays are at hand."""
        return self._record is None

    def positions(self, layer: int) -> np.ndarray:
        """int32 [K], ascending: a layer without a record had no need to select and attended to the whole context."""
        if not isinstance(layer, int | np.integer) or layer < 0:
            raise ValueError(f"layer is {layer!r}; expected a layer's number, the first one's is 0")
        selected = self.layers.get(layer)
        return np.arange(self.position + 1, dtype=np.int32) if selected is None else selected

    def _known(self) -> "TokenSelection":
        values = self._record
        if values is not None:
            count = min(self.position + 1, values.shape[2])
            self._layers = {layer: positions[:count] for layer, (positions, _) in enumerate(values)}
            chosen = values if count <= self.position else ()  # else there was nothing to choose
            self._scores = {layer: scores.view(np.float32) for layer, (_, scores) in enumerate(chosen)}
            self._record = None  # last, because another thread may look, too
        return self
