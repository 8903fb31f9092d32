"""What DeepSeek Sparse Attention selected: for each generated token, the context positions each layer attended to."""

from dataclasses import dataclass, field

import numpy as np
import torch

from ..model.metadata import ScoreCallback, SelectionCallback
from .params import Request
from .scheduler import Batch


@dataclass(frozen=True)
class TokenSelection:
    """The selection that led to one generated token."""

    position: int  # of the query: the token before the generated one
    layers: dict[int, np.ndarray] = field(default_factory=dict)  # layer → int32 [K], context positions, ascending
    scores: dict[int, np.ndarray] = field(
        default_factory=dict
    )  # layer → fp32 [K], the indexer's, where it had to choose

    def positions(self, layer: int) -> np.ndarray:
        """Context positions that the layer attended to. A layer that recorded nothing had no need to select: it took all."""
        selected = self.layers.get(layer)
        return np.arange(self.position + 1, dtype=np.int32) if selected is None else selected


class SelectionRecorder:
    """Collects one step's selections for the requests that asked for them (Request.inspect)."""

    def __init__(self, batch: Batch) -> None:
        self._row_of: dict[int, Request] = {}  # among the step's T new tokens, the one whose logits are wanted
        self._selections: dict[Request, TokenSelection] = {}
        end = 0
        for request, start, count, wanted in zip(batch.requests, batch.starts, batch.counts, batch.wanted, strict=True):
            end += count
            if request.inspect and wanted:
                self._row_of[end - 1] = request
                self._selections[request] = TokenSelection(start + count - 1)

    @property
    def callback(self) -> SelectionCallback | None:
        """For AttentionMetadata.on_selection: None, which costs nothing, if nobody asked."""
        return self._record if self._row_of else None

    @property
    def score_callback(self) -> ScoreCallback | None:
        """For AttentionMetadata.on_scores."""
        return self._record_scores if self._row_of else None

    def of(self, request: Request) -> TokenSelection | None:
        return self._selections.get(request)

    def _record(self, layer: int, rows: torch.Tensor, positions: torch.Tensor) -> None:
        """rows int64 [R] of the step's tokens; positions int32 [R, K], −1 padded."""
        for i, row in enumerate(rows.tolist()):
            request = self._row_of.get(row)
            if request is not None:
                chosen = positions[i].cpu().numpy()
                self._selections[request].layers[layer] = np.sort(chosen[chosen >= 0]).astype(np.int32)

    def _record_scores(self, layer: int, rows: torch.Tensor, positions: torch.Tensor, scores: torch.Tensor) -> None:
        """As `_record`, with scores fp32 [R, K]."""
        for i, row in enumerate(rows.tolist()):
            request = self._row_of.get(row)
            if request is not None:
                chosen = positions[i].cpu().numpy()
                order = np.argsort(chosen[chosen >= 0])
                self._selections[request].scores[layer] = scores[i].cpu().numpy()[chosen >= 0][order]
