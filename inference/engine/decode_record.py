"""Where decode graphs write what their rows select, and how it is read later without waiting for the device."""

import numpy as np
import torch

from ...model.metadata import RecordedDecodes
from .host_ring import pinned, seen_by

_CHUNK_BYTES = 1 << 20  # of a bucket's steps between two copies out of the ring; small models then copy every 32nd step
_MOST_STEPS = 32


class DecodeRecords:
    """The records of a runner's buckets. Those of large steps share their memory: each row of 61 layers takes 1 MB."""

    def __init__(self, rows: int, layers: int, topk: int, device: torch.device) -> None:
        """rows: of the largest step."""
        self._sizes = (layers, topk, device)
        self._rows = rows
        self._shared: DecodeRecord | None = None

    def of(self, rows: int) -> "DecodeRecord":
        """For steps of so many rows."""
        layers, topk, _ = self._sizes
        if row_bytes(layers, topk) * rows < _CHUNK_BYTES:
            return DecodeRecord(rows, *self._sizes)
        if self._shared is None:
            self._shared = DecodeRecord(self._rows, *self._sizes)
        return DecodeRecord(rows, *self._sizes, within=self._shared)


def row_bytes(layers: int, topk: int) -> int:
    """Of what a step's row selects: int32 positions and fp32 scores of all layers."""
    return 8 * layers * topk


def most_bytes(rows: int, buckets: int, layers: int, topk: int) -> int:
    """What records can take of a device's memory, with so many buckets of steps, the largest of so many rows."""
    whole = row_bytes(layers, topk) << (rows - 1).bit_length()  # a power of two where steps have no graphs
    return whole + buckets * min(whole, _CHUNK_BYTES)


class DecodeRecord:
    """The selections of the latest steps of a bucket, in a ring of host memory that the device writes by itself.

    A step's graph ends with a copy of `device` to the step's place in the ring, so that recording launches nothing.
    """

    def __init__(
        self, rows: int, layers: int, topk: int, device: torch.device, within: "DecodeRecord | None" = None
    ) -> None:
        """rows: of a step. within: the record whose memory this one uses."""
        if within is None:
            whole = torch.full((rows, layers, 2, topk), -1, dtype=torch.int32, device=device)
            self._ring = _Ring(whole)
        else:
            whole, self._ring = within.device, within._ring
        self.device: torch.Tensor = whole[:rows]  # AttentionMetadata.record

    @property
    def scratch_place(self) -> int:
        """A place that nobody reads."""
        return 2 * self._ring.steps

    def copy_to_ring(self, place: torch.Tensor) -> None:
        """Within a step's graph. place: int64 [1] on the device, as `next_place` has returned it."""
        self._ring.seen[:, : len(self.device)].index_copy_(0, place, self.device[None])

    def fetch(self, rows: int) -> RecordedDecodes:
        """For a step without a graph, once it is launched: copy its first rows to the ring from here."""
        place = self.next_place()
        self._ring.host[place, :rows].copy_(self.device[:rows], non_blocking=True)
        return self.latest()

    def next_place(self) -> int:
        """The place of the next step, to be called before its launch. The step before the latest must have been computed."""
        return self._ring.next_place()

    def latest(self) -> RecordedDecodes:
        """What the latest step has selected."""
        return self._ring.latest()


class _Ring:
    """Two chunks of steps. While one is written, what the other holds is moved to memory of its own, a few rows with each step."""

    def __init__(self, device: torch.Tensor) -> None:
        """device: what a step writes."""
        self.steps = max(1, min(_MOST_STEPS, _CHUNK_BYTES // max(device.nbytes, 1)))  # of a chunk
        self.host = pinned((2 * self.steps + 1, *device.shape), torch.int32, device.device)
        self.seen, self.values = seen_by(device.device, self.host), self.host.numpy()
        self._rows: tuple[dict[int, _Row], dict[int, _Row]] = ({}, {})  # by chunk: those that somebody may read
        self._moving: list[_Row] = []  # those of the other chunk that are still in the ring
        self._place = -1  # of the latest step

    def next_place(self) -> int:
        self._place = (self._place + 1) % (2 * self.steps)
        chunk, step = divmod(self._place, self.steps)
        if step == 0:
            self._moving += self._rows[chunk].values()  # there are some only if a chunk is one step
            self._rows[chunk].clear()
            self._move(len(self._moving))
        elif step == 1:  # the other chunk's last step has been computed, and its rows have been taken
            self._moving += self._rows[1 - chunk].values()
            self._rows[1 - chunk].clear()
        self._move(-(-len(self._moving) // (self.steps - step)))
        return self._place

    def _move(self, count: int) -> None:
        for _ in range(count):
            self._moving.pop().move()

    def latest(self) -> RecordedDecodes:
        chunk, step = divmod(self._place, self.steps)
        first = chunk * self.steps
        return _Step(self._rows[chunk], self.values[first : first + self.steps], step)


class _Step:
    """A RecordedDecodes."""

    def __init__(self, rows: dict[int, "_Row"], values: np.ndarray, step: int) -> None:
        self._rows, self._values, self.step = rows, values, step

    def row(self, row: int) -> "_Row":
        found = self._rows.get(row)
        if found is None:
            found = self._rows[row] = _Row(self._values[:, row])
        return found


class _Row:
    """A RecordedRow of the steps of a chunk: int32 [steps, L, 2, K], in the ring at first."""

    def __init__(self, ring: np.ndarray) -> None:
        self._values: np.ndarray | None = ring
        self._moved = False

    def move(self) -> None:
        """Out of the ring. Raises nothing: it runs between the steps of everybody."""
        assert self._values is not None
        try:
            self._values = self._values.copy()
        except MemoryError:
            self._values = None
        self._moved = True

    def read(self, step: int) -> np.ndarray:
        while True:
            moved, values = self._moved, self._values  # in this order: what has moved does not change any more
            if values is None:
                raise MemoryError("no memory for a recorded selection")
            found = values[step] if moved else values[step].copy()
            if (
                moved or self._values is values
            ):  # else the engine's thread has moved it, and the ring may be written again
                return found
