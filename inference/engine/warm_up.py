"""Steps before the first request: the largest one measures memory and warms kernels up; small ones are captured as CUDA graphs."""

import logging
from dataclasses import replace
from itertools import count, product

import torch

from ...model.config import ModelConfig
from ...model.metadata import PAGE_SIZE
from ...model.transformer import Transformer
from ..config import MAX_DRAFT_TOKENS, CacheBudget, most_rows
from ..params import SamplingParams
from .drafting.drafter import Drafter
from .drafting.policy import TableDrafts
from .engine import Engine
from .fault import log_fault
from .request import Request
from .running.cache import SCRATCH_PAGES, allocate
from .running.decode_graph import DecodeGraphs, batch_buckets
from .running.observer import Setup, make_observers
from .running.runner import Runner
from .sampling.noise import DraftNoise
from .scheduling.batch import Batch
from .step import Choices, InFlightStep

log = logging.getLogger(__name__)

_WARM_UP_TOKENS = 2048
_REQUESTS = (1, 2, 4, 8)  # of the steps that are captured; larger ones are captured when they come a second time
_CONTEXTS = 2  # the shortest buckets of contexts, for steps of several requests
_RUNS = 3  # the first one runs without graphs, the second captures the step, the third the draft layer's passes


def measure_largest_step(model: Transformer, budget: CacheBudget, ranks: int = 1) -> int:
    """Bytes of a GPU that the largest step takes beyond weights and caches, measured by running it on all ranks; 0 on a CPU."""
    device = model.compute.device
    if device.type != "cuda":
        return 0
    if budget.page_count is not None:  # only a warm-up: smaller, because other programs may leave little memory
        budget = replace(budget, max_batch_tokens=min(budget.max_batch_tokens, _WARM_UP_TOKENS))
    runner, batch = prepare_largest_step(model, budget, ranks)
    warm_up_logits(model, most_rows(budget.max_sequences, budget.max_batch_tokens, model.mtp is not None))
    # Both compile kernels and initialise libraries: contexts of up to index_topk tokens are attended to in another form.
    _run(runner, replace(shortest_prompt(), draft_tokens=batch.draft_tokens))
    _run(runner, batch)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    _run(runner, batch)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del runner
    torch.cuda.empty_cache()
    return peak - before


@torch.inference_mode()
def warm_up_logits(model: Transformer, most: int) -> None:
    """Logits of 1 to `most` rows: the first step with 5, 9, 17 or 33 took 11 to 25 ms longer, most likely to load kernels."""
    hidden = torch.zeros(most, model.config.hidden_size, dtype=model.compute.dtype, device=model.compute.device)
    for rows in sorted({*range(1, min(most, 64) + 1), *batch_buckets(most)}):
        model.lm_head.logits(hidden[:rows])


def prepare_largest_step(model: Transformer, budget: CacheBudget, ranks: int = 1) -> tuple[Runner, Batch]:
    """The largest step, and a runner over caches that hold it: with drafts and observers where the engine has them, so that it
    calls every kernel that a step without a graph calls."""
    config, precision, device = model.config, model.compute.precision, model.compute.device
    sizes = (budget.max_batch_tokens, budget.max_sequences, budget.max_model_len, budget.data_ranks)
    batch, pages = largest_step(config, *sizes)
    drafts = model.mtp is not None
    caches = allocate(config, precision, pages + SCRATCH_PAGES, device, drafts)
    for cache in caches:  # the step reads entries that no step has written: they must not be NaN
        cache.latent.zero_()
        cache.index.zero_()
    drafter = Drafter(model, caches[-1]) if drafts else None
    setup = Setup(model, caches, config, budget.max_sequences, budget.max_model_len, pages, ranks)
    observers = make_observers(budget.observers, setup)
    more = (observers, drafter, budget.max_sequences, pages, None, budget.data_ranks)
    runner = Runner(model, caches, device, None, *more)
    return runner, replace(batch, draft_tokens=MAX_DRAFT_TOKENS if drafts else None)


