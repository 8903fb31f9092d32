"""Where decode graphs write what their rows select, and how it is read later without waiting for the device."""

import numpy as np
import torch

from ...token_selection import RecordedDecodes
from .pinned_memory import pinned, seen_by

_CHUNK_BYTES = 1 << 20  # of a bucket's steps between two copies out of the ring; small models then copy every 32nd step
_MOST_STEPS = 32


class DecodeRecords:
    """The records of a runner's buckets. Those of large steps share their memory: each row of 61 layers takes 1 MB.

    On the device that is what the largest step needs, from the first of them on. The pinned memory of the host grows with what is
    recorded: it is at most four times the rows of the largest recorded step.
    """

    def __init__(self, rows: int, layers: int, topk: int, device: torch.device) -> None:
        """rows: of the largest step."""
        self._sizes = (layers, topk, device)
        self._rows = rows
        self._shared: torch.Tensor | None = None
        self._rings: dict[int, _Ring] = {}  # of large steps, by rows, which are powers of two

    def of(self, rows: int) -> "DecodeRecord":
        """For steps of so many rows."""
        layers, topk, _ = self._sizes
        if row_bytes(layers, topk) * rows < _CHUNK_BYTES:
            return DecodeRecord.alone(rows, *self._sizes)
        if self._shared is None:
            self._shared = _new_rows(self._rows, *self._sizes)
        most = min(1 << (rows - 1).bit_length(), self._rows)
        if most not in self._rings:
            self._rings[most] = _Ring(self._shared[:most])
        return DecodeRecord(self._shared[:rows], self._rings[most])


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

    def __init__(self, device: torch.Tensor, ring: "_Ring") -> None:
        """device: int32 [R, L, 2, K], what a step's rows write: AttentionMetadata.selections."""
        self.device = device
        self._ring = ring

    @classmethod
    def alone(cls, rows: int, layers: int, topk: int, device: torch.device) -> "DecodeRecord":
        """With memory of its own, for steps of so many rows."""
        whole = _new_rows(rows, layers, topk, device)
        return cls(whole, _Ring(whole))

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


def _new_rows(rows: int, layers: int, topk: int, device: torch.device) -> torch.Tensor:
    return torch.full((rows, layers, 2, topk), -1, dtype=torch.int32, device=device)


class _Ring:
    """Two chunks of steps. While one is written, what the other holds is moved to memory of its own, a part with each step."""

    def __init__(self, device: torch.Tensor) -> None:
        """device: what a step writes."""
        self.steps = max(1, min(_MOST_STEPS, _CHUNK_BYTES // max(device.nbytes, 1)))  # of a chunk
        self.host = pinned((2 * self.steps, *device.shape), torch.int32, device.device)
        self.seen, self.values = seen_by(device.device, self.host), self.host.numpy()
        # By chunk: those that somebody may read.
        self._rows = tuple(_Rows(self.values[first : first + self.steps]) for first in (0, self.steps))
        self._moving: list[_Row] = []  # those of the other chunk
        self._moved = 0  # how many of their steps have left the ring
        self._place = -1  # of the latest step

    def next_place(self) -> int:
        self._place = (self._place + 1) % (2 * self.steps)
        chunk, step = divmod(self._place, self.steps)
        if step == 0:
            self._take(chunk)  # there are some only if a chunk is one step
            self._move(len(self._moving) * self.steps)
        else:
            if step == 1:  # the other chunk's last step has been computed, and its rows have been taken
                self._take(1 - chunk)
            # As much with each step: a long pause in one would leave the device without work.
            self._move(-(-len(self._moving) * self.steps * step // (self.steps - 1)))
        return self._place

    def _take(self, chunk: int) -> None:
        """The rows of a chunk are the next to leave the ring."""
        self._moving, self._moved = list(self._rows[chunk].values()), 0
        self._rows[chunk].clear()

    def _move(self, count: int) -> None:
        """Have so many of their steps left the ring, row by row."""
        while self._moved < count:
            row, first = divmod(self._moved, self.steps)
            stop = min(first + count - self._moved, self.steps)
            self._moving[row].move(stop)
            self._moved += stop - first
        if self._moved == len(self._moving) * self.steps:  # else those of answers that have ended would be kept
            self._moving, self._moved = [], 0

    def latest(self) -> RecordedDecodes:
        chunk, step = divmod(self._place, self.steps)
        return RecordedDecodes(self._rows[chunk], step)


class _Rows(dict[int, "_Row"]):
    """The rows of a chunk by number, made when somebody asks for them."""

    def __init__(self, ring: np.ndarray) -> None:
        """ring: int32 [steps, rows, L, 2, K]."""
        super().__init__()
        self._ring = ring

    def __missing__(self, row: int) -> "_Row":
        made = self[row] = _Row(self._ring[:, row])
        return made


class _Row:
    """A RecordedRow of the steps of a chunk: int32 [steps, L, 2, K], in the ring at first."""

    def __init__(self, ring: np.ndarray) -> None:
        self._steps = len(ring)
        self._ring: np.ndarray | None = ring  # None once all have been moved: the ring is not kept for them
        self._own: np.ndarray | None = None
        self._moved = 0  # steps that are in `own`

    def move(self, stop: int) -> None:
        """Steps before `stop` out of the ring. Raises nothing: it runs between the steps of everybody."""
        ring, own = self._ring, self._own
        if ring is None:  # there was no memory for them
            return
        try:
            if own is None:
                own = self._own = np.empty(ring.shape, ring.dtype)
            own[self._moved : stop] = ring[self._moved : stop]
        except MemoryError:
            own, self._own, stop = None, None, self._steps
        self._moved = stop
        if stop == self._steps:
            self._ring = None

    def read(self, step: int) -> np.ndarray:
        while True:
            ring = self._ring
            if self._moved > step:
                if (own := self._own) is None:
                    raise MemoryError("no memory for a recorded selection")
                return own[step]
            assert ring is not None
            found = ring[step].copy()
            if self._moved <= step:  # else the engine's thread has moved it, and the ring may be written again
                return found
