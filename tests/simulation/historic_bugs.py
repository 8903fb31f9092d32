"""Bugs that other engines had, each seeded again in ours by a wrong method.

The threads are of vLLM, SGLang, LMCache and llama.cpp; each docstring says what its thread reports. Where our engine lacks the
feature (adapters, offloading to a host, prefill on another server), `instead` says what stands for it here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from deepseek_v32.inference.distributed.batch_sync import BatchEncoder
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.sampling import sampler
from deepseek_v32.inference.engine.sampling.filters import Row
from deepseek_v32.inference.engine.scheduling import scheduler
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.scheduling.pages import ROOT, PagePool
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler
from deepseek_v32.inference.engine.step import InFlightStep
from simulation.bug import Bug, bug

VLLM, SGLANG, LMCACHE, LLAMA = "vllm-project/vllm#", "sgl-project/sglang#", "LMCache/LMCache#", "ggml-org/llama.cpp#"


# Pages and the reuse of prefixes.


@bug(VLLM + "4764", PagePool, "_evict")
def evicted_is_found(right: Any) -> Any:
    """A block that the evictor gives away can still be found as a cached one."""
    return lambda pool: pool._cached.popitem(last=False)[0]


@bug(VLLM + "37076", PagePool, "match")
def matched_is_evicted(right: Any) -> Any:
    """Under eviction pressure a request reads a block that a concurrent one fills."""

    def match(pool: PagePool, *arguments: Any) -> Any:
        cached = pool._cached.copy()
        found = right(pool, *arguments)
        pool._cached = cached
        return found

    return match


@bug(VLLM + "38606", PagePool, "match", instead="two requests with the same prefix, for two adapters")
def shared_is_freed(right: Any) -> Any:
    """A block with two owners is freed when one of them is done."""

    def match(pool: PagePool, *arguments: Any) -> Any:
        found = right(pool, *arguments)
        for page in found[0]:
            pool._references[page] = 1
        return found

    return match


@bug(VLLM + "39146", PagePool, "allocate")
def allocated_stays_free(right: Any) -> Any:
    """Blocks are corrupted although no prefix is reused."""

    def allocate(pool: PagePool, count: int) -> list[int]:
        pages: list[int] = right(pool, count)
        if pages and pool.free == 1:
            pool._free.append(pages[-1])
        return pages

    return allocate


@bug(SGLANG + "22819", Scheduler, "_most_reusable")
def whole_prompt_is_reused(right: Any) -> Any:
    """A prompt that ends where a cached block ends gets other tokens."""
    return lambda scheduler, request: min(len(request.tokens), request.shareable)


@bug(SGLANG + "23392", PagePool, "release")
def released_for_both(right: Any) -> Any:
    """After cancellations, shared blocks are released while unrelated requests read them."""

    def release(pool: PagePool, pages: Sequence[int]) -> None:
        for page in pages:
            if pool._references[page] == 2:
                pool._references[page] = 1
        right(pool, pages)

    return release


@bug(SGLANG + "24193", Scheduler, "_admit")
def boundary_is_stale(right: Any) -> Any:
    """A request that finds a longer prefix keeps the boundary of the shorter one."""

    def admit(scheduler: Scheduler, request: Request) -> bool:
        admitted: bool = right(scheduler, request)
        request.cache.prefix_id = ROOT
        return admitted

    return admit


@bug(SGLANG + "38355", PagePool, "release")
def freed_stays_in_tree(right: Any) -> Any:
    """Pages inserted in the middle of a prompt are freed by an abort and stay in the tree."""

    def release(pool: PagePool, pages: Sequence[int]) -> None:
        right(pool, pages)
        for page in reversed(pages):
            if page in pool._cached:
                del pool._cached[page]
                pool._free.append(page)

    return release


@bug(SGLANG + "38140", PagePool, "register")
def same_tokens_are_replaced(right: Any) -> Any:
    """Two pages with the same tokens: the mapping of the first is replaced by the second."""

    def register(pool: PagePool, page: int, prefix_id: int, tokens: Sequence[int]) -> Any:
        pool._entries.pop((prefix_id, tuple(tokens)), None)
        return right(pool, page, prefix_id, tokens)

    return register


@bug(LLAMA + "27148", PagePool, "register")
def prefix_ids_are_used_again(right: Any) -> Any:
    """The cache of a finished, unrelated conversation is taken for this one's."""

    def register(pool: PagePool, *arguments: Any) -> Any:
        pool._last_prefix_id = len(pool._entries)
        return right(pool, *arguments)

    return register


@bug(LLAMA + "12161", PagePool, "_entry")
def prefix_is_ignored(right: Any) -> Any:
    """Equal tokens are reused at a position at which they were not computed."""
    return lambda pool, prefix_id, tokens, end: right(pool, ROOT, tokens, end)


