"""The scheduler: which requests take part in the next step, and with how many tokens. It knows no tensors."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..params import Request
from .pages import PagePool


@dataclass(frozen=True)
class Batch:
    """One step's work: entry i processes ``requests[i].tokens[starts[i] : starts[i] + counts[i]]``.

    The scheduler sets all fields when it makes the batch (Batch.of; `sampled_rows` in schedule_ahead), and they never change.
    scoring.prompt_logits makes its own batches, with logits after every token. On other ranks BatchDecoder sets rank 0's values.
    """

    requests: tuple[Request, ...]  # [B]; those with one new token come first, within each kind the oldest comes first
    starts: tuple[int, ...]  # [B]; position of the first new token, which is also the number of tokens in the cache
    counts: tuple[int, ...]  # [B]; number of new tokens
    decodes: int  # how many leading entries have exactly one new token
    logit_counts: tuple[int, ...]  # [B]; how many of the last new tokens get logits: 0 inside a prompt, else 1
    # [B], or empty if the host knows all tokens. Entry i's token is the one that the previous step samples from row
    # sampled_rows[i] of its logits; it is read from the device.
    sampled_rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, entries: list[tuple[Request, int]]) -> "Batch":
        """A batch of (request, number of new tokens) pairs. Logits are computed for each request whose last token is among them."""
        entries = sorted(entries, key=lambda entry: entry[1] != 1)  # a stable sort
        return cls(
            requests=tuple(request for request, _ in entries),
            starts=tuple(request.computed for request, _ in entries),
            counts=tuple(count for _, count in entries),
            decodes=sum(count == 1 for _, count in entries),
            logit_counts=tuple(int(count == request.remaining) for request, count in entries),
        )

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def sampling(self) -> list[Request]:
        """The requests for which this step samples a token, in the order of their logits."""
        return [request for request, logit_count in zip(self.requests, self.logit_counts, strict=True) if logit_count]


class Scheduler:
    """Continuous batching with chunked prefill over a page pool.

    Decodes come first, so that no running answer waits for a long prompt. The rest of the token budget goes to chunks of
    prompts, oldest first, and then to newly admitted requests. Admission takes pages for all tokens that a request has, so only
    decodes can run out of pages. Then the request that was admitted last is preempted: it gives all its pages back and returns to
    the head of the queue, where its tokens, also the generated ones, count as its prompt (preemption by recomputation). The
    oldest request is never preempted for another, so every step makes progress.

    The queues and the fields of the requests in them change only after all that can fail: wherever an exception ends a method,
    `recover` finds in them what each request holds.
    """

    def __init__(self, pool: PagePool, max_batch_tokens: int, max_sequences: int) -> None:
        for name, value in (("max_batch_tokens", max_batch_tokens), ("max_sequences", max_sequences)):
            if value < 1:
                raise ValueError(f"{name} is {value}; expected at least 1")
        self.pool = pool
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = min(
            max_sequences, max_batch_tokens
        )  # so that every running request can decode in each step
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # oldest first
        self.preemptions = 0  # this and the next two count since the start
        self.prompt_tokens = 0  # of admitted requests
        self.cached_tokens = 0  # how many of those were found in reused pages

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request. Engine.make_request has checked that its prompt and max_tokens fit the pool."""
        self.waiting.append(request)

    def schedule(self) -> Batch:
        """Choose the next step's work and take the pages that it needs. The batch is empty only if there is no work."""
        budget = self.max_batch_tokens
        entries: list[tuple[Request, int]] = []
        for request in [request for request in self.running if request.remaining == 1]:
            if request.pages and self._grow(request):  # without pages: preempted for an older one just now
                entries.append((request, 1))
                budget -= 1
        for request in self.running:
            if budget and request.remaining > 1:
                count = min(request.remaining, budget)
                entries.append((request, count))
                budget -= count
        while budget and self.waiting and len(self.running) < self.max_sequences:
            request = self.waiting[0]
            if not self._admit(request):
                break
            self.running.append(self.waiting.popleft())
            count = min(request.remaining, budget)
            entries.append((request, count))
            budget -= count
        assert entries or not self.has_work, "the scheduler is stuck"
        return Batch.of(entries)

    def schedule_ahead(self, batch: Batch) -> Batch | None:
        """The step after `batch`, which is in flight and whose tokens are not known yet: one decode of every running request.

        None if the next step is of another kind, or if pages lack: `schedule` makes it once `batch` is committed. A request that
        then turns out to have ended takes part in one step too many, whose result is ignored.
        """
        if self.waiting and len(self.running) < self.max_sequences:
            return None
        continuing = [each for each in self.running if each.output_count + each.pending < each.max_tokens]
        if not continuing or any(each.remaining != 1 or not each.pending for each in continuing):
            return None
        growing = [
            each for each in continuing if self.pool.pages_for(len(each.tokens) + each.pending) > len(each.pages)
        ]
        if len(growing) > self.pool.available:
            return None
        for request in growing:
            request.pages += self.pool.allocate(1)
        rows = {request: row for row, request in enumerate(batch.sampling)}
        return replace(
            Batch.of([(each, 1) for each in continuing]), sampled_rows=tuple(rows[each] for each in continuing)
        )

    def start(self, batch: Batch) -> None:
        """Call when the step is launched: later steps find its tokens in the cache."""
        for request, count, logit_count in zip(batch.requests, batch.counts, batch.logit_counts, strict=True):
            request.computed += count
            request.pending += logit_count

    def commit(self, batch: Batch) -> None:
        """Call when the step's sampled tokens have been added to their requests: makes the pages that it has filled reusable."""
        size = self.pool.page_size
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            request.pending -= logit_count
            if not request.pages:  # the request has ended meanwhile
                continue
            full = (start + count) // size
            for page in range(request.cached_pages, full):
                tokens = request.tokens[page * size : (page + 1) * size]
                request.prefix_id = self.pool.register(request.pages[page], request.prefix_id, tokens)
            request.cached_pages = full

    def remove(self, request: Request, discard: bool = False) -> bool:
        """Take a finished or cancelled request out and free its pages. False if it is not here (any more).

        discard: the contents of its pages may be wrong and are not reused.
        """
        queue = self.running if request in self.running else self.waiting if request in self.waiting else None
        if queue is None:
            return False
        if discard:
            self.pool.discard(request.pages)
        self._release(request)
        queue.remove(request)
        return True

    def recover(self, requests: Iterable[Request]) -> None:
        """Make queues and pool consistent after a fault, whatever method it has cut short.

        `requests` are all that have not ended, in the order of their arrival. No step may be in flight any more: a token that was
        sampled but not added to its request is computed and sampled again. Running requests keep their pages; no page is reusable.
        """
        running = {request for request in self.running if request.pages}
        requests = list(requests)
        self.running = [request for request in self.running if request in running and request in requests]
        self.waiting = deque(request for request in requests if request not in running)
        for request in self.running:
            request.pending = request.cached_pages = request.prefix_id = 0
            request.computed = min(request.computed, len(request.tokens) - 1)
        for request in self.waiting:
            request.pages = []
            request.pending = request.computed = request.cached_pages = request.prefix_id = 0
        self.pool.rebuild(request.pages for request in self.running)

    def preempt_latest(self) -> Request:
        """Send the request that was admitted last back to the head of the queue; its pages are free or cached now."""
        request = self.running[-1]
        assert not request.pending, "a step that samples a token for it is in flight"
        self._release(request)
        self.running.pop()
        self.waiting.appendleft(request)
        self.preemptions += 1
        return request

    def take_pages(self, count: int) -> list[int]:
        """Take pages for work outside of the queues, from the latest requests if needed. The pool must have that many."""
        while self.pool.available < count:
            self.preempt_latest()
        return self.pool.allocate(count)

    def _admit(self, request: Request) -> bool:
        # The last token is always computed, because its logits are needed.
        pages, prefix_id = self.pool.match(request.tokens[:-1])
        missing = self.pool.pages_for(len(request.tokens)) - len(pages)
        if missing > self.pool.available:
            self.pool.release(pages)
            return False
        request.pages = pages + self.pool.allocate(missing)
        request.computed = len(pages) * self.pool.page_size
        request.cached_pages, request.prefix_id = len(pages), prefix_id
        request.admission += 1
        if request.cached_tokens is None:
            request.cached_tokens = request.computed
            self.prompt_tokens += len(request.prompt)
            self.cached_tokens += request.computed
        return True

    def _grow(self, request: Request) -> bool:
        """Take a page for a decode's token if it needs one; preempts later requests. False if the request itself was preempted."""
        if self.pool.pages_for(len(request.tokens)) > len(request.pages):
            while not self.pool.available:
                if self.preempt_latest() is request:
                    return False
            request.pages += self.pool.allocate(1)
        return True

    def _release(self, request: Request) -> None:
        self.pool.release(request.pages)
        request.pages = []
        request.computed = request.cached_pages = request.prefix_id = 0
