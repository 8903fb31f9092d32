"""On other ranks each step finds a request's tokens and pages, whatever happened to the request."""

import random
from dataclasses import replace

import pytest

from deepseek_v32.inference.distributed import batch_sync
from deepseek_v32.inference.distributed.batch_sync import BatchDecoder, BatchEncoder
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.params import SamplingParams


def make_request(id: int, rng: random.Random) -> Request:
    request = Request(id, tuple(rng.randrange(1000) for _ in range(rng.randint(1, 300))), SamplingParams(), 99, 0)
    admit(request, rng)
    return request


def admit(request: Request, rng: random.Random) -> None:
    """Give a request pages for all its tokens so far; some count as computed (a reused prefix)."""
    request.cache.pages[:] = rng.sample(
        range(10_000), -(-len(request.tokens) // 64)
    )  # in place: the same list object stays
    request.cache.admission += 1
    request.cache.computed = rng.randrange((len(request.tokens) - 1) // 64 + 1) * 64


@pytest.mark.parametrize("kept", [2, 1024])
@pytest.mark.parametrize("seed", range(5))
def test_followers_see_the_same_batches(monkeypatch, seed, kept):
    """Random steps: chunks, growth, preemption, long absences, requests that end; the ranks remember 2 requests, or all of them."""
    monkeypatch.setattr(batch_sync, "_KEPT", kept)
    rng, encoder, decoder = random.Random(seed), BatchEncoder(), BatchDecoder()
    requests = [make_request(id, rng) for id in range(8)]
    for step in range(200):
        if rng.random() < 0.1:
            requests[rng.randrange(8)] = make_request(100 + step, rng)
        if rng.random() < 0.1:
            admit(rng.choice(requests), rng)  # as after a preemption: it has other pages now
        chosen = rng.sample(requests, rng.randint(1, 8))
        batch = Batch.of([(request, rng.randint(1, request.remaining)) for request in chosen])
        if max(batch.counts) == 1 and rng.random() < 0.5:  # its input tokens are only on the device
            batch = replace(batch, sampled_rows=tuple(rng.sample(range(20), len(batch.requests))))
        seen = decoder.decode(*encoder.encode(batch), batch.decodes)
        assert seen.sampled_rows == batch.sampled_rows
        assert (seen.starts, seen.counts, seen.logit_counts, seen.decodes) == (
            batch.starts,
            batch.counts,
            batch.logit_counts,
            batch.decodes,
        )
        for ours, theirs, start, count in zip(batch.requests, seen.requests, batch.starts, batch.counts, strict=True):
            assert theirs.cache.pages == ours.cache.pages
            assert batch.sampled_rows or theirs.tokens[start : start + count] == ours.tokens[start : start + count]
            ours.cache.computed += count
            if not ours.remaining:
                ours.tokens.append(rng.randrange(1000))
                if len(ours.tokens) > 64 * len(ours.cache.pages):
                    ours.cache.pages += [rng.randrange(10_000)]
        assert len(decoder._requests) <= max(kept, 8) + 1


def test_the_token_after_a_chunk_is_sent_where_the_draft_layer_needs_it():
    """The token is sent for the first two of three chunks inside prompts, which the draft layer goes over."""
    requests = tuple(Request(id, tuple(range(10 * id, 10 * id + 9)), SamplingParams(), 9, 0) for id in range(3))
    for request in requests:
        request.cache.pages = [request.id]
    batch = Batch(requests, (0, 0, 0), (4, 5, 6), 0, (0, 0, 0), draft_tokens=1, draft_entries=2)
    update, policies = BatchEncoder().encode(batch)
    assert update.tokens.tolist() == [*range(5), *range(10, 16), *range(20, 26)]
    seen = BatchDecoder().decode(update, policies, 0, 1, 2)
    assert [each.tokens for each in seen.requests] == [[*range(5)], [*range(10, 16)], [*range(20, 26)]]
    assert (seen.draft_tokens, seen.draft_entries, seen.counts) == (1, 2, (4, 5, 6))


def test_followers_know_each_admission():
    """Decode graphs compare (id, admission): pages are only appended within one admission, and the next has another number."""
    encoder, decoder = BatchEncoder(), BatchDecoder()
    request = Request(1, (1, 2, 3), SamplingParams(), 9, 0)
    request.cache.pages, request.cache.admission = [5], 3

    def step() -> tuple[int, list[int]]:
        [seen] = decoder.decode(*encoder.encode(Batch((request,), (2,), (1,), 1, (1,))), 1).requests
        return seen.cache.admission, seen.cache.pages

    assert step() == (3, [5])
    request.cache.pages.append(7)
    assert step() == (3, [5, 7])
    request.cache.pages.clear()
    request.cache.pages.extend([7, 5])
    request.cache.admission += 1
    assert step() == (4, [7, 5])


def test_a_batch_that_cannot_be_encoded_does_not_count_as_sent():
    """Otherwise the ranks would miss the pages that were in it."""
    encoder, decoder = BatchEncoder(), BatchDecoder()
    good, bad = (Request(id, (1, 2, 3), SamplingParams(), 9, 0) for id in (1, 2))
    good.cache.pages, good.cache.admission = [5], 1
    bad.cache.pages, bad.cache.admission = ["no number"], 1
    with pytest.raises(ValueError):
        encoder.encode(Batch((good, bad), (0, 0), (3, 3), 0, (1, 1)))
    [seen] = decoder.decode(*encoder.encode(Batch((good,), (0,), (3,), 0, (1,))), 0).requests
    assert (seen.tokens, seen.cache.pages) == ([1, 2, 3], [5])
