"""Records what DeepSeek Sparse Attention selects: for each generated token, the context positions that each layer attends to."""

import numpy as np
import torch

from ...model.metadata import Selection, SelectionSink
from ..params import Request, TokenSelection
from .fault import Fault
from .scheduler import Batch

_RECORDING = "recording its selections"

_Place = tuple[Request, int]


class SelectionRecorder:
    """Collects one step's selections for the requests that ask for them (Request.inspect).

    While the step is launched, it only copies rows on the device. Reading them layer by layer would stall a GPU 61 times a token.
    A failure does not disturb the step: `of` raises it, for the requests that ask for their selections alone.
    """

    def __init__(self, batch: Batch) -> None:
        # Row among the step's T new tokens -> the request, and how many of its rows with logits come before.
        self._row_of: dict[int, _Place] = {}
        self._selections: dict[_Place, TokenSelection] = {}
        # Per row and layer: int32 [K] positions, padded with -1; the bits of the fp32 [K] scores, if the layer selected; the
        # bits of the fp32 [H] mass, if it is measured.
        self._recorded: list[tuple[_Place, int, list[torch.Tensor | None]]] = []
        # All recorded tensors in one, on the host once the event has occurred.
        self._fetched: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        # The rows of a step of decodes, as DecodeRecord has them.
        self._decodes: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        self._error: Fault | None = None
        end = 0
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            end += count
            for offset in range(logit_count if request.inspect else 0):
                self._row_of[end - logit_count + offset] = (request, offset)
                self._selections[request, offset] = TokenSelection(start + count - logit_count + offset)

    @property
    def sink(self) -> SelectionSink | None:
        """For ModelRunner.run. None, which costs nothing, if no request asks for its selections."""
        return self if self._row_of else None

    @property
    def rows(self) -> slice:
        """As SelectionSink.rows."""
        return slice(min(self._row_of), max(self._row_of) + 1)

    def decodes(self, record: torch.Tensor, copied: torch.cuda.Event | None) -> None:
        """As SelectionSink.decodes."""
        self._decodes = record, copied

    def try_fetch(self) -> None:
        """Call after launching this step and before launching the next: starts one device-to-host copy of all selections."""
        if self._recorded and self._error is None:
            try:
                self._fetch()
            except Exception as error:
                self._error = Fault(_RECORDING, error)

    def of(self, request: Request, offset: int = 0) -> TokenSelection | None:
        """The selection for the request's token at `offset` among those of the step, after `try_fetch`. Waits for the copy.

        Raises Fault if a part of the recording has failed.
        """
        if (request, offset) not in self._selections:
            return None
        if self._fetched is not None or self._decodes is not None:
            try:
                self._read()
            except Exception as error:
                self._error = Fault(_RECORDING, error)
        if self._error is not None:
            raise self._error
        return self._selections[request, offset]

    def _fetch(self) -> None:
        whole = torch.cat([tensor for _, _, tensors in self._recorded for tensor in tensors if tensor is not None])
        copied = None
        if whole.is_cuda:
            host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
            host.copy_(whole, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(whole.device))
            whole = host
        self._fetched = whole, copied

    def __call__(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        """As SelectionSink, for AttentionMetadata.on_selection."""
        try:
            self._record(layer, rows, selection)
        except Exception as error:
            self._error = Fault(_RECORDING, error)

    def _record(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        for i, row in enumerate(rows.tolist()):
            if row in self._row_of:
                floats = [None if each is None else each[i].clone().view(torch.int32) for each in selection[1:]]
                self._recorded.append((self._row_of[row], layer, [selection.positions[i].clone(), *floats]))

    def _read(self) -> None:
        fetched, self._fetched, decodes, self._decodes = self._fetched, None, self._decodes, None
        for _, copied in filter(None, (fetched, decodes)):
            if copied is not None:
                copied.synchronize()
        if fetched is not None:
            self._read_layers(fetched[0])
        if decodes is not None:
            self._read_decodes(decodes[0].numpy())

    def _read_decodes(self, record: np.ndarray) -> None:
        """int32 [rows, L, 2, K]."""
        first = self.rows.start
        for row, place in self._row_of.items():
            selection = self._selections[place]
            values = record[row - first].copy()  # the next step but one writes there again
            count = min(selection.position + 1, values.shape[2])
            for layer, (positions, scores) in enumerate(values):
                selection.layers[layer] = positions[:count]
                if count <= selection.position:  # else there was nothing to choose
                    selection.scores[layer] = scores.view(np.float32)

    def _read_layers(self, whole: torch.Tensor) -> None:
        values, at = whole.numpy(), 0
        for place, layer, tensors in self._recorded:
            found: list[np.ndarray | None] = []
            for tensor in tensors:
                found.append(None if tensor is None else values[at : at + len(tensor)])
                at += 0 if tensor is None else len(tensor)
            positions, scores, mass = found
            assert positions is not None
            order = np.argsort(positions, kind="stable")[np.count_nonzero(positions < 0) :]
            selection = self._selections[place]
            selection.layers[layer] = positions[order]
            # An experiment reports a second time, and its report counts.
            selection.scores.pop(layer, None)
            if scores is not None and len(order) <= selection.position:  # else there was nothing to choose
                selection.scores[layer] = scores.view(np.float32)[order]
            if mass is not None:
                selection.mass[layer] = mass.view(np.float32)
