"""A step's batch for the other ranks: rank 0 sends what is new since the last step, and each rank rebuilds the batch from it."""

from typing import NamedTuple

import numpy as np

from ..engine.scheduler import Batch
from ..params import Request, SamplingParams

_KEPT = 1024  # requests that the ranks remember between steps; one that returns after it was dropped is sent whole


class BatchUpdate(NamedTuple):
    """One step's batch, as far as the receiver does not know it. All arrays are int64."""

    # [6, B]: rows of request ids, admissions (as in Request), starts, token counts, logit counts (as in Batch), and the number
    # of pages already known of this admission.
    entries: np.ndarray
    # [T]: the new tokens of all entries, one after the other; zeros where the device holds them (Batch.sampled_rows).
    tokens: np.ndarray
    # [P]: the pages of all entries that are not known yet, one entry after the other.
    pages: np.ndarray
    # [B]: how many of those pages belong to each entry.
    page_counts: np.ndarray
    # The ids of requests to forget.
    dropped: np.ndarray
    # [B], or empty: Batch.sampled_rows.
    sampled_rows: np.ndarray


class BatchEncoder:
    """Rank 0's side: knows what it has sent of each request."""

    def __init__(self) -> None:
        # Request id -> the admission whose pages were sent, and how many of them. The least recently used request comes first.
        self._sent: dict[int, tuple[int, int]] = {}

    def encode(self, batch: Batch) -> BatchUpdate:
        """What is new in the batch. It counts as sent from here on, unless this raises."""
        sent = dict(self._sent)
        entries, tokens, pages, page_counts = [], [], [], []
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            admission, known = sent.pop(request.id, (request.admission, 0))
            if admission != request.admission:  # it was preempted meanwhile and has other pages now
                known = 0
            sent[request.id] = (request.admission, len(request.pages))
            entries.append((request.id, request.admission, start, count, logit_count, known))
            tokens += [0] if batch.sampled_rows else request.tokens[start : start + count]
            pages += request.pages[known:]
            page_counts.append(len(request.pages) - known)
        dropped = list(sent)[: max(len(sent) - max(_KEPT, len(entries)), 0)]
        for id in dropped:
            del sent[id]
        columns = list(zip(*entries, strict=True))
        arrays = (columns, tokens, pages, page_counts, dropped, batch.sampled_rows)
        update = BatchUpdate(*(np.array(values, dtype=np.int64) for values in arrays))
        self._sent = sent
        return update


class BatchDecoder:
    """The other ranks' side: holds the requests as far as they are known."""

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}

    def decode(self, update: BatchUpdate, decodes: int) -> Batch:
        """The batch. Its requests have all that a step reads: the tokens of this step and all their pages."""
        columns, tokens, pages, page_counts, dropped, sampled_rows = (array.tolist() for array in update)
        ids, admissions, starts, counts, logit_counts, known_counts = columns
        requests, token, page = [], 0, 0
        for id, admission, start, count, known, page_count in zip(
            ids, admissions, starts, counts, known_counts, page_counts, strict=True
        ):
            request = self._requests.get(id)
            if request is None:
                request = self._requests[id] = Request(id, (), SamplingParams(), max_tokens=0, seed=0)
            # The step does not read earlier tokens: they are in the cache. Zeros stand for those that were never sent.
            request.tokens += [0] * (start + count - len(request.tokens))
            request.tokens[start : start + count] = tokens[token : token + count]
            request.admission = admission
            request.pages[known:] = pages[page : page + page_count]
            token, page = token + count, page + page_count
            requests.append(request)
        for id in dropped:
            del self._requests[id]
        return Batch(tuple(requests), tuple(starts), tuple(counts), decodes, tuple(logit_counts), tuple(sampled_rows))
