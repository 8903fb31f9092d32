"""Records what DeepSeek Sparse Attention selects: for each generated token, the context positions that each layer attends to.

Steps report their selections in two ways. Most do it layer by layer, while they are launched: AttentionMetadata.on_selection.
Steps of decodes whose contexts need a selection write all of it to AttentionMetadata.selections: DecodeRecord fetches it.
"""

import numpy as np
import torch

from ....model.metadata import Selection
from ...token_selection import TokenSelection
from ..fault import Fault
from ..request import Request
from ..sampling.filters import to_host
from ..scheduling.batch import Batch
from .inputs import pinned, seen_by

_RECORDING = "recording its selections"
_HELD_BYTES = 256 << 20  # of recorded rows on the device, before they are copied to the host
_SHARED_BYTES = 1 << 20  # of a record: from here on, records of several sizes share their memory

_Place = tuple[Request, int]
# A few recorded rows: their requests, the layer, and int32 [R, K] positions, padded with -1; the bits of the fp32 [R, K] scores, if
# the layer selected; the bits of the fp32 [R, H] mass, if it is measured.
_Part = tuple[dict[int, _Place], int, list[torch.Tensor | None]]


class SelectionRecorder:
    """Collects one step's selections for the requests that ask for them (Request.inspect). Other steps have none.

    While the step is launched, it only copies rows on the device. Reading them layer by layer would stall a GPU 61 times a token.
    A failure does not disturb the step: `of` raises it, and only for the requests that ask for their selections.
    """

    def __init__(self, batch: Batch) -> None:
        # By request: the first of its rows with logits among the step's T new tokens, that row's position, and how many they are.
        self._rows: dict[Request, tuple[int, int, int]] = {}
        self._recorded: list[_Part] = []
        self._bytes = 0  # of `_recorded`
        # Parts whose tensors are in one, on the host once the event has occurred.
        self._fetched: list[tuple[list[_Part], torch.Tensor, torch.cuda.Event | None]] = []
        self._selections: dict[_Place, TokenSelection] = {}  # what has been read of them
        self._decodes: np.ndarray | None = None  # int32 [R, L, 2, K], a place of a DecodeRecord
        self._error: Fault | None = None
        end = 0
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            end += count
            if request.is_inspected and logit_count:
                self._rows[request] = end - logit_count, start + count - logit_count, logit_count

    def decodes(self, values: np.ndarray) -> None:
        """Take what the step writes to its record: int32 [R, L, 2, K], complete when the step's tokens are."""
        self._decodes = values

    def try_fetch(self) -> None:
        """Start a device-to-host copy of all selections. Called between the launch of this step and the next."""
        if self._recorded and self._error is None:
            try:
                self._fetch()
            except Exception as error:
                self._error = Fault(_RECORDING, error)

    def of(self, request: Request, offset: int = 0, drafted: bool = False) -> TokenSelection | None:
        """Return the selection for the request's token at `offset` among the step's tokens, after these have been read.

        Called before the next step but one is launched. drafted: see TokenSelection. Raises Fault if recording has failed.
        """
        place = self._rows.get(request)
        if place is None:
            return None
        row, position, _ = place
        try:
            if self._decodes is not None:
                return TokenSelection(position + offset, self._decodes[row + offset].copy(), drafted)
            self._read()
        except Exception as error:
            self._error = self._error or Fault(_RECORDING, error)
        if self._error is not None:
            raise self._error
        selection = self._selections.get((request, offset)) or TokenSelection(position + offset)
        selection.drafted = drafted
        return selection

    def _fetch(self) -> None:
        parts, self._recorded, self._bytes = self._recorded, [], 0
        whole = torch.cat([tensor.flatten() for _, _, tensors in parts for tensor in tensors if tensor is not None])
        host, copied = to_host(whole), torch.cuda.Event() if whole.is_cuda else None
        if copied is not None:
            copied.record(torch.cuda.current_stream(whole.device))
        self._fetched.append((parts, host, copied))

    def __call__(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        """Record a layer's selection. The callback of AttentionMetadata.on_selection."""
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
        if not wanted:
            return
        part = slice(min(wanted), max(wanted) + 1)  # one copy of a few rows too many costs less than one for each row
        floats = [None if each is None else each[part].clone().view(torch.int32) for each in selection[1:]]
        tensors = [selection.positions[part].clone(), *floats]
        self._recorded.append(({row - part.start: place for row, place in wanted.items()}, layer, tensors))
        self._bytes += sum(each.nbytes for each in tensors if each is not None)
        if self._bytes > _HELD_BYTES:  # the answer of a scored prompt may have thousands of rows
            self._fetch()

    def _read(self) -> None:
        while self._fetched:
            parts, whole, copied = self._fetched[0]
            if copied is not None:
                copied.synchronize()
            values, at = whole.numpy(), 0
            for places, layer, tensors in parts:
                found: list[np.ndarray | None] = []
                for tensor in tensors:
                    count = 0 if tensor is None else tensor.numel()
                    found.append(None if tensor is None else values[at : at + count].reshape(tensor.shape))
                    at += count
                for row, place in places.items():
                    self._read_layer(place, layer, *(None if each is None else each[row] for each in found))
            del self._fetched[0]

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
        # An experiment reports a second time, and that report counts.
        selection.scores.pop(layer, None)
        if scores is not None and len(order) <= selection.position:  # else there was nothing to choose
            selection.scores[layer] = scores.view(np.float32)[order]
        if mass is not None:
            selection.mass[layer] = mass.view(np.float32)


class DecodeRecords:
    """The records of a runner's buckets. Records of large steps share their memory: each row of 61 layers takes 1 MB.

    From the first large step on, the device's memory has the size of the largest step. The host's pinned memory grows with the
    recorded steps: it has at most four times the rows of the largest one.
    """

    def __init__(self, rows: int, layers: int, topk: int, device: torch.device) -> None:
        """rows: of the largest step."""
        self._sizes = (layers, topk, device)
        self._rows = rows
        self._shared: torch.Tensor | None = None
        self._hosts: dict[int, _Places] = {}  # of large steps, by rows, which are powers of two

    def of(self, rows: int) -> "DecodeRecord":
        """The record of steps of this many rows."""
        layers, topk, _ = self._sizes
        if row_bytes(layers, topk) * rows < _SHARED_BYTES:
            return DecodeRecord.separate(rows, *self._sizes)
        if self._shared is None:
            self._shared = _new_rows(self._rows, *self._sizes)
        most = min(1 << (rows - 1).bit_length(), self._rows)
        if most not in self._hosts:
            self._hosts[most] = _Places(self._shared[:most])
        return DecodeRecord(self._shared[:rows], self._hosts[most])


def row_bytes(layers: int, topk: int) -> int:
    """Bytes of what one row of a step selects: int32 positions and fp32 scores of all layers."""
    return 8 * layers * topk


def most_bytes(rows: int, buckets: int, layers: int, topk: int) -> int:
    """Most bytes of a device's memory that records take, given the number of buckets and the rows of the largest step."""
    whole = row_bytes(layers, topk) << (rows - 1).bit_length()  # a power of two where steps have no graphs
    return whole + buckets * min(whole, _SHARED_BYTES)


class DecodeRecord:
    """The selections of a bucket's steps: on the device, and in two places on the host, written in turns.

    A step's graph ends with a copy of `device` to the step's place, so that recording launches nothing. SelectionRecorder.of copies
    a row from there once the step's tokens have been read, which is before the next step but one is launched.
    """

    def __init__(self, device: torch.Tensor, host: "_Places") -> None:
        """device: int32 [R, L, 2, K], what a step's rows write: AttentionMetadata.selections."""
        self.device = device
        self._host = host

    @classmethod
    def separate(cls, rows: int, layers: int, topk: int, device: torch.device) -> "DecodeRecord":
        """Make a record with memory of its own, for steps of this many rows."""
        whole = _new_rows(rows, layers, topk, device)
        return cls(whole, _Places(whole))

    def next_place(self) -> int:
        """Return the place of the next step, before its launch. The step before the latest has been read."""
        self._host.place = 1 - self._host.place
        return self._host.place

    def copy_to_host(self, place: torch.Tensor) -> None:
        """Copy the step's selections, within its graph. place: int64 [1] on the device, as `next_place` has returned it."""
        self._host.seen[:, : len(self.device)].index_copy_(0, place, self.device[None])

    def fetch(self, rows: int) -> np.ndarray:
        """Copy the first rows of a launched step without a graph. Returns them in the form of SelectionRecorder.decodes."""
        place = self.next_place()
        self._host.whole[place, :rows].copy_(self.device[:rows], non_blocking=True)
        return self.at(place)

    def at(self, place: int) -> np.ndarray:
        """int32 [R, L, 2, K] on the host: what the step of this place has selected, once its tokens have arrived."""
        values: np.ndarray = self._host.values[place]
        return values


class _Places:
    """Two steps' selections in pinned memory of the host."""

    def __init__(self, device: torch.Tensor) -> None:
        """device: what a step writes."""
        self.whole = pinned((2, *device.shape), torch.int32, device.device)
        self.seen, self.values = seen_by(device.device, self.whole), self.whole.numpy()
        self.place = 0  # of the latest step


def _new_rows(rows: int, layers: int, topk: int, device: torch.device) -> torch.Tensor:
    return torch.full((rows, layers, 2, topk), -1, dtype=torch.int32, device=device)
