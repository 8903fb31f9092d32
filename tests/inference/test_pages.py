"""The page pool against a plain model of it, under long random programs."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from deepseek_v32.inference.engine.scheduling.pages import ROOT, PagePool
from support.pages import check_pool

SIZE = 2  # tokens per page


class Holder:
    """A sequence that holds pages. `tokens` are those that it has, or will have, in them."""

    def __init__(self, tokens: list[int], pages: list[int], prefix_id: int) -> None:
        self.tokens, self.pages, self.prefix_id, self.cached_pages = tokens, pages, prefix_id, len(pages)


class PoolMachine(RuleBasedStateMachine):
    operations = 0

    @initialize(page_count=st.integers(1, 12), reuse=st.sampled_from([True, True, True, False]))
    def start(self, page_count: int, reuse: bool) -> None:
        self.pool = PagePool(page_count, SIZE, reuse)
        self.holders: list[Holder] = []
        self.contents: dict[
            int, tuple[int, ...] | None
        ] = {}  # page → the whole prefix up to its end; None: not written

    @rule(program=st.binary(min_size=32, max_size=256))  # one byte per operation is cheap to generate and shrinks well
    def run(self, program: bytes) -> None:
        for byte in program:
            self.operate(byte & 7, byte >> 3)
            held = {page for holder in self.holders for page in holder.pages}
            assert self.pool.used == len(held)
            assert self.pool.free + self.pool.used + self.pool.cached == self.pool.page_count
            type(self).operations += 1
        check_pool(self.pool)
        held_pages = [page for holder in self.holders for page in holder.pages]
        assert self.pool._references == [held_pages.count(page) for page in range(self.pool.page_count)]

    def operate(self, operation: int, value: int) -> None:
        if operation <= 1:
            self.begin([value >> bit & 1 for bit in range(5)] * 2)
        elif not self.holders:
            return
        elif operation == 2:
            self.grow(self.holders[value % len(self.holders)])
        elif operation <= 4:
            self.fill(self.holders[value % len(self.holders)])
        elif operation <= 6:
            self.pool.release(self.holders.pop(value % len(self.holders)).pages)
        elif value < 28:
            self.pool.discard(self.holders[value % len(self.holders)].pages)
        else:
            self.pool.clear()
            assert self.pool.cached == 0

    def begin(self, tokens: list[int]) -> None:
        pages, prefix_id, _ = self.pool.match(tokens[:-1])
        for i, page in enumerate(pages):
            assert self.contents[page] == tuple(tokens[: (i + 1) * SIZE]), "a page with other contents"
        assert self.pool.reuse or not pages
        self.holders.append(Holder(tokens, pages, prefix_id))

    def grow(self, holder: Holder) -> None:
        if self.pool.available and len(holder.pages) * SIZE < len(holder.tokens):
            held = {page for holder in self.holders for page in holder.pages}
            [page] = self.pool.allocate(1)
            assert page not in held, "a page in use was given away"
            self.contents[page] = None
            holder.pages.append(page)

    def fill(self, holder: Holder) -> None:
        i = holder.cached_pages
        if i < len(holder.pages):
            self.contents[holder.pages[i]] = tuple(holder.tokens[: (i + 1) * SIZE])
            tokens = holder.tokens[i * SIZE : (i + 1) * SIZE]
            holder.prefix_id = self.pool.register(holder.pages[i], holder.prefix_id, tokens)
            holder.cached_pages += 1


@pytest.mark.heavy
def test_random_operations_conserve_pages_and_contents() -> None:
    PoolMachine.operations = 0
    while PoolMachine.operations < 80_000:
        run_state_machine_as_test(
            PoolMachine, settings=settings(max_examples=40, stateful_step_count=20, deadline=None, database=None)
        )


def filled(pool: PagePool, tokens: list[int]) -> list[int]:
    pages = pool.allocate(len(tokens) // SIZE)
    prefix_id = ROOT
    for i, page in enumerate(pages):
        prefix_id = pool.register(page, prefix_id, tokens[i * SIZE : (i + 1) * SIZE])
    return pages


def test_a_prefix_is_found_in_whole_pages_only() -> None:
    pool = PagePool(8, SIZE)
    pages = filled(pool, [1, 2, 3, 4])
    pool.release(pages)
    assert (pool.free, pool.used, pool.cached) == (6, 0, 2)
    assert pool.match([1])[0] == []
    assert pool.match([1, 2, 3])[0] == pages[:1]
    assert pool.match([1, 2, 3, 4, 5])[0] == pages
    assert pool.match([3, 4])[0] == []  # the same page, another prefix


def test_tokens_are_compared_and_not_their_hashes() -> None:
    pool = PagePool(8, SIZE)
    assert hash((-1, 5)) == hash((-2, 5))  # in Python -1 and -2 have the same hash
    filled(pool, [-1, 5])
    assert pool.match([-2, 5])[0] == []


def test_the_least_recently_used_page_is_evicted_first_and_a_prefix_from_its_end() -> None:
    pool = PagePool(4, SIZE)
    old, new = filled(pool, [1, 1, 2, 2]), filled(pool, [3, 3, 4, 4])
    pool.release(old)
    pool.release(new)
    pool.release(pool.match([1, 1])[0])  # used again: now the most recently used
    assert pool.allocate(3) == [old[1], new[1], new[0]]
    assert pool.match([1, 1, 2, 2])[0] == old[:1]


def test_discarded_pages_are_not_found_and_are_free_when_released() -> None:
    pool = PagePool(4, SIZE)
    pages = filled(pool, [1, 1, 2, 2])
    shared, *_ = pool.match([1, 1])
    pool.discard(pages)
    assert pool.match([1, 1])[0] == []
    pool.release(pages)
    assert (pool.free, pool.used, pool.cached) == (3, 1, 0)
    pool.release(shared)
    check_pool(pool)
    assert pool.free == 4


def test_the_same_contents_twice_are_registered_once() -> None:
    pool = PagePool(4, SIZE)
    first, second = filled(pool, [1, 1, 2, 2]), filled(pool, [1, 1, 2, 2])
    pool.release(second)
    assert (pool.free, pool.cached) == (2, 0)
    pool.release(first)
    assert (pool.free, pool.cached) == (2, 2)
    check_pool(pool)
