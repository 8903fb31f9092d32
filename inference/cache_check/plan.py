"""The host's plan of what each step verifies when caches are checked: see check.py."""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ...kernels.types import COMPARE_HASH, RECORD_HASH
from ..engine.request import Request
from ..engine.scheduling.batch import Batch

TRUTH_EVERY = 32  # tokens of a sequence between two comparisons of its chain with its tokens on the host
TRUTHS = 8  # of them in one step, at most
REUSED_HASHES = 4  # reused pages of a request whose bytes are hashed, at most
EAGER_EVERY = 16  # steps of decodes without a graph between two checks
DECODE_WORDS = 1 + 3 * TRUTHS  # of a step of decodes: its number, then rows of truths, -1 where there is none
_FIBONACCI = 2654435769


class CheckPlan(NamedTuple):
    """A step's checks in addition to its decodes' own tasks, decided by the host. All arrays are int64."""

    step: int  # rises by one from step to step
    reused: np.ndarray  # [N, 5] tasks over the pages of the batch's requests, before the model runs
    reused_truths: np.ndarray  # [K, 3]
    tasks: np.ndarray  # [M, 5] tasks after it; a graph of decodes derives its tasks from the lengths instead
    truths: np.ndarray  # [K, 3]

    def encode(self) -> tuple[np.ndarray, ...]:
        return np.array([self.step], dtype=np.int64), *self[1:]

    @classmethod
    def decode(cls, arrays: Sequence[np.ndarray]) -> "CheckPlan":
        step, *rest = arrays
        return cls(int(step[0]), *rest)

    def words(self) -> np.ndarray:
        """Return a decode graph's words, int64 [DECODE_WORDS]: the step's number, then rows of truths, -1 where there is none."""
        words = np.full(DECODE_WORDS, -1, dtype=np.int64)
        words[0] = self.step
        words[1 : 1 + self.truths.size] = self.truths.ravel()
        return words


_NONE5, _NONE3 = np.zeros((0, 5), np.int64), np.zeros((0, 3), np.int64)


class CheckPlanner:
    """Decides which entries a step verifies, and computes their chains from the host's tokens."""

    def __init__(self, page_size: int, multipliers: np.ndarray) -> None:
        """multipliers: uint64, used in the chains' sums, at least one for each position."""
        self.step = self.last_check = 0  # numbers of the latest step, and of the latest that checks anything
        self._page_size, self._multipliers = page_size, multipliers
        # By request: the latest admission whose pages are checked; the number of leading tokens in its chain, and the chain.
        self._checked: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self._chains: WeakKeyDictionary[Request, tuple[int, int]] = WeakKeyDictionary()

    def plan(self, batch: Batch, in_graph: bool) -> CheckPlan:
        """Decide what a step checks. in_graph: the step is a graph of decodes, which has tasks."""
        self.step += 1
        reused, reused_truths, truths = [], [], []
        # A step that takes its tokens from the device has no newly admitted request.
        entries = () if batch.sampled_rows else zip(batch.requests, batch.starts, strict=True)
        for row, (request, start) in enumerate(entries):
            if self._checked.get(request, 0) != request.cache.admission:
                self._checked[request] = request.cache.admission
                if start:
                    count = start // self._page_size
                    hashed = {(self.step + i) % count for i in range(min(count, REUSED_HASHES))}
                    size = self._page_size
                    reused += [(row, page, size, COMPARE_HASH * (page in hashed), row) for page in range(count)]
                    reused_truths.append((row, start - 1, self.chain(request, start)))
        prompts = batch.decodes < len(batch.requests)
        size, rows = self._page_size, zip(batch.starts, batch.counts, strict=True)
        # The hash of a page that a decode fills must be taken before another request can reuse it.
        fills = any(start % size + count >= size for start, count in rows)
        due = in_graph or prompts or self.step % EAGER_EVERY == 0 or fills
        if due or reused:
            self.last_check = self.step
        if not due:
            return CheckPlan(self.step, _array(reused, 5), _array(reused_truths, 3), _NONE5, _NONE3)
        often = 1 if in_graph else TRUTH_EVERY
        known = [row for row, start in enumerate(batch.starts) if start % TRUTH_EVERY < often and start]
        if len(known) > TRUTHS:
            first = self.step * TRUTHS % len(known)
            known = (known + known)[first : first + TRUTHS]
        for row in known:
            truths.append((row, batch.starts[row] - 1, self.chain(batch.requests[row], batch.starts[row])))
        tasks = _NONE5 if in_graph else self._tasks(batch)
        return CheckPlan(self.step, _array(reused, 5), _array(reused_truths, 3), tasks, _array(truths, 3))

    def chain(self, request: Request, count: int) -> int:
        """The chain after the request's first `count` tokens, as a signed integer of 64 bits."""
        known, chain = self._chains.get(request, (0, 0))
        if known > count:
            known, chain = 0, 0
        tokens = np.array(request.tokens[known:count], dtype=np.uint64) + np.uint64(1)
        chain = (chain + int((tokens * self._multipliers[known:count]).sum(dtype=np.uint64))) % 2**64
        self._chains[request] = (count, chain)
        return chain - 2**64 if chain >= 2**63 else chain

    def _tasks(self, batch: Batch) -> np.ndarray:
        """The pages that a step without a graph has written, and one earlier page of each sequence."""
        size, tasks, only_decodes = self._page_size, [], batch.decodes == len(batch.requests)
        for row, (start, count) in enumerate(zip(batch.starts, batch.counts, strict=True)):
            end, first = start + count, start // size
            for page in range(first, -(-end // size)):
                entries = min(size, end - page * size)
                tasks.append((row, page, entries, RECORD_HASH * (entries == size), row))
            if first:
                compare = COMPARE_HASH * (only_decodes or count > 1 or start % TRUTH_EVERY == 0)
                tasks.append((row, (end * _FIBONACCI % 2**32) * first >> 32, size, compare, row))
        return _array(tasks, 5)


def _array(rows: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width) if rows else _NONE5 if width == 5 else _NONE3
