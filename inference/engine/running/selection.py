"""Records what DeepSeek Sparse Attention selects: for each generated token, the context positions that each layer attends to."""

import numpy as np
import torch

from ....model.metadata import Selection
from ...params import Request
from ...token_selection import RecordedDecodes, SelectionSink, TokenSelection
from ..fault import Fault
from ..scheduling.batch import Batch

_RECORDING = "recording its selections"

_Place = tuple[Request, int]


class SelectionRecorder:
    """Collects one step's selections for the requests that ask for them (Request.inspect).

    While the step is launched, it only copies rows on the device. Reading them layer by layer would stall a GPU 61 times a token.
    Those of a decode graph are not read here at all. A failure does not disturb the step: `of` raises it, for the requests that
    ask for their selections alone.
    """

    def __init__(self, batch: Batch) -> None:
        # By request: the first of its rows with logits among the step's T new tokens, that row's position, and how many they are.
        self._rows: dict[Request, tuple[int, int, int]] = {}
        # For a few rows at a time: whose they are, the layer, and int32 [R, K] positions, padded with -1; the bits of the fp32
        # [R, K] scores, if the layer selected; the bits of the fp32 [R, H] mass, if it is measured.
        self._recorded: list[tuple[dict[int, _Place], int, list[torch.Tensor | None]]] = []
        # All recorded tensors in one, on the host once the event has occurred.
        self._fetched: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        self._selections: dict[_Place, TokenSelection] = {}  # what has been read of them
        self._decodes: RecordedDecodes | None = None
        self._error: Fault | None = None
        if not any([request.inspect for request in batch.requests]):
            return
        end = 0
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            end += count
            if request.inspect and logit_count:
                self._rows[request] = end - logit_count, start + count - logit_count, logit_count

    @property
    def sink(self) -> SelectionSink | None:
        """For ModelRunner.run. None, which costs nothing, if no request asks for its selections."""
        return self if self._rows else None

    def decodes(self, record: RecordedDecodes) -> None:
        """As SelectionSink.decodes."""
        self._decodes = record

    def try_fetch(self) -> None:
        """Call after launching this step and before launching the next: starts one device-to-host copy of all selections."""
        if self._recorded and self._error is None:
            try:
                self._fetch()
            except Exception as error:
                self._error = Fault(_RECORDING, error)

    def of(self, request: Request, offset: int = 0, drafted: bool = False) -> TokenSelection | None:
        """The selection for the request's token at `offset` among those of the step, after these have been read.

        drafted: see TokenSelection. Raises Fault if a part of the recording has failed.
        """
        place = self._rows.get(request)
        if place is None:
            return None
        row, position, _ = place
        decodes = self._decodes
        if decodes is not None:
            return TokenSelection.read_later(position + offset, decodes.rows[row + offset], decodes.step, drafted)
        if self._fetched is not None:
            try:
                self._read()
            except Exception as error:
                self._error = Fault(_RECORDING, error)
        if self._error is not None:
            raise self._error
        selection = self._selections.get((request, offset)) or TokenSelection(position + offset)
        selection.drafted = drafted
        return selection

    def _fetch(self) -> None:
        whole = torch.cat(
            [tensor.flatten() for _, _, tensors in self._recorded for tensor in tensors if tensor is not None]
        )
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
        first, stop = int(rows[0]), int(rows[-1]) + 1
        wanted = {
            row - first + offset: (request, offset)
            for request, (row, _, count) in self._rows.items()
            for offset in range(count if first <= row < stop else 0)
        }
        if wanted:
            part = slice(
                min(wanted), max(wanted) + 1
            )  # one copy of a few rows too many costs less than one for each row
            floats = [None if each is None else each[part].clone().view(torch.int32) for each in selection[1:]]
            within = {row - part.start: place for row, place in wanted.items()}
            self._recorded.append((within, layer, [selection.positions[part].clone(), *floats]))

    def _read(self) -> None:
        assert self._fetched is not None
        (whole, copied), self._fetched = self._fetched, None
        if copied is not None:
            copied.synchronize()
        values, at = whole.numpy(), 0
        for places, layer, tensors in self._recorded:
            found: list[np.ndarray | None] = []
            for tensor in tensors:
                count = 0 if tensor is None else tensor.numel()
                found.append(None if tensor is None else values[at : at + count].reshape(tensor.shape))
                at += count
            for row, place in places.items():
                self._read_layer(place, layer, *(None if each is None else each[row] for each in found))

    def _read_layer(
        self,
        place: _Place,
        layer: int,
        positions: np.ndarray | None,
        scores: np.ndarray | None,
        mass: np.ndarray | None,
    ) -> None:
        assert positions is not None
        order = np.argsort(positions, kind="stable")[np.count_nonzero(positions < 0) :]
        request, offset = place
        selection = self._selections.setdefault(place, TokenSelection(self._rows[request][1] + offset))
        selection.layers[layer] = positions[order]
        # An experiment reports a second time, and its report counts.
        selection.scores.pop(layer, None)
        if scores is not None and len(order) <= selection.position:  # else there was nothing to choose
            selection.scores[layer] = scores.view(np.float32)[order]
        if mass is not None:
            selection.mass[layer] = mass.view(np.float32)
