"""Speculative decoding as the scheduler sees it: which drafts a step verifies, and which it makes. It knows no tensors.

A step verifies a request's drafts as further tokens after its last one, and keeps its samples up to the first that differs from
the draft in its place. The draft layer's entry of a token needs the token after it, so it is written one step later, in the same
pages as the model's. A request whose entries are not complete gets no drafts until it is admitted again; one with a grammar or a
selection policy gets none at all.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...config import MAX_DRAFT_TOKENS
from ..request import Request
from ..scheduling.batch import Batch
from ..scheduling.pages import PagePool
from .policy import DraftPolicy


class Speculation:
    """Knows where the drafts of running requests are."""

    def __init__(self, policy: DraftPolicy | None) -> None:
        """policy: None if there is no draft layer, or if it makes no drafts."""
        self.policy = policy
        self.drafted_tokens = [0] * MAX_DRAFT_TOKENS  # as in EngineStats
        self.accepted_tokens = [0] * MAX_DRAFT_TOKENS
        # By the latest step: (row of the runner's table, how many drafts).
        self.made: dict[Request, tuple[int, int]] = {}

    def reserve(self, requests: Sequence[Request], budget: int) -> int:
        """Return how many of a step's tokens to keep for the drafts of these decodes: at most half. The others are for prompts."""
        return min(sum(self._useful(request) for request in requests), budget // 2)

    def plan(self, batch: Batch, budget: int, pool: PagePool, take: bool, most: int = MAX_DRAFT_TOKENS) -> Batch:
        """Add at most `budget` drafts to verify, and `most` for each request to make. take: whether they may take pages."""
        if self.policy is None:
            return batch
        batch = self._leave_out(batch)
        counts = [0] * len(batch.requests)
        for i, request in enumerate(batch.requests[: batch.decodes]):
            if batch.logit_counts[i]:
                counts[i] = self._give_pages(request, min(self._useful(request), budget), pool, take)
                budget -= counts[i]
        made = self._choose(batch, {})
        batch = replace(batch, draft_entries=None) if made is None else replace(batch, draft_tokens=min(made, most))
        if not any(counts):
            return batch
        return replace(
            batch,
            counts=tuple(count + drafts for count, drafts in zip(batch.counts, counts, strict=True)),
            logit_counts=tuple(count + drafts for count, drafts in zip(batch.logit_counts, counts, strict=True)),
            draft_counts=tuple(counts),
            draft_rows=tuple(self.made.get(request, (0, 0))[0] for request in batch.requests),
        )

    def plan_ahead(self, batch: Batch, before: Batch) -> Batch:
        """Add to a batch the drafts to make, while `before` is in flight, which makes none and has the same requests."""
        if self.policy is None or before.draft_tokens is None:  # then each of them lacks entries of the draft layer
            return batch
        count = self._choose(batch, dict(zip(before.requests, before.counts, strict=True)))
        return batch if count is None else replace(batch, draft_tokens=count)

    def commit(self, batch: Batch, drafted: bool, accepted: Sequence[int] = ()) -> None:
        """Call when a step's tokens are in their requests: counts right drafts as computed, the draft layer's entries as written.

        drafted: the draft layer has done its work. accepted: each sampling request's number of right drafts; empty if the step has
        verified none.
        """
        self.made = {}
        if self.policy is not None:
            self.policy.observe(batch)
        if not drafted and not batch.draft_counts:
            return
        drafted_counts = [
            count for count, logits in zip(batch.draft_counts, batch.logit_counts, strict=False) if logits
        ]
        for each, totals in ((drafted_counts, self.drafted_tokens), (accepted, self.accepted_tokens)):
            for place in range(MAX_DRAFT_TOKENS):
                totals[place] += sum(count > place for count in each)
        rows = {request: row for row, request in enumerate(batch.sampling)}
        drafts = batch.draft_counts or (0,) * len(batch.requests)
        gone_over = len(batch.requests) if batch.draft_entries is None else batch.draft_entries
        entries = zip(batch.requests, batch.starts, batch.counts, drafts, strict=True)
        for entry, (request, start, count, draft_count) in enumerate(entries):
            if not request.cache.pages:  # it has ended meanwhile
                continue
            if draft_count:
                request.cache.computed = max(request.cache.computed, len(request.tokens) - 1)
            if drafted and entry < gone_over and request.cache.drafted == start and request.policy is None:
                request.cache.drafted = request.cache.computed if draft_count else start + count
                if batch.draft_tokens and request in rows:
                    self.made[request] = rows[request], batch.draft_tokens

    def _useful(self, request: Request) -> int:
        """Return how many of the request's drafts its next step can use, not counting any past max_tokens."""
        if self.policy is None or not self._may_draft(request):
            return 0
        made = min(self.made.get(request, (0, 0))[1], self.policy.most(request))
        return max(min(made, request.max_tokens - request.output_count - 1), 0)

    def _may_draft(self, request: Request) -> bool:
        assert self.policy is not None
        if request.max_tokens <= 1 or request.policy is not None or request.grammar is not None:
            return False
        return self.policy.pays(request.remaining, request.max_tokens - request.output_count)

    def _leave_out(self, batch: Batch) -> Batch:
        """Put those chunks of prompts last whose answers get no drafts, so that the draft layer need not go over them."""
        left_out = [
            i
            for i, request in enumerate(batch.requests)
            if i >= batch.decodes and not batch.logit_counts[i]
            # The draft layer's entries of all earlier tokens must be written.
            if request.cache.drafted != batch.starts[i] or not self._may_draft(request)
        ]
        if not left_out:
            return batch
        kept = [i for i in range(len(batch.requests)) if i not in left_out]
        return replace(batch.in_order([*kept, *left_out]), draft_entries=len(kept))

    def _give_pages(self, request: Request, count: int, pool: PagePool, take: bool) -> int:
        """Return for how many drafts the request has pages, after it has taken what it may."""
        missing = pool.pages_for(len(request.tokens) + count) - len(request.cache.pages)
        if take and missing > 0:
            request.cache.pages += pool.allocate(min(missing, pool.available))
        return min(count, len(request.cache.pages) * pool.page_size - len(request.tokens))

    def _choose(self, batch: Batch, unknown: dict[Request, int]) -> int | None:
        """unknown: the new tokens of the step in flight, whose entries the draft layer is about to write."""
        assert self.policy is not None
        ready = {
            request: logits
            for request, start, logits in zip(batch.requests, batch.starts, batch.logit_counts, strict=True)
            if request.cache.drafted + unknown.get(request, 0) == start and self._may_draft(request)
        }
        count = self.policy.choose(len(batch.requests), list(ready)) if ready else None
        useful = any(  # in the step after the one that is being planned
            logits and request.output_count + request.cache.pending + 2 < request.max_tokens
            for request, logits in ready.items()
        )
        return count if useful or count is None else 0
