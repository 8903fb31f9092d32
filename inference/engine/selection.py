"""Records what DeepSeek Sparse Attention selects: for each generated token, the context positions that each layer attends to."""

import numpy as np
import torch

from ...model.metadata import Selection, SelectionCallback
from ..params import Request, TokenSelection
from .fault import Fault
from .scheduler import Batch

_RECORDING = "recording its selections"


class SelectionRecorder:
    """Collects one step's selections for the requests that ask for them (Request.inspect).

    While the step is launched, it only copies rows on the device. Reading them layer by layer would stall a GPU 61 times a token.
    A failure does not disturb the step: `of` raises it, for the requests that ask for their selections alone.
    """

    def __init__(self, batch: Batch) -> None:
        self._row_of: dict[int, Request] = {}  # row among the step's T new tokens -> the request whose last token it is
        self._selections: dict[Request, TokenSelection] = {}
        # Per request and layer: int32 [K] positions, padded with -1, and the bits of the fp32 [K] scores if the layer selected.
        self._recorded: list[tuple[Request, int, list[torch.Tensor]]] = []
        # All recorded tensors in one, on the host once the event has occurred.
        self._fetched: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        self._error: Fault | None = None
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
        return self._try_record if self._row_of else None

    def try_fetch(self) -> None:
        """Call after launching this step and before launching the next: starts one device-to-host copy of all selections."""
        if self._recorded and self._error is None:
            try:
                self._fetch()
            except Exception as error:
                self._error = Fault(_RECORDING, error)

    def of(self, request: Request) -> TokenSelection | None:
        """The request's selection, after `try_fetch`. Waits for the copy. Raises Fault if a part of the recording has failed."""
        if request not in self._selections:
            return None
        if self._fetched is not None:
            fetched, self._fetched = self._fetched, None
            try:
                self._read(*fetched)
            except Exception as error:
                self._error = Fault(_RECORDING, error)
        if self._error is not None:
            raise self._error
        return self._selections[request]

    def _fetch(self) -> None:
        whole = torch.cat([tensor for _, _, tensors in self._recorded for tensor in tensors])
        copied = None
        if whole.is_cuda:
            host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
            host.copy_(whole, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(whole.device))
            whole = host
        self._fetched = whole, copied

    def _try_record(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        try:
            self._record(layer, rows, selection)
        except Exception as error:
            self._error = Fault(_RECORDING, error)

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
