"""Checks that must hold between two steps of an engine, computed from its lists rather than by its methods."""

from collections import Counter

from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from simulation.model import latents
from simulation.runner import SimulatedRunner, expected_drafts


def check_engine(engine: Engine, runner: SimulatedRunner) -> None:
    """AssertionError if a page is lost, shared by unequal prefixes or kept for other tokens, or if the runner saw a wrong read."""
    assert not runner.broken, runner.broken[0]
    scheduler = engine.scheduler
    requests = [*scheduler.running, *scheduler.waiting]
    for queue in (scheduler.running, scheduler.waiting):
        ids = [request.id for request in queue]
        assert ids == sorted(set(ids)), "a queue is not in the order of arrival"
    assert {request.id for request in requests} == set(engine._states), (
        "the engine and its scheduler know different requests"
    )
    check_pages(engine.pool, requests)
    check_cached(engine.pool, runner)


def is_writable(pool: PagePool, page: int) -> bool:
    """Tell whether only the page's one holder can read it, now or later."""
    return pool._references[page] == 1 and pool._keys[page] is None


def check_pages(pool: PagePool, requests: list[Request]) -> None:
    """free + used + cached = all; a page has one owner, or is shared by requests with equal prefixes."""
    held = Counter(page for request in requests for page in request.cache.pages)
    lists = Counter(pool._free) + Counter(pool._cached.keys())
    for page in range(pool.page_count):
        assert pool._references[page] == held[page], f"page {page} is held {held[page]} times, not as counted"
        assert lists[page] == (not held[page]), f"page {page} is held {held[page]} times and free {lists[page]} times"
    assert pool.free + pool.used + pool.cached == pool.page_count
    owners: dict[int, tuple[Request, int]] = {}
    for request in requests:
        for number, page in enumerate(request.cache.pages):
            owner, place = owners.setdefault(page, (request, number))
            end = (number + 1) * pool.page_size
            equal = owner.tokens[:end] == request.tokens[:end] and len(request.tokens) >= end
            ordinary = end <= min(owner.shareable, request.shareable)
            shared = place == number and equal and ordinary
            assert owner is request or shared, f"page {page} is shared by unequal prefixes"


def check_cached(pool: PagePool, runner: SimulatedRunner) -> None:
    """Every page that can be found holds the latents of its tokens, and the index keys that were written with them."""
    for (prefix, following), page in findable(pool).items():
        assert page not in pool._free, f"page {page} is free and can be found"
        slots = range(page * pool.page_size, (page + 1) * pool.page_size)
        found = [runner.latent[slot].value for slot in slots]
        assert found == [*latents(prefix)[-pool.page_size :]], f"page {page} is kept for tokens that it does not hold"
        assert all(runner.latent[slot].write == runner.index[slot].write for slot in slots), (
            f"page {page}: stale index key"
        )
        if following:
            layer = [runner.layer[slot] for slot in slots]
            assert layer == expected_drafts([*prefix, *following])[-pool.page_size :], (
                f"page {page}: the draft layer's entries are for other tokens"
            )


def findable(pool: PagePool) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int]:
    """The page that a prompt finds, by the tokens that it begins with and the token after them, if that one matters."""
    prefixes: dict[int, tuple[int, ...]] = {0: ()}
    pages = {}
    for (before, tokens), (page, after) in sorted(pool._entries.items(), key=lambda item: item[1][1]):
        if before in prefixes:  # else the page before it is evicted, and no prompt gets here
            prefixes[after] = prefixes[before] + tokens[: pool.page_size]
            pages[prefixes[after], tokens[pool.page_size :]] = page
    return pages
