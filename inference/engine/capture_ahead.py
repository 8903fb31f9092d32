"""CUDA graphs that are captured before the first request: those with which `auto` tries numbers of drafts.

A step of the demo takes 0.2 ms on an H200 and the capture of its graph many times that. Numbers of drafts that are tried while
requests wait would have to win that back first.
"""

from contextlib import suppress

import torch

from ...model.metadata import PAGE_SIZE
from ..params import Request, SamplingParams
from .batch import Batch
from .decode_graph import batch_buckets
from .limits import AUTO, MAX_DRAFT_TOKENS, Limits
from .noise import DraftNoise
from .runner import Runner

_MOST_SEQUENCES = 16  # beyond, captures wait until `auto` has won their time
_CONTEXTS = 2  # of the buckets, from the shortest on


def prepare_drafts(runner: Runner, limits: Limits) -> None:
    """Before the first request: capture the graphs that `auto` will ask for, where decode steps are graphs."""
    graphs = runner.graphs is not None and runner.device.type == "cuda" and runner.cache_check is None
    if graphs and limits.speculative_tokens == AUTO:
        # Where memory is short, graphs are captured later or not at all, as those of other steps.
        with suppress(torch.cuda.OutOfMemoryError):
            capture_ahead(runner)
        torch.cuda.synchronize(runner.device)


def capture_ahead(runner: Runner) -> int:
    """Run and capture steps of a few requests that verify and make 0 to 4 drafts, on the scratch page. Returns how many.

    Their drafts are captured as greedy steps and as steps with a temperature make them. Before the runner's first step.
    """
    graphs = runner.graphs
    assert graphs is not None and runner.drafter is not None
    for cache in runner.caches:  # the steps read entries that no step has written: they must not be NaN
        cache.latent[runner.scratch_page].zero_()
        cache.index[runner.scratch_page].zero_()
    sizes, steps = [size for size in batch_buckets(len(runner.drafts)) if size <= _MOST_SEQUENCES], 0
    for context in graphs.contexts[:_CONTEXTS]:
        for requests in reversed(sizes):  # the largest first: the others find their memory in its
            for drafts in range(min(MAX_DRAFT_TOKENS, context - 1, graphs.batches[-1] // requests - 1), -1, -1):
                _capture(runner, _batch(runner.scratch_page, context, requests, drafts))
                steps += 1
    return steps


def _capture(runner: Runner, batch: Batch) -> None:
    for _ in range(3):  # as it is, into a graph, and as a graph: drafts are only captured behind that
        runner.run(batch)
    count, rows = len(batch.requests), batch.tokens
    sampled, accepted = (torch.zeros(each, dtype=torch.int64, device=runner.device) for each in (rows, count))
    noise = DraftNoise(True, accepted.double() + 1, accepted, accepted)
    for _ in range(2):
        runner.draft_greedily(batch)
        runner.draft(batch, sampled, accepted, noise)


def _batch(page: int, context: int, requests: int, drafts: int) -> Batch:
    """Of requests whose tokens all lie in one page. Their last draft is at the end of the context."""
    made = []
    for id in range(-requests, 0):  # which no other request has
        made.append(Request(id, (0,), SamplingParams(), max_tokens=1, seed=0))
        made[-1].pages = [page] * -(-context // PAGE_SIZE)
    return Batch(
        requests=tuple(made),
        starts=(context - 1 - drafts,) * requests,
        counts=(1 + drafts,) * requests,
        decodes=requests,
        logit_counts=(1 + drafts,) * requests,
        sampled_rows=tuple(range(requests)),
        draft_counts=(drafts,) * requests if drafts else (),
        draft_rows=tuple(range(requests)) if drafts else (),
        draft_tokens=drafts,
    )
