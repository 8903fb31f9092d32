"""Batches for the ranks that follow: rank 0's requests as the others see them, kept up to date by what is new in each step."""

from collections.abc import Sequence

import numpy as np

from ..engine.scheduler import Batch
from ..params import Request, SamplingParams

_KEPT = 1024  # requests that are remembered; what comes back later is sent whole


class BatchEncoder:
    """Rank 0's side: what the others do not know yet of a batch's requests."""

    def __init__(self) -> None:
        self._sent: dict[
            int, tuple[list[int], int]
        ] = {}  # whose pages, and how many of them; least recently used first

    def encode(self, batch: Batch) -> list[np.ndarray]:
        """[5, B] ids, starts, counts, wanted, first new page; all new tokens; all new pages with their counts; forgotten; drawn."""
        fields, tokens, pages, page_counts = [], [], [], []
        for request, start, count, logit_count in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            held, known = self._sent.pop(request.id, (None, 0))
            if held is not request.pages:  # it was preempted meanwhile
                known = 0
            self._sent[request.id] = (request.pages, len(request.pages))
            fields.append((request.id, start, count, logit_count, known))
            tokens += [0] if batch.sampled_rows else request.tokens[start : start + count]
            pages += request.pages[known:]
            page_counts.append(len(request.pages) - known)
        forgotten = list(self._sent)[: max(len(self._sent) - max(_KEPT, len(fields)), 0)]
        for id in forgotten:
            del self._sent[id]
        columns = np.array(fields, dtype=np.int64).T
        rest = (tokens, pages, page_counts, forgotten, batch.sampled_rows)
        return [columns, *(np.array(values, dtype=np.int64) for values in rest)]


class BatchDecoder:
    """The other ranks' side."""

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}

    def decode(self, arrays: Sequence[np.ndarray], decodes: int) -> Batch:
        """The batch, of requests that have what a step needs: the tokens in it and all their pages."""
        columns, tokens, pages, page_counts, forgotten, drawn = (each.tolist() for each in arrays)
        ids, starts, counts, wanted, known = columns
        requests, token, page = [], 0, 0
        for id, start, count, first, fresh in zip(ids, starts, counts, known, page_counts, strict=True):
            request = self._requests.get(id)
            if request is None:
                request = self._requests[id] = Request(id, (), SamplingParams(), max_tokens=0, seed=0)
            # Earlier tokens are in the cache, or came with earlier steps; nobody asks for them.
            request.tokens += [0] * (start + count - len(request.tokens))
            request.tokens[start : start + count] = tokens[token : token + count]
            new = pages[page : page + fresh]
            if first:
                request.pages += new
            else:
                request.pages = new
            token, page = token + count, page + fresh
            requests.append(request)
        for id in forgotten:
            del self._requests[id]
        return Batch(tuple(requests), tuple(starts), tuple(counts), decodes, tuple(wanted), tuple(drawn))
