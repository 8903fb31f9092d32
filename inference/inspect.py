"""What DeepSeek Sparse Attention selected: for each generated token, the context positions each layer attended to."""

from dataclasses import dataclass, field

import numpy as np
import torch

from ..model.metadata import Selection, SelectionCallback
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
    """Collects one step's selections for the requests that asked for them (Request.inspect).

    While the step runs it only copies rows on the device: waiting for them layer by layer would stall a GPU 61 times a token.
    """

    def __init__(self, batch: Batch) -> None:
        self._row_of: dict[int, Request] = {}  # among the step's T new tokens, the one whose logits are wanted
        self._selections: dict[Request, TokenSelection] = {}
        self._positions: dict[Request, dict[int, torch.Tensor]] = {}  # layer → int32 [K], -1 padded, on the device
        self._scores: dict[Request, dict[int, torch.Tensor]] = {}  # layer → fp32 [K]
        end = 0
        for request, start, count, wanted in zip(batch.requests, batch.starts, batch.counts, batch.wanted, strict=True):
            end += count
            if request.inspect and wanted:
                self._row_of[end - 1] = request
                self._selections[request] = TokenSelection(start + count - 1)
                self._positions[request], self._scores[request] = {}, {}

    @property
    def callback(self) -> SelectionCallback | None:
        """For AttentionMetadata.on_selection: None, which costs nothing, if nobody asked."""
        return self._record if self._row_of else None

    def of(self, request: Request) -> TokenSelection | None:
        """Once the step has run; takes what it recorded off the device."""
        selection = self._selections.get(request)
        if selection is not None and not selection.layers:
            positions, scores = _to_numpy(self._positions[request]), _to_numpy(self._scores[request])
            for layer, found in positions.items():
                order = np.argsort(found, kind="stable")[np.count_nonzero(found < 0) :]
                selection.layers[layer] = found[order]
                if layer in scores:
                    selection.scores[layer] = scores[layer][order]
        return selection

    def _record(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        for i, row in enumerate(rows.tolist()):
            if row in self._row_of:
                request = self._row_of[row]
                self._positions[request][layer] = selection.positions[i].clone()
                if selection.scores is not None:
                    self._scores[request][layer] = selection.scores[i].clone()


def _to_numpy(tensors: dict[int, torch.Tensor]) -> dict[int, np.ndarray]:
    """All of them in one copy."""
    if not tensors:
        return {}
    whole = torch.cat(list(tensors.values())).cpu().numpy()
    ends = np.cumsum([len(tensor) for tensor in tensors.values()])
    return dict(zip(tensors, np.split(whole, ends[:-1]), strict=True))
