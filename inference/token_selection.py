"""What DSA selected: the selections of a step, and of the query that generated one token."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch

from ..model.metadata import Selection


class RecordedRow(Protocol):
    """One row of AttentionMetadata.selections in several steps."""

    def read(self, step: int) -> np.ndarray:
        """int32 [L, 2, K] of one step: each layer's positions, ascending and then -1, and the bits of their fp32 scores.

        Any thread may call it, at any time after the step's tokens or logits have been read.
        """


class RecordedDecodes(NamedTuple):
    """What one step of decodes has selected."""

    rows: Mapping[int, RecordedRow]  # to be looked up before the next step but one is launched
    step: int  # the step's number for RecordedRow.read


class SelectionSink(Protocol):
    """Takes a step's selections: as a SelectionCallback layer by layer, or those of decodes all at once."""

    def __call__(self, layer: int, rows: torch.Tensor, selection: Selection) -> None: ...

    def decodes(self, record: RecordedDecodes) -> None:
        """What the step writes to AttentionMetadata.selections. Called when it has been launched."""


class TokenSelection:
    """The context positions that each layer attended to when one token was generated: DSA's selection."""

    __slots__ = ("_layers", "_mass", "_record", "_scores", "_step", "drafted", "position")

    def __init__(
        self,
        position: int,
        layers: dict[int, np.ndarray] | None = None,
        scores: dict[int, np.ndarray] | None = None,
        drafted: bool = False,
        mass: dict[int, np.ndarray] | None = None,
    ) -> None:
        """position: of the query, which is the token before the generated one. drafted: the generated token was guessed by the
        draft layer before this position was computed. The rest: see the properties."""
        self.position = position
        self.drafted = drafted
        self._layers = {} if layers is None else layers
        self._scores = {} if scores is None else scores
        self._mass = {} if mass is None else mass
        self._record: RecordedRow | None = None
        self._step = 0

    @classmethod
    def read_later(cls, position: int, record: RecordedRow, step: int, drafted: bool = False) -> "TokenSelection":
        """One that a record holds; it is read when somebody looks at it, because most of them are looked at late or never."""
        made = cls.__new__(cls)
        made.position = position
        made.drafted = drafted
        made._record = record
        made._step = step
        return made

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
        """Whether the arrays are at hand."""
        return self._record is None

    def positions(self, layer: int) -> np.ndarray:
        """int32 [K], ascending: a layer without a record had no need to select and attended to the whole context."""
        selected = self.layers.get(layer)
        return np.arange(self.position + 1, dtype=np.int32) if selected is None else selected

    def _known(self) -> "TokenSelection":
        record = self._record
        if record is not None:
            values = record.read(self._step)
            count = min(self.position + 1, values.shape[2])
            self._layers = {layer: positions[:count] for layer, (positions, _) in enumerate(values)}
            chosen = values if count <= self.position else ()  # else there was nothing to choose
            self._scores = {layer: scores.view(np.float32) for layer, (_, scores) in enumerate(chosen)}
            self._mass = {}
            self._record = None  # last, because another thread may look, too
        return self
