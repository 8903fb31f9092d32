"""Which requests take part in the next step, with how many tokens: queues → Batch. Knows no tensors."""

from collections import deque
from dataclasses import dataclass, replace

from ..params import Request
from .pages import PagePool


@dataclass(frozen=True)
class Batch:
    """One step's work: entry i processes ``requests[i].tokens[starts[i] : starts[i] + counts[i]]``.

    The scheduler fills every field before the step; nothing is added later.
    """

    requests: tuple[Request, ...]  # those with one new token first, oldest first within each kind
    starts: tuple[int, ...]  # position of each one's first new token = how many of its tokens are cached already
    counts: tuple[int, ...]  # how many new tokens
    decodes: int  # how many leading entries have exactly one
    logit_counts: tuple[int, ...]  # of how many of the last new tokens logits are wanted: 0 inside a prompt, else 1
    # Entry i's token is not known here: it is what the step before drew for row drawn[i] of its logits. Empty: all are known.
    sampled_rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, entries: list[tuple[Request, int]]) -> "Batch":
        """Order (request, new tokens) pairs into a batch; wants the logits that follow a request's last known token."""
        entries = sorted(entries, key=lambda entry: entry[1] != 1)  # stable
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
        """The requests that get a token from this step, in the order of their logits."""
        return [request for request, logit_count in zip(self.requests, self.logit_counts, strict=True) if logit_count]


class Scheduler:
    """Continuous batching over a page pool.

    Decodes go first, so that no running answer waits for a long prompt; what is left of the token budget goes to prompt chunks,
    oldest first, then to requests newly admitted. Admission takes pages for all the tokens a request has by then, so only
    decodes run out of pages; then the latest admitted request gives all of its up and returns to the head of the queue, where
    its tokens, the generated ones included, count as its prompt (preemption by recomputation). The oldest request is
    never preempted for another, so every step makes progress.
    """

    def __init__(self, pool: PagePool, max_batch_tokens: int, max_sequences: int) -> None:
        for name, value in (("max_batch_tokens", max_batch_tokens), ("max_sequences", max_sequences)):
            if value < 1:
                raise ValueError(f"{name} is {value}; at least 1 is wanted")
        self.pool = pool
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = min(max_sequences, max_batch_tokens)  # so that every running request can decode each step
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # oldest first
        self.preemptions = 0  # these three count since the beginning
        self.prompt_tokens = 0  # of admitted requests
        self.cached_tokens = 0  # of those, found in reused pages

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request. Its prompt and max_tokens together must fit the pool: the engine has checked."""
        self.waiting.append(request)

    def schedule(self) -> Batch:
        """Choose the next step's work and take the pages it needs. Empty only if there is no work."""
        budget = self.max_batch_tokens
        entries: list[tuple[Request, int]] = []
        for request in [request for request in self.running if request.remaining == 1]:
            if request.pages and self._grow(request):  # without pages it was preempted by an older one just now
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
        """What follows a step under way, of which nobody knows yet what it draws: a decode of all that go on.

        None if the next step is another: then it is for `schedule`, after `commit`. A request that turns out to have ended takes
        part in one step too many, whose result nobody reads.
        """
        if self.waiting and len(self.running) < self.max_sequences:
            return None
        going = [each for each in self.running if each.output_count + each.pending < each.max_tokens]
        if not going or any(each.remaining != 1 or not each.pending for each in going):
            return None
        grown = [each for each in going if self.pool.pages_for(len(each.tokens) + each.pending) > len(each.pages)]
        if len(grown) > self.pool.available:
            return None
        for request in grown:
            request.pages += self.pool.allocate(1)
        rows = {request: row for row, request in enumerate(batch.sampling)}
        return replace(Batch.of([(each, 1) for each in going]), sampled_rows=tuple(rows[each] for each in going))

    def start(self, batch: Batch) -> None:
        """The step is under way: what follows it finds its tokens cached."""
        for request, count, logit_count in zip(batch.requests, batch.counts, batch.logit_counts, strict=True):
            request.computed += count
            request.pending += logit_count

    def commit(self, batch: Batch) -> None:
        """The step has run: the pages that its tokens filled are offered for reuse, and what it drew is known."""
        size = self.pool.page_size
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            request.pending -= logit_count
            if not request.pages:  # it has ended meanwhile
                continue
            full = (start + count) // size
            for page in range(request.cached_pages, full):
                tokens = request.tokens[page * size : (page + 1) * size]
                request.prefix_id = self.pool.register(request.pages[page], request.prefix_id, tokens)
            request.cached_pages = full

    def remove(self, request: Request, discard: bool = False) -> bool:
        """Take a finished or cancelled request out and free its pages; False if it is not here (any more).

        With `discard`, what its pages contain is not offered to anyone.
        """
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        else:
            return False
        if discard:
            self.pool.discard(request.pages)
        self._release(request)
        return True

    def preempt_latest(self) -> Request:
        """Send the latest admitted request back to the head of the queue; its pages are free or cached now."""
        request = self.running.pop()
        assert not request.pending, "a step that draws for it is under way"
        self._release(request)
        self.waiting.appendleft(request)
        self.preemptions += 1
        return request

    def take_pages(self, count: int) -> list[int]:
        """Pages for work outside the queues, at the expense of the latest requests. The pool must have that many."""
        while self.pool.available < count:
            self.preempt_latest()
        return self.pool.allocate(count)

    def _admit(self, request: Request) -> bool:
        # The last token is always computed: its logits are what the request is here for.
        pages, prefix_id = self.pool.match(request.tokens[:-1])
        fresh = self.pool.pages_for(len(request.tokens)) - len(pages)
        if fresh > self.pool.available:
            self.pool.release(pages)
            return False
        request.computed = len(pages) * self.pool.page_size
        request.cached_pages, request.prefix_id = len(pages), prefix_id
        request.pages = pages + self.pool.allocate(fresh)
        request.admission += 1
        if request.cached_tokens is None:
            request.cached_tokens = request.computed
            self.prompt_tokens += len(request.prompt)
            self.cached_tokens += request.computed
        return True

    def _grow(self, request: Request) -> bool:
        """Make room for a decode's token, at the expense of later requests; False if it had to give way itself."""
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
