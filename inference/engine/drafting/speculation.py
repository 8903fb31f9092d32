"""Speculative decoding as the scheduler sees it: which drafts a step verifies, and which it makes. It knows no tensors.

A step verifies a request's drafts as further tokens behind its last one. The tokens that it samples are kept up to the first that
differs from the draft in its place; what the step has written for the drafts from there on is written over by the next one.

The draft layer has entries in the same pages as the model. Its entry of a token needs the token after it, so it is written one step
behind: once that token is sampled. A request whose entries are not all there gets no drafts until it is admitted again; one with
a grammar or a selection policy gets none at all.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...params import Request
from ..limits import MAX_DRAFT_TOKENS
from ..scheduling.batch import Batch
from ..scheduling.pages import PagePool
from .policy import DraftPolicy


class Speculation:
    """Knows where the drafts of running requests are."""

    def __init__(self, policy: DraftPolicy | None) -> None:
        """policy: None if there is no draft layer."""
        self.policy = policy
        self.drafted_tokens = [0] * MAX_DRAFT_TOKENS  # as in EngineStats
        self.accepted_tokens = [0] * MAX_DRAFT_TOKENS
        self.latest_decodes: Batch | None = None  # that have arrived, in a step of decodes alone
        # The drafts that the latest step has made: (row of the runner's table, how many).
        self._made: dict[Request, tuple[int, int]] = {}

    def reserve(self, requests: Sequence[Request], budget: int) -> int:
        """How many of a step's tokens to keep for the drafts of these decodes: at most half of them, the others are for prompts."""
        return min(sum(self._useful(request) for request in requests), budget // 2)

    def plan(self, batch: Batch, budget: int, pool: PagePool, take: bool, most: int = MAX_DRAFT_TOKENS) -> Batch:
        """The batch with the drafts to verify, at most `budget` of them, and to make, at most `most` for each request.

        take: whether drafts may take pages that are available; else they have to do with those that their requests hold.
        """
        if self.policy is None:
            return batch
        batch = self._leave_out(batch)
        counts = [0] * len(batch.requests)
        for i, request in enumerate(batch.requests[: batch.decodes]):
            if batch.logit_counts[i]:
                counts[i] = self._give_pages(request, min(self._useful(request), budget), pool, take)
                budget -= counts[i]
        draft_tokens = self._choose(batch, {})
        if draft_tokens is not None:
            draft_tokens = min(draft_tokens, most)
        batch = replace(batch, draft_tokens=draft_tokens)
        if draft_tokens is None:
            batch = replace(batch, draft_entries=None)
        if not any(counts):
            return batch
        return replace(
            batch,
            counts=tuple(count + drafts for count, drafts in zip(batch.counts, counts, strict=True)),
            logit_counts=tuple(count + drafts for count, drafts in zip(batch.logit_counts, counts, strict=True)),
            draft_counts=tuple(counts),
            draft_rows=tuple(self._made.get(request, (0, 0))[0] for request in batch.requests),
        )

    def plan_ahead(self, batch: Batch, before: Batch) -> Batch:
        """The batch with the drafts to make, while `before` is in flight, which has none and goes over the same requests."""
        if self.policy is None or before.draft_tokens is None:  # then each of them lacks entries of the draft layer
            return batch
        count = self._choose(batch, dict(zip(before.requests, before.counts, strict=True)))
        return batch if count is None else replace(batch, draft_tokens=count)

    def commit(self, batch: Batch, drafted: bool) -> None:
        """A step's tokens are in their requests: its right drafts count as computed, and the draft layer's entries as written.

        drafted: the draft layer has done its work.
        """
        self._made = {}
        if not drafted and not batch.draft_counts:
            return
        rows = {request: row for row, request in enumerate(batch.sampling)}
        drafts = batch.draft_counts or (0,) * len(batch.requests)
        gone_over = len(batch.requests) if batch.draft_entries is None else batch.draft_entries
        entries = zip(batch.requests, batch.starts, batch.counts, drafts, strict=True)
        for entry, (request, start, count, draft_count) in enumerate(entries):
            if not request.pages:  # it has ended meanwhile
                continue
            if draft_count:
                request.computed = max(request.computed, len(request.tokens) - 1)
            if drafted and entry < gone_over and request.drafted == start and request.policy is None:
                request.drafted = request.computed if draft_count else start + count
                if batch.draft_tokens and request in rows:
                    self._made[request] = rows[request], batch.draft_tokens

    def observe(self, batch: Batch, accepted: Sequence[int]) -> None:
        """A step's tokens have arrived. accepted: how many drafts of each sampling request were right, if it had any."""
        if self.policy is None:
            return
        if batch.decodes == len(batch.requests):
            self.latest_decodes = batch
        if not batch.draft_counts:
            self.policy.observe(batch, (), ())
            return
        drafted = [count for count, logits in zip(batch.draft_counts, batch.logit_counts, strict=True) if logits]
        for each, totals in ((drafted, self.drafted_tokens), (accepted, self.accepted_tokens)):
            for place in range(MAX_DRAFT_TOKENS):
                totals[place] += sum(count > place for count in each)
        self.policy.observe(batch, drafted, accepted)

    def forget(self) -> None:
        """No drafts are known any more."""
        self._made = {}

    def _useful(self, request: Request) -> int:
        """How many drafts there are for it, but for those behind its last token."""
        if self.policy is None or not self._may_draft(request):
            return 0
        return max(min(self._made.get(request, (0, 0))[1], request.max_tokens - request.output_count - 1), 0)

    def _may_draft(self, request: Request) -> bool:
        assert self.policy is not None
        if request.max_tokens <= 1 or request.policy is not None or request.grammar is not None:
            return False
        return self.policy.pays(request.remaining, request.max_tokens - request.output_count)

    def _leave_out(self, batch: Batch) -> Batch:
        """The batch with the chunks of prompts last whose answers get no drafts, so that the draft layer need not go over them."""
        chunks = range(batch.decodes, len(batch.requests))
        left_out = [i for i in chunks if not batch.logit_counts[i] and not self._is_ready(batch, i)]
        if not left_out:
            return batch
        kept = [i for i in range(len(batch.requests)) if i not in left_out]
        return replace(batch.in_order([*kept, *left_out]), draft_entries=len(kept))

    def _is_ready(self, batch: Batch, entry: int) -> bool:
        """Whether the draft layer's entries of all earlier tokens are there, and drafts of use."""
        request = batch.requests[entry]
        return request.drafted == batch.starts[entry] and self._may_draft(request)

    def _give_pages(self, request: Request, count: int, pool: PagePool, take: bool) -> int:
        """For how many drafts the request has pages, after it has taken what it may."""
        missing = pool.pages_for(len(request.tokens) + count) - len(request.pages)
        if take and missing > 0:
            request.pages += pool.allocate(min(missing, pool.available))
        return min(count, len(request.pages) * pool.page_size - len(request.tokens))

    def _choose(self, batch: Batch, unknown: dict[Request, int]) -> int | None:
        """unknown: the new tokens of the step in flight, whose entries the draft layer is about to write."""
        assert self.policy is not None
        ready = [
            (request, logits)
            for request, start, logits in zip(batch.requests, batch.starts, batch.logit_counts, strict=True)
            if request.drafted + unknown.get(request, 0) == start and self._may_draft(request)
        ]
        count = self.policy.choose(len(batch.requests), len(ready)) if ready else None
        if not count or any(logits and self._has_use(request) for request, logits in ready):
            return count
        return 0

    def _has_use(self, request: Request) -> bool:
        """Whether it could use a draft in the step after the one that is being planned."""
        return request.output_count + request.pending + 2 < request.max_tokens
