"""Matrix products on a CPU in which a row's bits depend only on that row and the weight.

A BLAS chooses its code, and with it the order of a sum, by the shape of a product, by the alignment of its operands and, for
ragged column counts, by the number of threads; never by the numbers. So every row takes part in a product of one of a few fixed
shapes: rows go in blocks of 64, 16 and 4 (or 8, or 16, where 4 disagrees), the last padded with zeros; columns and summands are
padded to multiples of 16. No BLAS promises that such blocks give a row the same bits at every place and by any number of
threads. So before the first product of a weight's shape, `block_sizes` compares them, and takes only sizes that agree. If none
does, as for long sums with MKL's code for AVX2, the two halves of the sum are made in the same way and added.
"""

from functools import cache

import torch
import torch.nn.functional as F

from ..reference.linear import linear as packed_linear

SIZES = (64, 16, 4)  # rows of a block: 4 for decoding; a row of 64 takes about as long as one of 2,048
SMALLEST = (4, 8, 16)  # tried in this order; MKL 2024.2 gives blocks of 1 to 3 rows other bits than all multiples of 4
PACKED_SIZES = (1, 2, 3, 4, 7, 16, 33, 64, 256, 1024)  # rows of the batches that `packed_rows` compares
PACKED_WEIGHT = 1 << 20  # elements of a weight; with larger ones the last two are left out
HEAD_ROWS = 16  # rows of products over the heads of one token
WIDTH = 16  # fp32 numbers in a cache line, to which operands are aligned


def padded(x: torch.Tensor, dim: int, multiple: int) -> torch.Tensor:
    """Pad x with zeros at the end of `dim`, up to a multiple."""
    missing = -x.shape[dim] % multiple
    return x if not missing else F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, missing))


def aligned(x: torch.Tensor) -> torch.Tensor:
    """Return x, contiguous and starting at a cache line, as torch allocates memory on a CPU."""
    x = x.contiguous()
    return x if x.data_ptr() % (4 * WIDTH) == 0 else x.clone()


def row_products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply x fp32 [T, K] by weight fp32 [N, K] transposed -> [T, N]. RuntimeError if no block sizes agree for any part of K."""
    tokens, columns = x.shape[0], weight.shape[0]
    weight = padded(padded(weight, 0, WIDTH), 1, WIDTH).T
    sizes = block_sizes(*weight.shape, weight.stride(1) == 1)
    if not sizes:
        return _sum_of_halves(x, weight)[:, :columns].contiguous()
    x = aligned(padded(padded(x, 0, sizes[-1]), 1, WIDTH))
    parts, first = [x.new_empty(0, weight.shape[1])] if not tokens else [], 0
    for size in sizes:
        count = (x.shape[0] - first) // size
        if count:
            parts.append(_in_blocks(x[first : first + count * size], weight, size))
        first += count * size
    out = parts[0] if len(parts) == 1 else torch.cat(parts)
    return out[:tokens, :columns].contiguous()


def head_products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply each head's rows of x fp32 [T, H, K] by its weight fp32 [H, K, N] -> [T, H, N]."""
    (tokens, heads, _), columns = x.shape, weight.shape[2]
    whole, weight = weight, padded(padded(weight, 1, WIDTH), 2, WIDTH)
    sizes = block_sizes(*weight.shape[1:], weight.stride(2) == 1)
    if tokens >= SIZES[0] or not sizes:
        return torch.stack([row_products(x[:, head], whole[head].T) for head in range(heads)], 1)
    # Few rows: a block of all heads at a time, the same products in fewer calls.
    size = sizes[-1]
    x = aligned(padded(padded(x, 0, size), 2, WIDTH).transpose(0, 1))
    parts = [torch.bmm(block, weight) for block in x.split(size, 1)] if tokens else [x @ weight]
    out = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return out.transpose(0, 1)[:tokens, :, :columns]


