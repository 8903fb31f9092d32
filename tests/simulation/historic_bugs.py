"""Bugs that other engines had, each re-seeded in ours: one snippet of one function, replaced.

The threads are of vLLM, SGLang, LMCache and llama.cpp; `what` is what each reports. Where our engine lacks the feature (adapters,
offloading to a host, speculation, prefill on another server), `instead` says what the nearest thing to it here is.
"""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from deepseek_v32.inference.distributed.batch_sync import BatchEncoder
from deepseek_v32.inference.engine import step
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.running import scoring
from deepseek_v32.inference.engine.sampling import sampler
from deepseek_v32.inference.engine.scheduling import scheduler, step_ahead
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler
from deepseek_v32.inference.engine.step import InFlightStep


class Bug(NamedTuple):
    thread: str  # repository#number
    title: str
    what: str
    place: tuple[Any, str]  # a class or module of the product, and a function in it
    old: str
    new: str
    instead: str = ""  # if we lack the feature

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """The product has the bug inside this context."""
        owner, name = self.place
        whole = inspect.getattr_static(owner, name)
        function = inspect.unwrap(getattr(owner, name))
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.thread}: {self.old!r} is {source.count(self.old)} times in {name}"
        module = inspect.getmodule(function)
        made: dict[str, Any] = {}
        exec(source.replace(self.old, self.new), vars(module), made)
        setattr(owner, name, made[name])
        users = [each for each in USERS if vars(each).get(name) is whole]
        for user in users:  # modules that have imported the function by name
            setattr(user, name, made[name])
        try:
            yield
        finally:
            for each in (owner, *users):
                setattr(each, name, whole)


# Modules that import functions of `place` by name.
USERS = (step, sampler, scheduler)
VLLM, SGLANG, LMCACHE, LLAMA = "vllm-project/vllm#", "sgl-project/sglang#", "LMCache/LMCache#", "ggml-org/llama.cpp#"

