"""What DeepSeek Sparse Attention selected: for each generated token, the context positions each layer attended to."""

import numpy as np
import torch

from ...model.metadata import Selection, SelectionCallback
from ..params import Request, TokenSelection
from .scheduler import Batch


class SelectionRecorder:
    """Collects one step's selections for the requests that asked for them (Request.inspect).

    While the step runs it only copies rows on the device: waiting for them layer by layer would stall a GPU 61 times a token.
    """

    def __init__(self, batch: Batch) -> None:
        self._row_of: dict[int, Request] = {}  # among the step's T new tokens, the one whose logits are wanted
        self._selections: dict[Request, TokenSelection] = {}
        # By request and layer: int32 [K] positions, -1 padded, and the bits of fp32 [K] scores if there was a choice.
        self._found: list[tuple[Request, int, list[torch.Tensor]]] = []
        self._fetched: tuple[torch.Tensor, torch.cuda.Event | None] | None = (
            None  # all of them, on the host after the event
        )
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
        """For AttentionMetadata.on_selection: None, which costs nothing, if nobody asked."""
        return self._record if self._row_of else None

    def fetch(self) -> None:
        """After the step was started, before another is: ask for everything in one copy, which then waits for this step alone."""
        if not self._found:
            return
        whole = torch.cat([tensor for _, _, tensors in self._found for tensor in tensors])
        copied = None
        if whole.is_cuda:
            host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
            host.copy_(whole, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(whole.device))
            whole = host
        self._fetched = whole, copied

    def of(self, request: Request) -> TokenSelection | None:
        """Once the step has run and was fetched."""
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
                self._found.append((self._row_of[row], layer, tensors))

    def _read(self, whole: torch.Tensor, copied: torch.cuda.Event | None) -> None:
        if copied is not None:
            copied.synchronize()
        values, at = whole.numpy(), 0
        for request, layer, tensors in self._found:
            count = len(tensors[0])
            found = values[at : at + count]
            order = np.argsort(found, kind="stable")[np.count_nonzero(found < 0) :]
            selection = self._selections[request]
            selection.layers[layer] = found[order]
            if len(tensors) == 2:
                selection.scores[layer] = values[at + count : at + 2 * count].view(np.float32)[order]
            at += count * len(tensors)
