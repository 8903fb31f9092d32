"""Checks of the caches while the engine runs (`--check-cache`): each step stamps and compares entries, and reports mismatches.

With checks on (kernels/cache_stamps.py defines stamps, chains and tasks), each step

- verifies pages that a newly admitted request reuses, before the model reads them: every stamp and chain of every layer, the end of
  the chain against the request's tokens, and the bytes of some of them;
- stamps its new tokens (the model's launches store the stamps next to the entries that they write);
- verifies the pages that it has written, one earlier page of each sequence, and every TRUTH_EVERY tokens the chain's end (decodes
  without a graph do so at every EAGER_EVERY-th step);
- takes the hash of the pages that have become full.

Nothing waits for the device: its findings reach the host's memory together with the step's sampled tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist

from ...kernels.cache_stamps import check_cache, multiplier_table
from ...kernels.errors import ArgumentError
from ...kernels.reference.cache_stamps import COMPARE_HASH, FOUND_WORDS, RECORD_HASH, Stamps
from ...kernels.registry import choose, choose_implementation
from ...model.metadata import PAGE_SIZE
from ...model.transformer import Transformer
from ..engine.request import Request
from ..engine.running.inputs import Inputs
from ..engine.running.observer import Plan, Setup, StepObserver
from ..engine.scheduling.batch import Batch
from .report import CacheReports, Mismatch

TRUTH_EVERY = 32  # tokens of a sequence between two comparisons of its chain with its tokens on the host
TRUTHS = 8  # of them in one step, at most
REUSED_HASHES = 4  # reused pages of a request whose bytes are hashed, at most
EAGER_EVERY = 16  # steps of decodes without a graph between two checks
DECODE_WORDS = 1 + 3 * TRUTHS  # of a step of decodes: its number, then rows of truths, -1 where there is none
_FIBONACCI = 2654435769
_RECENT = 8  # steps whose mismatches can still be attributed to requests


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


class CacheCheck(StepObserver):
    """The stamps of one rank's caches, and the checks of its steps. The draft layer's caches have none: it changes no answer."""

    words = DECODE_WORDS

    def __init__(self, setup: Setup) -> None:
        """Give the layers' caches stamps. With several ranks, all of them learn of each mismatch."""
        max_sequences, ranks = setup.max_sequences, setup.ranks
        caches = setup.caches[: setup.config.num_hidden_layers]
        backend = setup.model.compute.backend if isinstance(setup.model, Transformer) else "auto"
        first = caches[0].latent
        device, (pages, size), layers = first.device, first.shape[:2], len(caches)
        bytes_of = [one[0].numel() * one.element_size() for one in (first, caches[0].index)]
        if any(count % 8 for count in bytes_of):
            raise ArgumentError("check_cache", f"True, and pages have {bytes_of} bytes", "multiples of 8")
        words = (bytes_of[0] // 8, bytes_of[1] // 8)
        compiled = choose_implementation("check_cache", device, torch.int32, backend).backend != "reference"
        on_host = device.type == "cpu" or (compiled and ranks == 1)
        shape, pinned = (2, 1 + max_sequences * FOUND_WORDS), device.type != "cpu"
        self._host = torch.zeros(shape, dtype=torch.int64, pin_memory=pinned)
        self._view = self._host.numpy()
        self._found_steps = self._view[:, 0]
        multipliers = multiplier_table(max(setup.max_model_len, *words))
        self.planner = CheckPlanner(size, multipliers)
        # Other multipliers than the first positions'.
        factors = multiplier_table(2 * layers + 7)[7:].view(np.int64).reshape(layers, 2)

        def full(shape: Sequence[int], dtype: torch.dtype = torch.int64, value: int = 0) -> torch.Tensor:
            return torch.full(shape, value, dtype=dtype, device=device)

        self.stamps = Stamps(
            page_size=size,
            chains=full((pages * size, 2), value=-1),  # unlike any that a sequence begins with
            columns=full((layers, 2, pages * size), torch.int32),
            hashes=full((layers, 2, pages)),
            factors=torch.from_numpy(factors).to(device),
            multipliers=torch.from_numpy(multipliers.view(np.int64)).to(device),
            addresses=torch.tensor([[c.latent.data_ptr(), c.index.data_ptr()] for c in caches], device=device),
            page_words=words,
            claims=full((max_sequences,)),
            found=self._host if on_host else self._host.to(device),
            padding_page=setup.scratch_page,
        )
        for layer, (cache, column) in enumerate(zip(caches, self.stamps.columns, strict=True)):
            setup.caches[layer] = replace(cache, stamps=(column[0], column[1]))
        self._pairs = [(cache.latent, cache.index) for cache in caches]
        self._backend, self._ranks, self._device = backend, ranks, device
        # Chosen once, and called without checks of the arguments, which would take 1 % of the demo's decodes on a CPU.
        self._stamp_tokens = choose("stamp_tokens", self.stamps.chains, backend)
        self._recent: dict[int, tuple[Request, ...]] = {}
        self._told: set[tuple[int, int]] = set()  # (step, row) of recent mismatches that `mismatches` has returned
        self._reports = CacheReports(self.planner.chain, size, self.stamp_at)

    def allows_graph(self, batch: Batch) -> bool:
        # The rows of one request chain their stamps, which a graph of decodes does not.
        return not batch.draft_counts

    def plan(self, batch: Batch, in_graph: bool) -> Plan:
        plan = self.planner.plan(batch, in_graph)
        self._recent[plan.step] = batch.requests
        self._recent.pop(plan.step - _RECENT, None)
        return plan.encode()

    @contextmanager
    def step(self, batch: Batch, plan: Plan, inputs: Inputs) -> Iterator[Inputs]:
        check = CheckPlan.decode(plan)
        self._check_reused(batch, check)
        stamped = self._stamp(inputs, batch.counts)
        # Copied before the model runs: a copy from pageable memory waits for the device.
        uploaded = (
            self._upload(check.step, check.tasks, check.truths) if len(check.tasks) or len(check.truths) else None
        )
        yield stamped
        if uploaded is not None:
            step, tasks, truths = uploaded
            self._check(inputs.table, step, tasks, None, truths)
        self._share()

    def before_graph(self, batch: Batch, plan: Plan) -> np.ndarray:
        check = CheckPlan.decode(plan)
        self._check_reused(batch, check)
        return check.words()

    @contextmanager
    def in_graph(self, words: torch.Tensor, inputs: Inputs) -> Iterator[Inputs]:
        metadata = inputs.metadata
        yield self._stamp(inputs, metadata.query_lengths)
        self._check(inputs.table, words[:1], None, metadata.lengths, words[1:].view(TRUTHS, 3))
        self._share()

    def errors(self, requests: Sequence[Request]) -> dict[int, str]:
        found = self.mismatches()
        return self._reports.errors(found, requests) if found else {}

    @staticmethod
    def page_bytes(layers: int) -> int:
        # Two stamps of 4 bytes for each entry, two hashes for each page of a layer, and two chains of 8 bytes for each slot.
        return layers * (PAGE_SIZE * 8 + 16) + PAGE_SIZE * 16

    def stamp_at(self, chain: int, layer: int, kind: int) -> int:
        """The stamp of an entry after whose token the chain is `chain`."""
        return int(np.int64(chain * int(self.stamps.factors[layer, kind]) % 2**64 >> 32).astype(np.int32))

    def _check_reused(self, batch: Batch, plan: CheckPlan) -> None:
        """Verify the pages that requests of the batch reuse, before the model reads them."""
        if not len(plan.reused):
            return
        rows = int(plan.reused[-1, 0]) + 1
        used = [batch.starts[row] // self.stamps.page_size for row in range(rows)]
        table = np.zeros((rows, max(used)), np.int32)
        for row, count in enumerate(used):
            table[row, :count] = batch.requests[row].cache.pages[:count]
        step, tasks, truths = self._upload(plan.step, plan.reused, plan.reused_truths)
        self._check(torch.from_numpy(table).to(self._device), step, tasks, None, truths)

    def _stamp(self, inputs: Inputs, counts: Sequence[int]) -> Inputs:
        """Write the chains of a step's tokens, `counts` of each sequence, and add AttentionMetadata.stamps for the launches."""
        tokens, positions, metadata, table = inputs
        starts = None
        if len(counts) < len(tokens):
            starts = torch.from_numpy(np.cumsum((0, *counts), dtype=np.int32)).to(self._device)
        stamps: torch.Tensor = self._stamp_tokens(tokens, positions, metadata.slots, table, starts, self.stamps)
        return inputs._replace(metadata=replace(metadata, stamps=stamps.view(-1, len(tokens)).unbind()))

    def mismatches(self) -> list[Mismatch]:
        """Return recent steps' mismatches that no earlier call has returned. Complete for steps whose tokens have been read."""
        if self.planner.step > self.planner.last_check + 1:  # a step may be in flight that does not check anything
            return []
        self._told = {(number, row) for number, row in self._told if number in self._recent}
        found = []
        for half, step in zip(self._view, self._found_steps.tolist(), strict=True):
            rows = zip(self._recent.get(step, ()), half[1:].reshape(-1, FOUND_WORDS), strict=False)
            for row, (request, words) in enumerate(rows):
                number, where, expected, present = words.tolist()
                if number == step and (step, row) not in self._told:
                    self._told.add((step, row))
                    kind, layer, position = where >> 48, where >> 32 & 0xFFFF, where & 0xFFFFFFFF
                    found.append(Mismatch(step, request, kind, layer, position, expected, present))
        return found

    def _upload(self, step: int, *arrays: np.ndarray) -> list[torch.Tensor]:
        """The step's number and arrays of the plan on the device, in one copy."""
        sizes = [1, *(array.size for array in arrays)]
        packed = np.concatenate(([step], *(array.ravel() for array in arrays)))
        parts = torch.from_numpy(packed).to(self._device).split(sizes)
        return [parts[0], *(part.view(array.shape) for part, array in zip(parts[1:], arrays, strict=True))]

    def _check(
        self,
        block_table: torch.Tensor,
        step: torch.Tensor,
        tasks: torch.Tensor | None,
        lengths: torch.Tensor | None,
        truths: torch.Tensor,
    ) -> None:
        given = truths if len(truths) else None
        check_cache(self._pairs, self.stamps, block_table, step, tasks, lengths, given, backend=self._backend)

    def _share(self) -> None:
        """Send the mismatches to all ranks, and to the host."""
        found = self.stamps.found
        if self._ranks > 1:
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
        if found is not self._host:
            self._host.copy_(found, non_blocking=True)
