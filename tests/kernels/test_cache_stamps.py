"""Stamps next to the caches: chains and stamps against Python's integers, and every single wrong value is found and named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cache_stamps import check_cache, multiplier_table, stamp_tokens
from deepseek_v32.kernels.cache_write import write_index_cache, write_latent_cache
from deepseek_v32.kernels.implementations import OPERATIONS
from deepseek_v32.kernels.reference.cache_stamps import (
    CHAIN,
    COMPARE_HASH,
    INDEX_BYTES,
    LATENT_BYTES,
    RECORD_HASH,
    TOKENS,
    Stamps,
    decode_tasks,
)
from deepseek_v32.kernels.types import INDEX, LATENT, Stamp
from support.backends import Backend

PAGE, PAGES, LAYERS, ROWS, PADDING = 64, 12, 3, 4, 11
LATENT_BYTES_OF, INDEX_BYTES_OF = 656, 132
TWO = 2**64
TABLE = [[7, 2, 9, 0], [1, 5, 3, 0]]  # pages of two sequences
LENGTHS = [150, 70]
NAMES = {LATENT: "latent", INDEX: "index"}


class World:
    """Two sequences in pages, stamped and hashed by the implementation under test, with random bytes as entries."""

    def __init__(self, backend: Backend) -> None:
        if all(one.backend != backend.name for one in OPERATIONS["check_cache"]):
            pytest.skip(f"check_cache: {backend.name} not written")
        self.device, self.backend = backend.device, backend.name
        generator = torch.Generator().manual_seed(3)
        shapes = [(PAGES, PAGE, 1, width) for width in (LATENT_BYTES_OF, INDEX_BYTES_OF)]
        self.caches: Any = [
            tuple(torch.randint(256, s, dtype=torch.uint8, generator=generator).to(self.device) for s in shapes)
            for _ in range(LAYERS)
        ]
        self.factors = multiplier_table(20)[-2 * LAYERS :].reshape(LAYERS, 2)
        self.multipliers = multiplier_table(PAGE * LATENT_BYTES_OF // 8)
        self.stamps = Stamps(
            page_size=PAGE,
            chains=self.full((PAGES * PAGE, 2), -1),
            columns=self.full((LAYERS, 2, PAGES * PAGE), 0).int(),
            hashes=self.full((LAYERS, 2, PAGES), 0),
            factors=self.tensor(self.factors.view(np.int64)),
            multipliers=self.tensor(self.multipliers.view(np.int64)),
            addresses=self.tensor([[cache.data_ptr() for cache in pair] for pair in self.caches]),
            page_words=(PAGE * LATENT_BYTES_OF // 8, PAGE * INDEX_BYTES_OF // 8),
            claims=self.full((ROWS,), 0),
            found=torch.zeros(2, 1 + 4 * ROWS, dtype=torch.int64, pin_memory=self.device.type == "cuda"),
            padding_page=PADDING,
        )
        self.table = self.tensor(TABLE).int()
        self.tokens = [torch.randint(1000, (length,), generator=generator).tolist() for length in LENGTHS]
        self.step = 0

    def tensor(self, values: Any) -> torch.Tensor:
        return torch.as_tensor(np.array(values, dtype=np.int64)).to(self.device)

    def full(self, shape: tuple[int, ...], value: int) -> torch.Tensor:
        return torch.full(shape, value, dtype=torch.int64, device=self.device)

    def slot(self, row: int, position: int) -> int:
        return TABLE[row][position // PAGE] * PAGE + position % PAGE

    def write(self, *chunks: tuple[int, int, int]) -> torch.Tensor:
        """Stamp chunks (row, start, end) in one step, and store the stamps as the launches do."""
        rows = [row for row, _, _ in chunks]
        places = [(row, position) for row, start, end in chunks for position in range(start, end)]
        tokens, positions, slots = (
            self.tensor(values)
            for values in (
                [self.tokens[row][position] for row, position in places],
                [position for _, position in places],
                [self.slot(row, position) for row, position in places],
            )
        )
        starts = None
        if len(places) > len(chunks):
            starts = self.tensor(np.cumsum([0, *(end - start for _, start, end in chunks)])).int()
        values = stamp_tokens(
            tokens, positions, slots, self.table[rows].contiguous(), starts, self.stamps, backend=self.backend
        )
        self.stamps.columns[:, :, slots] = values
        return values

    def check(self, tasks: Any = None, lengths: Any = None, truths: Any = None) -> list[tuple[int, ...]]:
        """(row, kind, layer, position, expected, found) of each row with a mismatch."""
        self.step += 1
        given = [
            None if values is None else self.tensor(values).reshape(-1, w) for values, w in ((tasks, 5), (truths, 3))
        ]
        check_cache(
            self.caches,
            self.stamps,
            self.table,
            self.tensor([self.step]),
            given[0],
            None if lengths is None else self.tensor(lengths).int(),
            given[1],
            backend=self.backend,
        )
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        half = self.stamps.found[self.step % 2].tolist()
        records = [half[1 + 4 * row : 5 + 4 * row] for row in range(ROWS)]
        assert (half[0] == self.step) == any(number == self.step for number, *_ in records)
        return [
            (row, where >> 48, where >> 32 & 0xFFFF, where & 0xFFFFFFFF, expected, found)
            for row, (number, where, expected, found) in enumerate(records)
            if number == self.step
        ]

    def chain(self, row: int, count: int) -> int:
        """By Python's integers."""
        return sum((t + 1) * int(m) for t, m in zip(self.tokens[row][:count], self.multipliers, strict=False)) % TWO

    def all_tasks(self, action: int = 0) -> list[tuple[int, ...]]:
        """Every page of both sequences; the actions are for the full ones."""
        return [
            (row, page, min(PAGE, length - page * PAGE), action * (length - page * PAGE >= PAGE), row)
            for row, length in enumerate(LENGTHS)
            for page in range(-(-length // PAGE))
        ]


def signed(value: int, bits: int = 64) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@pytest.fixture
def world(backend: Backend) -> World:
    """Chunks and decodes have been written, and the full pages hashed."""
    world = World(backend)
    world.write((0, 0, 100), (1, 0, 69))
    world.write((0, 100, 149))
    world.write((0, 149, 150), (1, 69, 70))
    assert world.check(tasks=world.all_tasks(RECORD_HASH)) == []
    return world


def test_multipliers_are_odd_and_differ() -> None:
    table = multiplier_table(100_000)
    assert (table & np.uint64(1)).all() and len(np.unique(table)) == len(table)
    assert hex(int(table[0])) == "0xe220a8397b1dcdaf"  # the first number of SplitMix64 with seed 0, which is odd


def test_chains_and_stamps(world: World) -> None:
    """Chunks that begin inside of pages, several sequences in a step, and decodes, against sums in unbounded integers."""
    chains, columns = world.stamps.chains.tolist(), world.stamps.columns.tolist()
    for row, length in enumerate(LENGTHS):
        for position in range(length):
            slot, after = world.slot(row, position), world.chain(row, position + 1)
            assert chains[slot] == [signed(world.chain(row, position)), signed(after)]
            for layer in range(LAYERS):
                for kind in (0, 1):
                    stamp = after * int(world.factors[layer, kind]) % TWO >> 32
                    assert columns[layer][kind][slot] == signed(stamp, 32)
    untouched = set(range(PAGES * PAGE)) - {world.slot(r, p) for r in (0, 1) for p in range(LENGTHS[r])}
    assert all(chains[slot] == [-1, -1] for slot in untouched)


def test_nothing_is_found_where_nothing_is_wrong(world: World) -> None:
    truths = [(row, p, signed(world.chain(row, p + 1))) for row in (0, 1) for p in (0, 63, 64, LENGTHS[row] - 1)]
    assert world.check(tasks=world.all_tasks(COMPARE_HASH), truths=[*truths, (-1, 0, 0)]) == []
    for more in range(8):
        assert world.check(lengths=[LENGTHS[0] - more, LENGTHS[1] - more], truths=truths) == []


def flip(tensor: torch.Tensor, index: tuple[int, ...], bit: int = 0) -> None:
    tensor[index] ^= 1 << bit


# name: (what goes wrong, the kind that is found, its layer, its position in sequence 0)
WRONG: dict[str, tuple[Callable[[World], None], int, int, int]] = {
    "latent's stamp": (lambda w: flip(w.stamps.columns, (2, 0, w.slot(0, 77))), LATENT, 2, 77),
    "index key's stamp": (lambda w: flip(w.stamps.columns, (1, 1, w.slot(0, 149)), 31), INDEX, 1, 149),
    "chain before": (lambda w: flip(w.stamps.chains, (w.slot(0, 64), 0), 63), CHAIN, 0, 64),
    "first chain": (lambda w: flip(w.stamps.chains, (w.slot(0, 0), 0)), CHAIN, 0, 0),
    "byte of a latent": (lambda w: flip(w.caches[1][0], (TABLE[0][1], 63, 0, 655), 7), LATENT_BYTES, 1, 64),
    "byte of an index key": (lambda w: flip(w.caches[2][1], (TABLE[0][0], 0, 0, 0)), INDEX_BYTES, 2, 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_value_is_found(name: str, world: World) -> None:
    wrong, kind, layer, position = WRONG[name]
    wrong(world)
    [(row, *found, expected, present)] = world.check(tasks=world.all_tasks(COMPARE_HASH))
    assert (row, *found) == (0, kind, layer, position) and expected != present
    [again] = world.check(tasks=[(1, 0, 64, 0, 1), *world.all_tasks(COMPARE_HASH)])  # the other half of `found`
    assert again == (row, *found, expected, present)


def test_values_of_a_mismatch(world: World) -> None:
    slot = world.slot(1, 65)
    world.stamps.columns[0, 1, slot] = 12345
    stamp = signed(world.chain(1, 66) * int(world.factors[0, 1]) % TWO >> 32, 32)
    assert world.check(tasks=[(1, 1, 6, 0, 3)]) == [
        (3, INDEX, 0, 65, stamp, 12345)
    ]  # told as the row that the task says
    assert world.check(tasks=[(1, 1, 1, 0, 3)]) == []  # the entries that the task leaves out


def test_the_chain_that_the_host_knows(world: World) -> None:
    truth = signed(world.chain(0, 150))
    assert world.check(lengths=LENGTHS, truths=[(0, 149, truth ^ 1)]) == [(0, TOKENS, 0, 149, truth ^ 1, truth)]


def test_swapped_pages_break_the_chain(world: World) -> None:
    """Every page is consistent in itself."""
    world.table[0, 0], world.table[1, 0] = TABLE[1][0], TABLE[0][0]
    found = world.check(tasks=world.all_tasks())
    assert [(row, kind, position) for row, kind, _, position, *_ in found] == [(0, CHAIN, 64), (1, CHAIN, 64)]


def test_padding_rows_are_not_checked(world: World) -> None:
    world.table[:, 0] = PADDING
    assert world.check(lengths=[1, 1]) == []


def test_step_zero_reports_nothing(world: World) -> None:
    """Warm-up runs of decode graphs have this number."""
    flip(world.stamps.columns, (0, 0, world.slot(0, 0)))
    world.step = -1
    world.check(tasks=world.all_tasks())
    assert not world.stamps.found[:, 1:].any() or world.stamps.found[0, 0] == 0


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129, 1000])
def test_decodes_check_their_page_and_an_earlier_one(length: int) -> None:
    own, earlier = decode_tasks(torch.tensor([length], dtype=torch.int32), PAGE).tolist()
    assert own == [0, (length - 1) // PAGE, (length - 1) % PAGE + 1, RECORD_HASH * (length % PAGE == 0), 0]
    assert earlier[2] == (PAGE if length > PAGE else 0)
    assert length <= PAGE or 0 <= earlier[1] < own[1]
    assert earlier[3] == COMPARE_HASH * (length > PAGE and (length - 1) % 8 == 0)


@pytest.mark.parametrize("pages", [10, 300])  # 300: more pages than a page has tokens
def test_decodes_come_around_to_nearly_all_earlier_pages(pages: int) -> None:
    """Stamps in four times as many steps as there are pages, and hashes in four times that of HASH_EVERY-th steps."""
    lengths = torch.arange(64 * pages + 1, 64 * pages + 1 + 32 * pages, dtype=torch.int32)
    seen = decode_tasks(lengths, PAGE)[len(lengths) :]
    first, hashed = seen[: 4 * pages, 1].tolist(), seen[seen[:, 3] > 0, 1].tolist()
    assert len(set(first)) >= 0.95 * pages and len(set(hashed)) >= 0.95 * pages


def test_launches_store_stamps_beside_their_entries(backend: Backend) -> None:
    """FP8 and plain caches. Only the slots that are written change; the entries equal those from a launch without stamps."""
    generator = torch.Generator().manual_seed(5)
    angles = torch.randn(3, 32, generator=generator)
    slots = torch.tensor([70, 3, 64])
    for name, width, sizes in (("latent", 576, (656, 576)), ("index", 128, (132, 128))):
        rows = torch.randn(3, width, generator=generator).bfloat16()
        for dtype, record in zip((torch.uint8, torch.bfloat16), sizes, strict=True):
            written = []
            for stamped in (True, False):
                cache = torch.zeros(2, PAGE, 1, record, dtype=dtype)
                stamp = Stamp(torch.full((2 * PAGE,), -7, dtype=torch.int32), torch.tensor([5, -6, 2**31 - 1]).int())
                options = {"stamp": stamp} if stamped else {}
                if name == "latent":
                    weight = torch.ones(512)
                    backend.run(
                        write_latent_cache,
                        rows,
                        weight,
                        1e-6,
                        angles.cos(),
                        angles.sin(),
                        cache,
                        slots,
                        *options.values(),
                    )
                else:
                    backend.run(
                        write_index_cache, rows, angles.cos(), angles.sin(), cache, slots, False, *options.values()
                    )
                written.append(cache)
                expected = torch.full((2 * PAGE,), -7, dtype=torch.int32)
                if stamped:
                    expected[slots] = stamp.values
                assert torch.equal(stamp.column, expected)
            assert torch.equal(*written)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"query_starts": torch.tensor([0, 2])}, r"query_starts has dtype torch\.int64; expected torch\.int32"),
        ({"query_starts": None}, r"block_table has shape \[1, 1\]; expected \[2, \*\]"),
        ({"positions": torch.zeros(3).long()}, r"positions has shape \[3\]; expected \[2\]"),
    ],
)
def test_misuse(argument: dict[str, Any], message: str) -> None:
    two = torch.zeros(2, dtype=torch.int64)
    arguments: dict[str, Any] = {
        "tokens": two,
        "positions": two,
        "slots": two,
        "query_starts": torch.tensor([0, 2]).int(),
    }
    stamps: Any = None
    with pytest.raises(ValueError, match=message):
        stamp_tokens(block_table=torch.zeros(1, 1, dtype=torch.int32), stamps=stamps, **arguments | argument)
    with pytest.raises(ValueError, match="tasks and lengths are both given or both None; expected one of them"):
        check_cache([], stamps, torch.zeros(1, 1, dtype=torch.int32), torch.ones(1).long(), None, None, None)