@bug(
    LMCACHE + "4991", Scheduler, "remove", instead="pages of a request whose step failed, for a failed write to a disk"
)
def failed_is_found(right: Any) -> Any:
    """The data of a failed request can be found and is served to later requests."""
    return lambda scheduler, request, discard=False: right(scheduler, request)


@bug(LMCACHE + "5002", PagePool, "__init__", instead="pages, for layers")
def one_page_too_many(right: Any) -> Any:
    """The number of caches is not the number that the allocator was told."""
    return lambda pool, page_count, *rest, **options: right(pool, page_count + 1, *rest, **options)


@bug(
    LMCACHE + "5010",
    Scheduler,
    "_admit",
    instead="pages that were never computed, for latents restored without index keys",
)
def uncomputed_counts_as_cached(right: Any) -> Any:
    """Tokens count as cached although their index keys were never written."""

    def admit(scheduler: Scheduler, request: Request) -> bool:
        admitted: bool = right(scheduler, request)
        if admitted and len(request.cache.pages) - request.cache.cached_pages > 1:
            request.cache.computed += scheduler.pool.page_size
        return admitted

    return admit


@bug(SGLANG + "30057", PagePool, "find", instead="pages that were evicted, for index pages that were not fetched")
def missing_pages_are_skipped(right: Any) -> Any:
    """A prefix is restored although some of its pages are missing."""

    def find(pool: PagePool, tokens: Sequence[int], most: int | None = None) -> tuple[list[int], int, int]:
        pages, prefix_id, drafted, whole = [], ROOT, 0, tuple(tokens)
        for end in range(pool.page_size, (len(whole) if most is None else most) + 1, pool.page_size):
            entry, has_drafts = pool._entry(prefix_id, whole, end)
            if entry is not None:
                page, prefix_id = entry
                pages.append(page)
                drafted += has_drafts
        return pages, prefix_id, drafted

    return find


@bug(SGLANG + "22811", Scheduler, "_register", instead="chunks still to be computed, for a copy from the host")
def offered_before_computed(right: Any) -> Any:
    """Index keys are read before they have arrived from the host, in a few of ten thousand answers."""
    return lambda scheduler, request, written: right(scheduler, request, len(request.tokens))


# Scheduling and preemption.


@bug(VLLM + "15996", Scheduler, "_admit")
def last_page_is_never_given(right: Any) -> Any:
    """With the cache nearly full, requests stay pending and nothing is scheduled."""

    def admit(scheduler: Scheduler, request: Request) -> bool:
        with patch.object(PagePool, "available", property(lambda pool: pool.free + pool.cached - 1)):
            admitted: bool = right(scheduler, request)
        return admitted

    return admit


@bug(VLLM + "10013", Scheduler, "preempt_latest")
def preempted_keeps_pages(right: Any) -> Any:
    """A preempted request's blocks are not freed."""

    def preempt(scheduler: Scheduler) -> Any:
        with patch.object(scheduler, "_release", lambda request: None):
            return right(scheduler)

    return preempt


@bug(VLLM + "16832", Scheduler, "preempt_latest")
def preempted_loses_output(right: Any) -> Any:
    """The output of a preempted request is not complete."""

    def preempt(scheduler: Scheduler) -> Request:
        request: Request = right(scheduler)
        request.tokens = list(request.prompt)
        return request

    return preempt


@bug(SGLANG + "14972", Scheduler, "_take_decodes")
def preempted_decodes(right: Any) -> Any:
    """A request that was just retracted is given a slot in the same step."""

    def take_decodes(scheduler: Scheduler) -> list[Request]:
        answers = [request for request in scheduler.running if request.remaining == 1]
        return [request for request in answers if scheduler._grow(request)]

    return take_decodes


@bug(SGLANG + "12224", PagePool, "release")
def freed_twice(right: Any) -> Any:
    """The slot of the last step is freed on two paths."""
    return lambda pool, pages: right(pool, [*pages, *pages[:1]])


@bug(LMCACHE + "4955", Scheduler, "_release", instead="pages kept for reuse, for a copy on the host")
def released_pages_are_kept(right: Any) -> Any:
    """Blocks that were released and reused are stored under the tokens of their former owner."""

    def release(scheduler: Scheduler, request: Request) -> None:
        pages = request.cache.pages
        right(scheduler, request)
        request.cache.pages = pages

    return release


@bug(VLLM + "36580", Batch, "of")
def chunks_start_at_zero(right: Any) -> Any:
    """The later chunks of a prompt go to the wrong slots."""

    def of(entries: list[tuple[Request, int]]) -> Batch:
        batch = right(entries)
        starts = tuple(request.cache.computed if request.cache.cached_pages else 0 for request in batch.requests)
        return replace(batch, starts=starts)

    return of