BUGS = (
    # Pages and the reuse of prefixes.
    Bug(
        VLLM + "4764",
        "[Core][Bugfix]: fix prefix caching for blockv2",
        "a block that the evictor gives away can still be found as a cached one",
        (PagePool, "allocate"),
        "self._forget_key(page)",
        "pass",
    ),
    Bug(
        VLLM + "37076",
        "[Bug]: Potential use-after-free in KV block allocator under eviction pressure",
        "under eviction pressure a request reads a block that a concurrent one fills",
        (PagePool, "match"),
        "del self._cached[page]",
        "pass",
    ),
    Bug(
        VLLM + "38606",
        "[Bug]: KV block corruption under rapid LoRA adapter alternation",
        "a block with two owners is freed when one of them is done",
        (PagePool, "match"),
        "self._references[page] += 1",
        "self._references[page] = 1",
        instead="two requests with the same prefix in place of two adapters",
    ),
    Bug(
        VLLM + "39146",
        "[Bug]: KV block corruption in base scheduler, Non-deterministic output at temperature=0 without prefix caching",
        "blocks are corrupted although no prefix is reused",
        (PagePool, "allocate"),
        "page = self._free.pop()",
        "page = self._free.pop() if len(self._free) != 2 else self._free[-1]",
    ),
    Bug(
        SGLANG + "22819",
        "[Bug] KV cache corruption at radix cache block boundary with `--enable-deterministic-inference` "
        "(prefix_len == block_size)",
        "a prompt that ends where a cached block ends gets other tokens",
        (Scheduler, "_admit"),
        "reusable = min(len(request.tokens) - 1, request.shareable)",
        "reusable = min(len(request.tokens), request.shareable)",
    ),
    Bug(
        SGLANG + "23392",
        "[Bug] shared-prefix load corrupts unrelated requests in SGLang speculative decoding",
        "after cancellations, shared blocks are released while unrelated requests read them",
        (PagePool, "release"),
        "if self._references[page] == 0:",
        "if self._references[page] <= 1:",
    ),
    Bug(
        SGLANG + "24193",
        "Fix stale cache protected length on waiting rematch",
        "a request that finds a longer prefix keeps the boundary of the shorter one",
        (Scheduler, "_admit"),
        "request.cached_pages, request.prefix_id = len(pages), prefix_id",
        "request.cached_pages = len(pages)",
    ),
    Bug(
        SGLANG + "38355",
        "fix(mem_cache): eliminate chunked-prefill radix-insert race corrupting QSA KV pages (#38319)",
        "pages inserted in the middle of a prompt are freed by an abort and stay in the tree",
        (PagePool, "release"),
        "if self._keys[page] is None:",
        "if True:",
    ),
    Bug(
        SGLANG + "38140",
        "Insert launched extend batches into the radix cache before the next batch under overlap",
        "two pages with the same tokens: the mapping of the first is replaced by the second",
        (PagePool, "register"),
        "if entry is not None:",
        "if False:",
    ),
    Bug(
        LLAMA + "27148",
        "server: RAM-backed prompt cache (--cache-ram/--cache-idle-slots) restores content from an unrelated conversation into a "
        "fresh slot under concurrent load",
        "the cache of a finished, unrelated conversation is taken for this one's",
        (PagePool, "register"),
        "self._last_prefix_id += 1",
        "self._last_prefix_id = len(self._entries) + 1",
    ),
    Bug(
        LLAMA + "12161",
        "Server: Cache position calculation error(#12160)",
        "equal tokens are reused at a position at which they were not computed",
        (PagePool, "find"),
        "(prefix_id, own)",
        "(ROOT, own)",
    ),
    Bug(
        LMCACHE + "4991",
        "[L2][fs_native] Failed stores stay visible to lookups — later retrieves serve corrupted KV (gibberish output)",
        "what a failure has left behind can be found and is served to later requests",
        (Engine, "_remove"),
        'discard=state.finish_reason == "error"',
        "discard=False",
        instead="the pages of a request whose step failed, in place of a failed write to a disk",
    ),
    Bug(
        LMCACHE + "5002",
        "VLLMPagedMemGPUConnectorV2 crashes at init on DeepSeek-V3.2 / DSA models (indexer caches not counted in num_layers)",
        "the number of caches is not the number that the allocator was told",
        (Engine, "__init__"),
        "PagePool(limits.page_count,",
        "PagePool(limits.page_count + 1,",
        instead="pages, in place of layers",
    ),
    Bug(
        LMCACHE + "5010",
        "[Bugfix][vLLM] DSA indexer caches: fail fast in-process, validate and document LMCacheMPConnector for GLM-5.3",
        "tokens count as cached although their index keys were never written",
        (Scheduler, "_admit"),
        "= len(pages) * self.pool.page_size,",
        "= (len(pages) + (missing > 1)) * self.pool.page_size,",
        instead="pages that were never computed, in place of latents restored without index keys",
    ),
    Bug(
        SGLANG + "30057",
        "[Bug] HiCache L3 partial prefetch can restore DSA/NSA KV pages without matching INDEXER sidecar pages",
        "a prefix is restored although some of its pages are missing",
        (PagePool, "find"),
        "break",
        "continue",
        instead="pages that were evicted, in place of index pages that were not fetched",
    ),
    Bug(
        SGLANG + "22811",
        "Fix for the low-probability garbled output issue in the GLM-5 series models.",
        "index keys are read before they have arrived from the host, in a few of ten thousand answers",
        (Scheduler, "commit"),
        "full = (request.computed if draft_count else start + count) // size",
        "full = len(request.tokens) // size",
        instead="chunks of a prompt that are still to be computed, in place of a copy from the host",
    ),
    # Scheduling and preemption.
    Bug(
        VLLM + "15996",
        "[Bug]: System gets stuck during pressure test",
        "with the cache nearly full, requests stay pending and nothing is scheduled",
        (Scheduler, "_admit"),
        "missing + kept_pages > self.pool.available",
        "missing + kept_pages >= self.pool.available",
    ),
    Bug(
        VLLM + "10013",
        "[Bugfix] Free cross attention block table for preempted-for-recompute sequence group.",
        "a preempted request's blocks are not freed",
        (Scheduler, "preempt_latest"),
        "self._release(request)",
        "pass",
    ),
    Bug(
        VLLM + "16832",
        "[Bug]: PreemptionMode.RECOMPUTE is incorrect",
        "the output of a preempted request is not complete",
        (Scheduler, "preempt_latest"),
        "insort(self.waiting, request, key=_ARRIVAL)",
        "request.tokens = list(request.prompt); insort(self.waiting, request, key=_ARRIVAL)",
    ),
    Bug(
        SGLANG + "14972",
        "[Bug] Overlap schedule + retract cause alloc fail",
        "a request that was just retracted is given a slot in the same step",
        (Scheduler, "schedule"),
        "if request.pages and self._grow(request):",
        "if self._grow(request):",
    ),
    Bug(
        SGLANG + "12224",
        "Unify memory management across `(overlap, non-overlap) x (page>=1) x (spec, non-spec, spec v2) x (retract, finished)`",
        "the slot of the last step is freed on two paths",
        (PagePool, "release"),
        "in reversed(pages):",
        "in (*reversed(pages), *pages[:1]):",
    ),
    Bug(
        LMCACHE + "4955",
        "fix(mp): preserve and reload KV across preemption",
        "blocks that were released and reused are stored under the tokens of their former owner",
        (Scheduler, "_release"),
        "request.pages = []",
        "pass",
        instead="pages kept for reuse, in place of a copy on the host",
    ),
    Bug(
        VLLM + "36580",
        "[Model Runner V2] Fix `_compute_slot_mappings_kernel` for chunked prefill",
        "the later chunks of a prompt go to the wrong slots",
        (Batch, "of"),
        "starts=tuple(request.computed for",
        "starts=tuple(request.cached_pages and request.computed for",
    ),
    Bug(
        VLLM + "19940",
        "[Bugfix] fix sampling seeding being off when sequences are prempted",
        "after a preemption a seeded request starts its random numbers anew",
        (sampler, "noise_key"),
        "request.output_count + max(",
        "request.output_count * (request.admission == 1) + max(",
    ),
    # Steps ahead.
    Bug(
        VLLM + "48245",
        "[BugFix] Fix `num_output_placeholders` preemption underflow",
        "a request is preempted while a step that samples for it is in flight",
        (scoring, "prompt_logits"),
        "engine.drain()",
        "pass",
    ),
    Bug(
        VLLM + "57562",
        "[Bug]: AsyncScheduler num_output_placeholders underflow with chunked prefill + concurrency (no spec decode, "
        "no preemption) — regression from 0.24.0",
        "the chunks of a prompt count as steps that sample a token",
        (Scheduler, "start"),
        "request.pending += min(logit_count, 1)",
        "request.pending += 1",
    ),
    Bug(
        VLLM + "38624",
        "fix(scheduler): discard async tokens on all V1 preemption paths",
        "a step in flight is forgotten, its tokens are neither used nor given back",
        (Engine, "_postprocess"),
        "self._in_flight = step.following",
        "self._in_flight = None",
    ),
    Bug(
        VLLM + "46899",
        "[Bugfix]fix(v1): clear stale async speculative placeholders",
        "placeholders of an earlier step become input tokens",
        (InFlightStep, "sample"),
        "runner.stage_tokens(self._sampled.tokens)",
        "self.batch.sampled_rows or runner.stage_tokens(self._sampled.tokens)",
        instead="tokens that an earlier step has staged, in place of draft tokens",
    ),
    Bug(
        VLLM + "13673",
        "[Bug]: [V1][SpecDec] RuntimeError: CUDA error: an illegal memory access was encountered",
        "no block is allocated for the tokens ahead",
        (step_ahead, "next_decodes"),
        "pool.pages_for(tokens) >",
        "pool.pages_for(tokens - each.pending) >",
        instead="the token of a step ahead, in place of draft tokens",
    ),
    Bug(
        SGLANG + "24590",
        "[Question] Overlap scheduler inflates kv_committed_len by 1 on request finish",
        "the token that a step in flight writes counts as committed",
        (Scheduler, "commit"),
        "full = (request.computed if draft_count else start + count) // size",
        "full = request.computed // size",
    ),
    Bug(
        SGLANG + "18803",
        "[Fix] Defer req_to_token pool-index free in overlap scheduling to prevent cross-stream data race",
        "when a request ends, the step in flight reads the row that another one has now",
        (step_ahead, "next_decodes"),
        "tuple([rows[each] for each in continuing])",
        "tuple(range(len(continuing)))",
    ),
    # Cancellation, and several ranks.
    Bug(
        SGLANG + "27372",
        "[PD] Fix KV cache corruption on abort by notifying ongoing prefill",
        "an abort frees pages that a forward pass is still writing",
        (Engine, "abort"),
        "self._aborted.append(request_id)",
        "request_id in self._states and self._end(self._states[request_id], 'abort')",
        instead="a step of this engine, in place of another server's prefill",
    ),
    Bug(
        LLAMA + "23970",
        "server: fix cache_prompt inconsistency (checkpoints not cleared between requests)",
        "the state of an earlier run is restored in a later one",
        (BatchEncoder, "encode"),
        "if admission != request.admission:",
        "if False:",
    ),
)
