"""Captures the CUDA graphs of small steps with drafts before the first request, so that no answer waits for them."""

import logging
from itertools import count, product

from ..params import SamplingParams
from .drafting.policy import TableDrafts
from .engine import Engine
from .fault import log_fault
from .request import Request
from .running.decode_graph import DecodeGraphs
from .scheduling.batch import Batch
from .step import InFlightStep

log = logging.getLogger(__name__)

_REQUESTS = (1, 2, 4, 8)  # of the steps that are captured; larger ones are captured when they come a second time
_CONTEXTS = 2  # the shortest buckets of contexts, for steps of several requests
_RUNS = 3  # the first one runs without graphs, the second captures the step, the third the draft layer's passes


def capture_first_graphs(engine: Engine, graphs: DecodeGraphs | None) -> None:
    """Capture steps with `auto`'s drafts and without, greedy and sampled; for one request also with one draft and at answers' ends.

    graphs: of the engine's runner; None: it has none. On several ranks, each captures the graphs of its own in the same steps.
    """
    policy = engine.scheduler.speculation.policy
    if graphs is None or not isinstance(policy, TableDrafts):
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
