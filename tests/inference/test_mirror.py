"""Batches on the ranks that follow: whatever happens to requests, each step finds there what it needs."""

import random
from dataclasses import replace

import pytest

from deepseek_v32.inference.distributed import batch_sync as mirror
from deepseek_v32.inference.distributed.batch_sync import BatchDecoder, BatchEncoder
from deepseek_v32.inference.engine.scheduler import Batch
from deepseek_v32.inference.params import Request, SamplingParams


def make_request(id: int, draw: random.Random) -> Request:
    request = Request(id, tuple(draw.randrange(1000) for _ in range(draw.randint(1, 300))), SamplingParams(), 99, 0)
    admit(request, draw)
    return request


def admit(request: Request, draw: random.Random) -> None:
    """With pages for all tokens so far, some of them found computed already."""
    request.pages = draw.sample(range(10_000), -(-len(request.tokens) // 64))
    request.computed = draw.randrange((len(request.tokens) - 1) // 64 + 1) * 64


@pytest.mark.parametrize("kept", [2, 1024])
@pytest.mark.parametrize("seed", range(5))
def test_followers_see_the_same_batches(monkeypatch, seed, kept):
    """Random steps with chunks, growth, preemption, long absences, and requests that end; with little memory of them, or enough."""
    monkeypatch.setattr(mirror, "_KEPT", kept)
    draw, encoder, decoder = random.Random(seed), BatchEncoder(), BatchDecoder()
    requests = [make_request(id, draw) for id in range(8)]
    for step in range(200):
        if draw.random() < 0.1:
            requests[draw.randrange(8)] = make_request(100 + step, draw)
        if draw.random() < 0.1:
            admit(draw.choice(requests), draw)  # it was preempted and has other pages now
        chosen = draw.sample(requests, draw.randint(1, 8))
        batch = Batch.of([(request, draw.randint(1, request.remaining)) for request in chosen])
        if max(batch.counts) == 1 and draw.random() < 0.5:  # of tokens that are not known on the host
            batch = replace(batch, sampled_rows=tuple(draw.sample(range(20), len(batch.requests))))
        seen = decoder.decode(encoder.encode(batch), batch.decodes)
        assert seen.sampled_rows == batch.sampled_rows
        assert (seen.starts, seen.counts, seen.logit_counts, seen.decodes) == (
            batch.starts,
            batch.counts,
            batch.logit_counts,
            batch.decodes,
        )
        for ours, theirs, start, count in zip(batch.requests, seen.requests, batch.starts, batch.counts, strict=True):
            assert theirs.pages == ours.pages
            assert batch.sampled_rows or theirs.tokens[start : start + count] == ours.tokens[start : start + count]
            ours.computed += count
            if not ours.remaining:
                ours.tokens.append(draw.randrange(1000))
                if len(ours.tokens) > 64 * len(ours.pages):
                    ours.pages += [draw.randrange(10_000)]
        assert len(decoder._requests) <= max(kept, 8) + 1


def test_pages_grow_in_place():
    """Who keeps what it knows of a list of pages, as the decode graphs do, finds the same list until it is another's."""
    encoder, decoder = BatchEncoder(), BatchDecoder()
    request = Request(1, (1, 2, 3), SamplingParams(), 9, 0)
    request.pages = [5]

    def step() -> list[int]:
        return decoder.decode(encoder.encode(Batch((request,), (2,), (1,), 1, (1,))), 1).requests[0].pages

    first = step()
    request.pages += [7]
    assert step() is first and first == [5, 7]
    request.pages = [5, 7]
    assert step() is not first
