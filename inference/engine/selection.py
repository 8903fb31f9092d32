"""Records what DeepSeek Sparse Attention selects: for each generated token, the context positions that each layer attends to."""

import numpy as np
import torch

from ...model.metadata import Selection, SelectionCallback
from ..params import Request, TokenSelection
from .scheduler import Batch


class SelectionRecorder:
    """Collects one step's selections for the requests that ask for them (Request.inspect).

    While the step is launched, it only copies rows on the device. Reading them layer by layer would stall a GPU 61 times a token.
    """

    def __init__(self, batch: Batch) -> None:
        self._row_of: dict[int, Request] = {}  # row among the step's T new tokens -> the request whose last token it is
        self._selections: dict[Request, TokenSelection] = {}
        # Per request and layer: int32 [K] positions, padded with -1, and the bits of the fp32 [K] scores if the layer selected.
        self._recorded: list[tuple[Request, int, list[torch.Tensor]]] = []
        # All recorded tensors in one, on the host once the event has occurred.
        self._fetched: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        end = 0
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            end += count
            if request.inspect and logit_count:
                self._row_of[end - 1] = request
                self._selections[request] = TokenSelection(start + count - 1)

    @property
    def callback(self) -> SelectionCallback | None:
        """For AttentionMetadata.on_selection. None, which costs nothing, if no request asks for its selections."""
        return self._record if self._row_of else None

    def fetch(self) -> None:
        """Call after launching this step and before launching the next: starts one device-to-host copy of all selections."""
        if not self._recorded:
            return
        whole = torch.cat([tensor for _, _, tensors in self._recorded for tensor in tensors])
        copied = None
        if whole.is_cuda:
            host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
            host.copy_(whole, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(whole.device))
            whole = host
        self._fetched = whole, copied

    def of(self, request: Request) -> TokenSelection | None:
        """The request's selection, after `fetch`. Waits for the copy."""
        if self._fetched is not None:
            self._read(*self._fetched)
            self._fetched = None
        return self._selections.get(request)

    def _record(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        for i, row in enumerate(rows.tolist()):
            if row in self._row_of:
                tensors = [selection.positions[i].clone()]
                if selection.scores is not None:
                    tensors.append(selection.scores[i].clone().view(torch.int32))
                self._recorded.append((self._row_of[row], layer, tensors))

    def _read(self, whole: torch.Tensor, copied: torch.cuda.Event | None) -> None:
        if copied is not None:
            copied.synchronize()
        values, at = whole.numpy(), 0
        for request, layer, tensors in self._recorded:
            count = len(tensors[0])
            positions = values[at : at + count]
            order = np.argsort(positions, kind="stable")[np.count_nonzero(positions < 0) :]
            selection = self._selections[request]
            selection.layers[layer] = positions[order]
            if len(tensors) == 2:
                selection.scores[layer] = values[at + count : at + 2 * count].view(np.float32)[order]
            at += count * len(tensors)