@bug(VLLM + "19940", sampler, "noise_key")
def noise_starts_anew(right: Any) -> Any:
    """After a preemption a seeded request starts its random numbers anew."""

    def noise_key(row: Row) -> tuple[int, int]:
        seed, place = right(row)
        return seed, place - (row.request.output_count if row.request.cache.admission > 1 else 0)

    return noise_key


# Steps ahead.


@bug(VLLM + "48245", Engine, "drain")
def preempted_in_flight(right: Any) -> Any:
    """A request is preempted while a step that samples for it is in flight."""
    return lambda engine: None


@bug(VLLM + "57562", Scheduler, "start")
def chunks_count_as_sampling(right: Any) -> Any:
    """The chunks of a prompt count as steps that sample a token."""

    def start(scheduler: Scheduler, batch: Batch) -> None:
        right(scheduler, batch)
        for request, logit_count in zip(batch.requests, batch.logit_counts, strict=True):
            request.cache.pending += not logit_count

    return start


@bug(VLLM + "38624", Engine, "_postprocess")
def following_is_forgotten(right: Any) -> Any:
    """A step in flight is forgotten, its tokens are neither used nor given back."""

    def postprocess(engine: Engine, step: InFlightStep) -> None:
        right(engine, step)
        engine._in_flight = None

    return postprocess


@bug(VLLM + "46899", InFlightStep, "sample", instead="tokens that an earlier step has staged, for draft tokens")
def staged_is_stale(right: Any) -> Any:
    """Placeholders of an earlier step become input tokens."""

    def sample(step: InFlightStep) -> None:
        if not step.batch.sampled_rows or step._step is None:
            return right(step)
        with patch.object(step._step.runner, "stage_tokens", lambda tokens: None):
            right(step)

    return sample


@bug(VLLM + "13673", scheduler, "next_decodes", instead="the token of a step ahead, for draft tokens")
def no_page_ahead(right: Any) -> Any:
    """No block is allocated for the tokens ahead."""

    def next_decodes(batch: Batch, running: Sequence[Request], pools: Sequence[PagePool]) -> Any:
        with patch.object(pools[0], "pages_for", lambda tokens: PagePool.pages_for(pools[0], tokens - 1)):
            return right(batch, running, pools)

    return next_decodes


@bug(SGLANG + "24590", Scheduler, "_register")
def in_flight_is_committed(right: Any) -> Any:
    """The token that a step in flight writes counts as committed."""
    return lambda scheduler, request, written: right(scheduler, request, request.cache.computed)


@bug(SGLANG + "18803", scheduler, "next_decodes")
def rows_of_others_are_read(right: Any) -> Any:
    """When a request ends, the step in flight reads the row that another one has now."""

    def next_decodes(*arguments: Any) -> Batch | None:
        ahead = right(*arguments)
        return ahead and replace(ahead, sampled_rows=tuple(range(len(ahead.requests))))

    return next_decodes


# Cancellation, several ranks, and altered selections.


@bug(SGLANG + "27372", Engine, "abort", instead="a step of this engine, for another server's prefill")
def aborted_in_a_step(right: Any) -> Any:
    """An abort frees pages that a forward pass is still writing."""

    def abort(engine: Engine, request_id: int) -> None:
        if request_id in engine._states:
            engine._end(engine._states[request_id], "abort")

    return abort


@bug(LLAMA + "23970", BatchEncoder, "encode")
def earlier_admission_is_restored(right: Any) -> Any:
    """The state of an earlier run is restored in a later one."""

    def encode(encoder: BatchEncoder, batch: Batch) -> Any:
        for request in batch.requests:
            if request.id in encoder._sent:
                encoder._sent[request.id] = request.cache.admission, encoder._sent[request.id][1]
        return right(encoder, batch)

    return encode


BUGS = tuple(each for each in vars().values() if isinstance(each, Bug))


# Not historic: ways in which a SelectionPolicy could leak.


@bug("offered", Scheduler, "_register")
def altered_is_offered(right: Any) -> Any:
    """Pages computed under a policy are offered to other requests."""

    def register(scheduler: Scheduler, request: Request, written: int) -> None:
        with patch.object(request, "policy", None):
            right(scheduler, request, written)

    return register


@bug("reused", Scheduler, "_most_reusable")
def altered_finds_others(right: Any) -> Any:
    """A request with a policy reuses pages that were computed without it."""
    return lambda scheduler, request: len(request.tokens) - 1


@bug("not-sent", BatchEncoder, "encode")
def policy_is_not_sent(right: Any) -> Any:
    """Other ranks do not know of a policy."""

    return lambda encoder, batch: (right(encoder, batch)[0], {})


POLICY_BUGS = (altered_is_offered, altered_finds_others, policy_is_not_sent)