@cache
def block_sizes(width: int, outputs: int, row_major: bool) -> tuple[int, ...]:
    """Return the sizes of blocks whose products with a weight [width, outputs] give a row the same bits here, largest first.

    Empty if there is none. row_major: the weight's rows are contiguous; otherwise its columns are.
    """
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((width, outputs) if row_major else (outputs, width), generator=generator)
    weight = weight if row_major else weight.T
    rows = torch.randn(SIZES[0], width, generator=generator)
    threads = torch.get_num_threads()
    try:
        for smallest in SMALLEST:
            torch.set_num_threads(1)
            expected = _in_blocks(rows, weight, smallest)
            if _agrees(rows, weight, smallest, expected, threads):
                larger = (size for size in SIZES if size > smallest and _agrees(rows, weight, size, expected, threads))
                return *larger, smallest
    finally:
        torch.set_num_threads(threads)
    return ()


@cache
def packed_rows(width: int, outputs: int) -> int:
    """Return how many rows oneDNN may multiply at once with a weight [outputs, width] without a change of any row's bits; 0: none.

    ../reference/linear.py says why a row's bits should not depend on the others. Batches of different sizes are compared on this
    machine, at several places, by one thread and more, with the weight in oneDNN's layout and as it is.
    """
    sizes = PACKED_SIZES if width * outputs <= PACKED_WEIGHT else PACKED_SIZES[:-2]  # large weights in a second or two
    most = sizes[-1]
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(most, width, generator=generator)
    weight = torch.nn.Parameter(torch.randn(outputs, width, generator=generator), requires_grad=False)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = packed_linear(rows, weight)
        for count in sorted({1, 2, threads}):
            torch.set_num_threads(count)
            for size in sizes:
                for first in sorted({0, (most - size) // 3}):
                    some = slice(first, first + size)
                    if not torch.equal(packed_linear(rows[some], weight), expected[some]):
                        return 0
            if not torch.equal(packed_linear(rows[:5], weight.detach()), expected[:5]):
                return 0
    finally:
        torch.set_num_threads(threads)
    return most


def _sum_of_halves(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x [T, K] times weight [K', N] -> [T, N], K' being K padded: the products of each half of K', added."""
    width, outputs = weight.shape
    if width <= WIDTH:
        raise RuntimeError(
            f"deterministic is True; expected a BLAS whose products of {SMALLEST} rows do not depend on a row's place, but those "
            f"with a weight [{width}, {outputs}] do on this machine"
        )
    half = -(-width // (2 * WIDTH)) * WIDTH
    first = row_products(x[:, :half], weight[:half].T.contiguous())
    return first + row_products(x[:, half:], weight[half:, :].T.contiguous())


def _in_blocks(rows: torch.Tensor, weight: torch.Tensor, size: int) -> torch.Tensor:
    """Multiply rows [T, K], T a multiple of `size`, by weight [K, N] -> [T, N]."""
    blocks = rows.unflatten(0, (-1, size))
    return torch.bmm(blocks, weight.expand(blocks.shape[0], -1, -1)).flatten(0, 1)


def _agrees(rows: torch.Tensor, weight: torch.Tensor, size: int, expected: torch.Tensor, threads: int) -> bool:
    """Check that blocks of `size` rows give every row the expected bits: at other places, in one block or many, by more threads."""
    for count in sorted({1, 2, max(threads - 1, 1), threads}):
        torch.set_num_threads(count)
        for shift in (0, 1, size // 2 + 1):
            moved = _in_blocks(rows.roll(shift, 0), weight, size).roll(-shift, 0)
            if not torch.equal(moved, expected):
                return False
        if not torch.equal(_in_blocks(rows[:size], weight, size), expected[:size]):
            return False
    return True


def sum_in_halves(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Sum over `dim`, whose size is a power of two: add the second half to the first until one element is left."""
    while (size := x.shape[dim]) > 1:
        first, second = x.split(size // 2, dim)
        x = first + second
    return x.squeeze(dim)
