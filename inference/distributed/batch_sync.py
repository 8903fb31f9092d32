"""A step's batch for the other ranks: rank 0 sends only the changes since the last step, and each rank rebuilds the batch."""

from typing import Any, NamedTuple

import numpy as np

from ...model.selection_policy import SelectionPolicy
from ..engine.request import Request
from ..engine.scheduling.batch import Batch
from ..params import SamplingParams

_KEPT = 1024  # requests that the ranks remember between steps; one that returns after it was dropped is sent whole


Policies = dict[str, dict[str, Any]]  # SelectionPolicy.to_json by request id


class BatchUpdate(NamedTuple):
    """The parts of one step's batch that the receiver does not know. All arrays are int64."""

    # [10, B]: rows of request ids, admissions and ranks (as in Request), starts, token counts, logit counts, draft counts, draft
    # rows (as in Batch), and the numbers of pages of this admission that are known already, and of those in `pages`.
    entries: np.ndarray
    # The new tokens of all entries, one after the other; zeros where the device holds them (Batch.sampled_rows, drafts). An
    # entry inside a prompt also has the token after its own, if the draft layer goes over the entry.
    tokens: np.ndarray
    # [P]: the pages of all entries that are not known yet, one entry after the other.
    pages: np.ndarray
    # The ids of requests to forget.
    dropped: np.ndarray
    # [B], or empty: Batch.sampled_rows.
    sampled_rows: np.ndarray


class BatchEncoder:
    """Rank 0's side: knows what it has sent of each request."""

    def __init__(self) -> None:
        # Request id -> the admission whose pages were sent, and how many of them. The least recently used request comes first.
        self._sent: dict[int, tuple[int, int]] = {}

    def encode(self, batch: Batch) -> tuple[BatchUpdate, Policies]:
        """Return the batch's changes and new policies. They count as sent from here on, unless this raises."""
        sent = dict(self._sent)
        entries: list[tuple[int, ...]] = []
        tokens: list[int] = []
        pages, policies = [], Policies()
        none = (0,) * len(batch.requests)
        drafts = batch.draft_counts or none, batch.draft_rows or none
        for request, start, count, logit_count, draft_count, draft_row in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, *drafts, strict=True
        ):
            if request.policy is not None and request.id not in sent:
                policies[str(request.id)] = request.policy.to_json()
            admission, known = sent.pop(request.id, (request.cache.admission, 0))
            if admission != request.cache.admission:  # it was preempted meanwhile and has other pages now
                known = 0
            sent[request.id] = (request.cache.admission, len(request.cache.pages))
            place = (request.id, request.cache.admission, request.cache.rank)
            new_pages = request.cache.pages[known:]
            entries.append((*place, start, count, logit_count, draft_count, draft_row, known, len(new_pages)))
            is_followed = _is_followed(len(entries) - 1, logit_count, batch.draft_tokens, batch.draft_entries)
            end = start + count - draft_count + is_followed
            tokens += [0] if batch.sampled_rows else request.tokens[start:end] + [0] * draft_count
            pages += new_pages
        dropped = list(sent)[: max(len(sent) - max(_KEPT, len(entries)), 0)]
        for id in dropped:
            del sent[id]
        columns = list(zip(*entries, strict=True))
        arrays = (columns, tokens, pages, dropped, batch.sampled_rows)
        update = BatchUpdate(*(np.array(values, dtype=np.int64) for values in arrays))
        self._sent = sent
        return update, policies


class BatchDecoder:
    """The other ranks' side: holds the known parts of requests."""

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}

    def decode(
        self,
        update: BatchUpdate,
        policies: Policies,
        decodes: int,
        draft_tokens: int | None = None,
        draft_entries: int | None = None,
    ) -> Batch:
        """The batch, whose requests have all that a step reads: the tokens of this step and all their pages."""
        columns, tokens, pages, dropped, sampled_rows = (array.tolist() for array in update)
        ids, admissions, ranks, starts, counts, logit_counts, draft_counts, draft_rows, *page_counts = columns
        requests: list[Request] = []
        token, page = 0, 0
        for id, admission, rank, start, count, logit_count, known, page_count in zip(
            ids, admissions, ranks, starts, counts, logit_counts, *page_counts, strict=True
        ):
            count += _is_followed(len(requests), logit_count, draft_tokens, draft_entries)
            request = self._requests.get(id)
            if request is None:
                policy = SelectionPolicy.from_json(policies[str(id)]) if str(id) in policies else None
                request = Request(id, (), SamplingParams(), max_tokens=0, seed=0, policy=policy)
                self._requests[id] = request
            # The step does not read earlier tokens: they are in the cache. Zeros stand for those that were never sent.
            request.tokens += [0] * (start + count - len(request.tokens))
            request.tokens[start : start + count] = tokens[token : token + count]
            request.cache.admission, request.cache.rank = admission, rank
            request.cache.pages[known:] = pages[page : page + page_count]
            token, page = token + count, page + page_count
            requests.append(request)
        for id in dropped:
            del self._requests[id]
        drafts = (tuple(draft_counts), tuple(draft_rows)) if any(draft_counts) else ((), ())
        rows = (tuple(starts), tuple(counts), decodes, tuple(logit_counts), tuple(sampled_rows))
        return Batch(tuple(requests), *rows, *drafts, draft_tokens, draft_entries)


def _is_followed(entry: int, logit_count: int, draft_tokens: int | None, draft_entries: int | None) -> bool:
    """Decide whether to send the token after an entry: the draft layer needs it, and no row of logits gives it."""
    goes_over = draft_tokens is not None and (draft_entries is None or entry < draft_entries)
    return not logit_count and goes_over
