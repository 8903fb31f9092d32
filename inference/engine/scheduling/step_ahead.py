"""The step after one that is in flight, as far as it can be known before that one's tokens are. It knows no tensors."""

from collections.abc import Sequence

from ...params import Request
from .batch import Batch
from .pages import PagePool


def next_decodes(batch: Batch, running: Sequence[Request], pool: PagePool) -> Batch | None:
    """One decode of every running request, after `batch`, whose tokens it takes from the device; takes the pages that it needs.

    None, and nothing taken, if there are no such requests, if one of them has other work to do, or if pages lack.
    """
    continuing: list[Request] = []
    growing: list[Request] = []
    for each in running:
        if each.policy is not None:  # it runs without a graph, and needs tokens on the host
            return None
        tokens = len(each.tokens) + each.pending
        if tokens - len(each.prompt) >= each.max_tokens:
            continue
        if tokens - each.computed != 1 or not each.pending:
            return None
        continuing.append(each)
        if pool.pages_for(tokens) > len(each.pages):
            growing.append(each)
    if not continuing or len(growing) > pool.available:
        return None
    for request in growing:
        request.pages += pool.allocate(1)
    rows = {request: row for row, request in enumerate(batch.sampling)}
    ones = (1,) * len(continuing)
    return Batch(
        requests=tuple(continuing),
        starts=tuple([each.computed for each in continuing]),
        counts=ones,
        decodes=len(ones),
        logit_counts=ones,
        sampled_rows=tuple([rows[each] for each in continuing]),
    )