def _run(runner: Runner, batch: Batch) -> None:
    step = runner.run(batch)
    if batch.draft_tokens is not None:
        zeros = torch.zeros(len(batch.sampling), dtype=torch.int64, device=runner.device)
        step.draft(Choices(zeros, zeros, DraftNoise(True, zeros.double(), zeros, zeros)))


def largest_step(
    config: ModelConfig, max_batch_tokens: int, max_sequences: int, max_model_len: int, data_ranks: int = 1
) -> tuple[Batch, int]:
    """A step as large as the limits allow, with contexts longer than index_topk that share page 0, and the pages that it needs.

    data_ranks: each has an equal share of it.
    """
    max_sequences, max_batch_tokens = -(-max_sequences // data_ranks), -(-max_batch_tokens // data_ranks)
    decodes = min(max_sequences, max_batch_tokens) - 1
    chunk = min(max_batch_tokens - decodes, max_model_len)
    start = min(max_model_len - chunk, 2 * config.index_topk) // PAGE_SIZE * PAGE_SIZE
    chunk_pages = -(-chunk // PAGE_SIZE)

    def entry(rank: int, id: int, count: int, new_pages: list[int]) -> tuple[Request, int]:
        request = Request(id, (0,) * (start + count), SamplingParams(), max_tokens=1, seed=0)
        request.cache.computed, request.cache.rank = start, rank
        request.cache.pages = [0] * (start // PAGE_SIZE) + new_pages
        return request, count

    entries = []
    for rank in range(data_ranks):
        entries += [entry(rank, id, 1, [1 + chunk_pages]) for id in range(decodes)]
        entries.append(entry(rank, decodes, chunk, list(range(1, 1 + chunk_pages))))
    return Batch.of(entries), chunk_pages + 2


def shortest_prompt() -> Batch:
    """A step with a prompt of two tokens, in page 0: one would be a decode."""
    request = Request(0, (0, 0), SamplingParams(), max_tokens=1, seed=0)
    request.cache.pages = [0]
    return Batch.of([(request, 2)])


def capture_first_graphs(engine: Engine, graphs: DecodeGraphs | None) -> None:
    """Capture the steps of few requests with `auto`'s drafts and without, greedy and sampled, if the runner has `graphs`."""
    policy = engine.scheduler.speculation.policy
    if graphs is None or not engine.runner.supports_async_scheduling or not isinstance(policy, TableDrafts):
        return
    ids = count(-1, -1)  # no other request has them
    try:
        for requests in _REQUESTS:
            costs = policy.costs(requests)
            if costs is None or requests > engine.limits.max_sequences:
                break
            most = len(costs) - 1
            contexts, numbers = graphs.contexts[:_CONTEXTS], [None, most]
            if requests == 1:
                contexts, numbers = graphs.contexts, [None, *sorted({0, 1, most})]
            for context, drafts, temperature in product(contexts, numbers, (0.0, 1.0)):
                params = SamplingParams(temperature=temperature)
                batch = _batch([next(ids) for _ in range(requests)], context, drafts, params, engine)
                for _ in range(_RUNS):
                    step = InFlightStep(batch)
                    step.launch(engine.runner)
                    step.sample()
                    step.read()
    except Exception:  # of any type: CUDA, libraries and compilers of kernels have their own
        log_fault(log, "capturing graphs failed; they are captured when they are needed")


def _batch(ids: list[int], context: int, drafts: int | None, params: SamplingParams, engine: Engine) -> Batch:
    """A step that verifies and makes that many drafts, with `context` tokens in the cache after it, all on the scratch page."""
    number, rows = len(ids), 1 + (drafts or 0)
    start = context - rows
    requests = [Request(id, (0,) * (start + 1), params, max_tokens=rows, seed=0) for id in ids]
    for request in requests:
        request.cache.pages = [engine.limits.page_count] * engine.pool.pages_for(context)
    return Batch(
        requests=tuple(requests),
        starts=(start,) * number,
        counts=(rows,) * number,
        decodes=number,
        logit_counts=(rows,) * number,
        draft_counts=(drafts,) * number if drafts else (),
        draft_rows=tuple(range(number)) if drafts else (),
        draft_tokens=drafts,
    )
