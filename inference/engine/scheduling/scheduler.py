"""The scheduler: which requests take part in the next step, and with how many tokens. It knows no tensors."""

from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from ...config import MAX_DRAFT_TOKENS
from ..drafting.policy import DraftPolicy
from ..drafting.speculation import Speculation
from ..request import CachePlace, Request
from .batch import Batch
from .pace import Pace
from .pages import PagePool

_ARRIVAL = attrgetter("id")
_MOST_AHEAD = 4  # sequences that a rank may run more than another one and still be chosen for a prefix in its caches


class Scheduler:
    """Continuous batching with chunked prefill over a page pool.

    Every running answer gets its decode in each step. The rest of the token budget goes to prompts, in the order of `in_turn`
    and for as long as `pace` allows: a waiting request is admitted when its turn comes. Admission takes pages for all tokens that
    a request has, so only decodes can run out of pages. Then the running request that arrived last is preempted: it gives all its
    pages back and waits again; its tokens, also the generated ones, count as its prompt (preemption by recomputation).

    A request that passes older ones leaves the oldest waiting one the pages and the place that it needs, and is preempted if it
    has outgrown that when the older one's patience ends. No request is preempted for a younger one.

    With several pools, one for each rank that holds sequences of its own, a request stays on one rank from its admission on: the
    rank with the longest prefix in its caches, unless that rank runs more sequences than others. A step's budget is divided evenly
    among the ranks, which wait for each other.

    Queues and requests change only after everything that can fail, so that `recover` finds in them which pages each request holds.
    """

    def __init__(
        self,
        pool: PagePool,
        max_batch_tokens: int,
        max_sequences: int,
        drafting: DraftPolicy | None = None,
        pace: Pace | None = None,
        more_pools: Sequence[PagePool] = (),
    ) -> None:
        """more_pools: of the other ranks, if each holds sequences of its own."""
        self.pool, self.pools = pool, (pool, *more_pools)
        self.pace = pace or Pace()
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = min(max_sequences, max_batch_tokens)  # every running request can decode in each step
        self._rank_tokens = -(-max_batch_tokens // len(self.pools))  # of a step, and the most sequences of a rank
        self.speculation = Speculation(drafting)
        self.waiting: deque[Request] = deque()  # this and the next in the order of arrival
        self.running: list[Request] = []
        self.preemptions = 0  # this and the next two count since the start
        self.prompt_tokens = 0  # of admitted requests
        self.cached_tokens = 0  # prompt tokens that were found in reused pages

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request. RequestMaker has checked that its prompt and max_tokens fit the pool."""
        request.queue.reusable = self._find_reusable(request)
        insort(self.waiting, request, key=_ARRIVAL)

    def schedule(self) -> Batch:
        """Choose the next step's work and take the pages that it needs. The batch is empty only if there is no work."""
        self._make_place()
        decodes = self._take_decodes()
        entries = [(request, 1) for request in decodes]
        budget = self.max_batch_tokens - len(entries)
        reserved = self.speculation.reserve(decodes, budget)
        budget -= reserved
        allowed, spent = self.pace.begin(answers=bool(entries)), 0.0
        of_ranks = [self._rank_tokens] * len(self.pools)  # tokens that each may still compute
        for request in decodes:
            of_ranks[request.cache.rank] -= 1
        started = [request for request in self.running if request.remaining > 1]
        waiting, refused = list(self.waiting), False
        for request in in_turn(started, waiting):
            if budget <= 0 or spent >= allowed:
                break
            if not request.cache.pages:
                # Requests that come after a refused one are longer: only the oldest, for which pages are kept, may still fit.
                if refused and request is not waiting[0]:
                    continue
                refused = not self._admit(request)
                if refused:
                    continue
            rank, most = request.cache.rank, self.pace.tokens(request.cache.computed, allowed - spent)
            count = min(request.remaining, budget, of_ranks[rank], most)
            if not count:
                continue
            entries.append((request, count))
            budget -= count
            of_ranks[rank] -= count
            spent += self.pace.seconds(request.cache.computed, count)
            if count == request.remaining:
                allowed = self.pace.begin_answer()
        count_skipped(started, waiting, {request for request, _ in entries})
        assert entries or not self.has_work, "the scheduler is stuck"
        batch = Batch.of(entries)
        most = MAX_DRAFT_TOKENS if batch.decodes == len(entries) else self.pace.most_drafts
        return self.speculation.plan(batch, budget + reserved, self.pool, not self.waiting, most)

    def schedule_ahead(self, batch: Batch, is_quick: Callable[[Batch], bool] = lambda batch: True) -> Batch | None:
        """The step after `batch`, which is in flight and whose tokens are not known yet: one decode of every running request.

        None if the next step is of another kind, if pages lack, or unless it `is_quick`: `schedule` makes it later. A request that
        then turns out to have ended takes part in one step too many, whose result is ignored.
        """
        if batch.draft_counts or batch.draft_tokens or (self.waiting and len(self.running) < self.max_sequences):
            return None
        ahead = next_decodes(batch, self.running, self.pools)
        return None if ahead is None or not is_quick(ahead) else self.speculation.plan_ahead(ahead, batch)

    def start(self, batch: Batch) -> None:
        """Call when the step is launched: later steps find its tokens in the cache. Of its drafts that is not known yet."""
        drafts = batch.draft_counts or (0,) * len(batch.requests)
        for request, count, logit_count, draft_count in zip(
            batch.requests, batch.counts, batch.logit_counts, drafts, strict=True
        ):
            request.cache.computed += count - draft_count
            request.cache.pending += min(logit_count, 1)

    def commit(self, batch: Batch, drafted: bool = False, accepted: Sequence[int] = ()) -> None:
        """Call when the step's tokens are in their requests: offers the pages that it has filled. See Speculation.commit."""
        self.pace.end(zip(batch.starts[batch.decodes :], batch.counts[batch.decodes :], strict=True))
        self.speculation.commit(batch, drafted, accepted)
        drafts = batch.draft_counts or (0,) * len(batch.requests)
        for request, start, count, logit_count, draft_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, drafts, strict=True
        ):
            request.cache.pending -= min(logit_count, 1)
            if request.cache.pages:  # the request has not ended meanwhile
                self._register(request, request.cache.computed if draft_count else start + count)

    def remove(self, request: Request, discard: bool = False) -> None:
        """Take a finished or cancelled request out and free its pages. discard: their contents may be wrong and are not reused."""
        for queue in (self.running, self.waiting):
            if request in queue:
                if discard:
                    self._pool_of(request).discard(request.cache.pages)
                self._release(request)
                queue.remove(request)

    def recover(self, requests: Iterable[Request]) -> None:
        """Make queues and pool consistent after a fault in any method, when no step is in flight.

        `requests`: all that have not ended. Running ones keep their pages; no page is reusable.
        """
        running = {request for request in self.running if request.cache.pages}
        requests = list(requests)
        self.running = [request for request in self.running if request in running and request in requests]
        self.waiting = deque(sorted((request for request in requests if request not in running), key=_ARRIVAL))
        for request in self.running:
            cache = request.cache
            cache.pending = cache.cached_pages = cache.prefix_id = 0
            cache.computed = min(cache.computed, len(request.tokens) - 1)
            cache.drafted = min(cache.drafted, cache.computed)
        for request in self.waiting:
            request.cache = CachePlace(admission=request.cache.admission)
        self.speculation.made.clear()
        for rank, pool in enumerate(self.pools):
            pool.rebuild(request.cache.pages for request in self.running if request.cache.rank == rank)

    def preempt_latest(self, rank: int | None = None) -> Request:
        """Move the running request that arrived last, of this rank's if given, back to the waiting ones.

        Its pages are free or cached now.
        """
        request = next(each for each in reversed(self.running) if rank in (None, each.cache.rank))
        assert not request.cache.pending, "a step that samples a token for it is in flight"
        reusable = self._find_reusable(request)
        self._release(request)
        self.running.remove(request)
        request.queue.reusable = reusable
        insort(self.waiting, request, key=_ARRIVAL)
        self.preemptions += 1
        return request

    def take_pages(self, count: int) -> list[int]:
        """Take pages of rank 0 for work outside of the queues, from the latest requests if needed. It must have that many."""
        while self.pool.available < count:
            self.preempt_latest(0)
        return self.pool.allocate(count)

    def _take_decodes(self) -> list[Request]:
        """The running answers that decode in the next step, each with a page for its token."""
        answers = [request for request in self.running if request.remaining == 1]
        # One without pages was preempted for an older one just now.
        return [request for request in answers if request.cache.pages and self._grow(request)]

    def _register(self, request: Request, written: int) -> None:
        """Make the pages reusable that the request's first `written` tokens fill."""
        cache, size = request.cache, self.pool.page_size
        full = written // size
        if request.policy is not None:  # entries that were computed under another selection are no one else's
            full = min(full, max(request.shareable // size, cache.cached_pages))
        for page in range(cache.cached_pages, full):
            last = (page + 1) * size
            # What the draft layer has in a page depends on the token after it.
            tokens = request.tokens[page * size : last + (cache.drafted >= last)]
            cache.prefix_id = self._pool_of(request).register(cache.pages[page], cache.prefix_id, tokens)
        cache.cached_pages = full

    def _make_place(self) -> None:
        """Preempt younger requests if the oldest waiting one is out of patience and lacks pages or a place."""
        oldest = self.waiting[0] if self.waiting else None
        while oldest and oldest.queue.skipped >= PATIENCE and self.running and self.running[-1].id > oldest.id:
            needed = self.pool.pages_for(len(oldest.tokens))
            if len(self.running) == self.max_sequences:
                self.preempt_latest()
            elif needed <= max(pool.available for pool in self.pools):
                return
            else:
                self.preempt_latest(self._rank_to_clear(oldest, needed))

    def _rank_to_clear(self, oldest: Request, needed: int) -> int | None:
        """Return the rank that lacks the fewest pages, of those where requests younger than `oldest` hold enough; or None."""
        younger = Counter[int]()
        for request in self.running:
            if request.id > oldest.id:
                younger[request.cache.rank] += len(request.cache.pages)
        enough = [rank for rank in younger if self.pools[rank].available + younger[rank] >= needed]
        return max(enough, key=lambda rank: self.pools[rank].available, default=None)

    def _admit(self, request: Request) -> bool:
        """Move a waiting request to the running ones, with pages for all its tokens. False if it or the oldest lacks something."""
        oldest = self.waiting[0]
        kept_places, kept_pages = (0, 0) if request is oldest else (1, self.pool.pages_for(len(oldest.tokens)))
        if len(self.running) + kept_places >= self.max_sequences:
            return False
        for rank in self._preferred_ranks(request):
            pool = self.pools[rank]
            pages, prefix_id, drafted = pool.match(request.tokens, self._most_reusable(request))
            missing = pool.pages_for(len(request.tokens)) - len(pages)
            kept_here = all(each.available < kept_pages for each in self.pools if each is not pool)
            if missing + kept_pages * kept_here <= pool.available:
                break
            pool.release(pages)
        else:
            return False
        size = pool.page_size
        request.cache = cache = CachePlace(
            pages=pages + pool.allocate(missing),
            rank=rank,
            admission=request.cache.admission + 1,
            computed=len(pages) * size,
            drafted=drafted * size,
            cached_pages=len(pages),
            prefix_id=prefix_id,
        )
        request.queue.reusable = 0
        if request.queue.cached_tokens is None:
            request.queue.cached_tokens = cache.computed
            self.prompt_tokens += len(request.prompt)
            self.cached_tokens += cache.computed
        insort(self.running, request, key=_ARRIVAL)
        self.waiting.remove(request)
        return True

    def _preferred_ranks(self, request: Request) -> Sequence[int]:
        """The ranks that may run one more, in the order in which the request should be admitted to one."""
        if len(self.pools) == 1:
            return (0,)
        running, reusable = Counter(each.cache.rank for each in self.running), self._reusable_pages(request)
        ranks = [rank for rank in range(len(self.pools)) if running[rank] < self._rank_tokens]
        most = min((running[rank] for rank in ranks), default=0) + _MOST_AHEAD

        def key(rank: int) -> tuple[int, ...]:
            return running[rank] > most, -reusable[rank], running[rank], -self.pools[rank].available

        return sorted(ranks, key=key)

    def _find_reusable(self, request: Request) -> int:
        return max(self._reusable_pages(request)) * self.pool.page_size

    def _reusable_pages(self, request: Request) -> list[int]:
        """Count the pages of each rank's caches that the request could reuse."""
        most = self._most_reusable(request)
        return [len(pool.find(request.tokens, most)[0]) for pool in self.pools]

    def _most_reusable(self, request: Request) -> int:
        """Return how many of its tokens may come from reused pages. The last one is always computed: its logits are needed."""
        return min(len(request.tokens) - 1, request.shareable)

    def _grow(self, request: Request) -> bool:
        """Take a page for a decode's token if it needs one; preempts later requests. False if the request itself was preempted."""
        pool = self._pool_of(request)
        if pool.pages_for(len(request.tokens)) > len(request.cache.pages):
            while not pool.available:
                if self.preempt_latest(request.cache.rank) is request:
                    return False
            request.cache.pages += pool.allocate(1)
        return True

    def _release(self, request: Request) -> None:
        cache = request.cache
        self._pool_of(request).release(cache.pages)
        request.cache = CachePlace(admission=cache.admission, pending=cache.pending)
        request.queue.skipped = 0

    def _pool_of(self, request: Request) -> PagePool:
        return self.pools[request.cache.rank]


# Steps in a row that go to others before a prompt goes first. Among a crowd of short prompts, a long one gets a fifth of the steps.
PATIENCE = 4


def in_turn(started: Sequence[Request], waiting: Iterable[Request]) -> list[Request]:
    """The prompts of running requests (`started`) and of waiting ones, the first to be computed first.

    The shortest remainder goes first, which lets a question pass a long prompt and gives equal prompts their order of arrival. A
    waiting prompt passes a started one only if it is at most half as long, so that few long prompts are in progress at a time.

    The started prompts and the oldest one age: one that got nothing in PATIENCE steps goes first, and among several the one
    that has waited longest. So each of n started prompts advances within PATIENCE + n steps.
    """
    prompts = [*started, *waiting]
    oldest = min((request.id for request in prompts), default=0)

    def key(request: Request) -> tuple[float, ...]:
        if request.queue.skipped >= PATIENCE:
            return 0, -request.queue.skipped, request.id
        if request.cache.pages or request.id == oldest:
            return 1, request.remaining - request.queue.reusable, request.id
        return 1, 2 * (request.remaining - request.queue.reusable), request.id

    return sorted(prompts, key=key)


def count_skipped(started: Sequence[Request], waiting: Sequence[Request], advanced: set[Request]) -> None:
    """Call after a step is scheduled: counts a step of waiting for each ageing prompt that got nothing in it."""
    oldest = min((request.id for request in (*started, *waiting)), default=0)
    for request in (*started, *waiting):
        ages = bool(request.cache.pages) or request.id == oldest
        request.queue.skipped = request.queue.skipped + 1 if ages and request not in advanced else 0


def next_decodes(batch: Batch, running: Sequence[Request], pools: Sequence[PagePool]) -> Batch | None:
    """One decode of every running request after `batch`, with the pages that it needs; None, and nothing taken, if one cannot."""
    continuing, growing = list[Request](), list[Request]()
    for each in running:
        if each.policy is not None:  # it runs without a graph, and needs tokens on the host
            return None
        tokens = len(each.tokens) + each.cache.pending
        if tokens - len(each.prompt) >= each.max_tokens:
            continue
        if tokens - each.cache.computed != 1 or not each.cache.pending:
            return None
        continuing.append(each)
        if pools[0].pages_for(tokens) > len(each.cache.pages):
            growing.append(each)
    needed = Counter(each.cache.rank for each in growing)
    if not continuing or any(count > pools[rank].available for rank, count in needed.items()):
        return None
    for request in growing:
        request.cache.pages += pools[request.cache.rank].allocate(1)
    rows = {request: row for row, request in enumerate(batch.sampling)}
    starts, ones = tuple([each.cache.computed for each in continuing]), (1,) * len(continuing)
    sampled_rows = tuple([rows[each] for each in continuing])
    return Batch(tuple(continuing), starts, ones, len(ones), ones, sampled_rows)
