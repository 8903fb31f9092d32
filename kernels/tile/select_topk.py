"""The top-k selector in TileLang, one thread block per row: a threshold from a sample, then a radix select.

The radix select works on the candidates, the values that reach the threshold; if the sample was misleading, on the row itself. One
integer, `rank`, orders values and positions, so that of equal values the lowest position is selected. The selected positions are
kept as a bitmap, and written from it in ascending order.
"""

from typing import Any

import tilelang.language as T
import torch

from ..reference.select_topk import positions_to_slots, write_record
from ..types import Selection
from .factory import tile_kernel

THREADS = 512
WARPS = THREADS // 32
DIGIT_BITS = 11
DIGITS = 1 << DIGIT_BITS
PER_THREAD = DIGITS // THREADS
POSITION_BITS = 23  # together with the 32 bits of a value, five digits
ROUNDS = 5
CAPACITY = 6144  # the most candidates
AT_ONCE = 16  # loads that a thread has in flight
LOWEST = -3.4028234663852886e38  # values >= this are neither NaN nor -inf
COLUMNS = (32768, 262144, 1 << 20)  # sizes of the bitmap, one kernel for each
PASSES = {
    "tl.disable_thread_storage_sync": True,  # the kernel has its own barriers, most of them in uniform branches
    "tl.disable_safe_memory_legalize": True,
}


def key_of(value: Any) -> Any:
    """fp32 -> uint32 in the same order; -0.0 has the key of +0.0."""
    bits = T.reinterpret(value, "uint32")
    return T.if_then_else(bits > T.uint32(0x80000000), ~bits, bits | T.uint32(0x80000000))


def rank_of(value: Any, position: Any) -> Any:
    """uint64 in the order of values, and for equal values in descending order of positions."""
    place = T.cast((1 << POSITION_BITS) - 1 - position, "uint64")
    return T.shift_left(T.cast(key_of(value), "uint64"), T.uint64(POSITION_BITS)) | place


@T.macro
def scan(value: Any, before: Any, total: Any, sums: Any, tx: Any) -> None:
    """Sum `value` [1] over the threads before this one, and over all threads. Takes two barriers."""
    lane = tx % 32
    other = T.alloc_local((1,), "int32")
    warps = T.alloc_local((1,), "int32")
    before[0] = value[0]
    through(before, other, lane)
    if lane == 31:
        sums[tx // 32] = before[0]
    T.sync_threads()
    warps[0] = 0
    if lane < WARPS:
        warps[0] = sums[lane]
    through(warps, other, lane)
    total[0] = T.shfl_sync(warps[0], 31)
    other[0] = T.shfl_sync(warps[0], T.max(tx // 32 - 1, 0))
    before[0] -= value[0]
    if tx >= 32:
        before[0] += other[0]
    T.sync_threads()


@T.macro
def through(sum: Any, other: Any, lane: Any) -> None:
    """Sum `sum` [1] over the lanes up to this one."""
    for step in T.unroll(5):
        other[0] = T.shfl_up(sum[0], 1 << step)
        if lane >= (1 << step):
            sum[0] += other[0]


@T.macro
def clear(histogram: Any, tx: Any) -> None:
    for i in T.unroll(PER_THREAD):
        histogram[i * THREADS + tx] = 0


@T.macro
def find_digit(histogram: Any, found: Any, needed: Any, sums: Any, tx: Any) -> None:
    """Find the digit of the needed-th best entry: found = (digit, entries above it, entries with it, all entries)."""
    mine = T.alloc_local((1,), "int32")
    above = T.alloc_local((1,), "int32")
    total = T.alloc_local((1,), "int32")
    mine[0] = 0
    for i in T.unroll(PER_THREAD):
        mine[0] += histogram[DIGITS - 1 - tx * PER_THREAD - i]
    scan(mine, above, total, sums, tx)
    for i in T.unroll(PER_THREAD):
        digit = DIGITS - 1 - tx * PER_THREAD - i
        if above[0] < needed and needed <= above[0] + histogram[digit]:
            found[0] = digit
            found[1] = above[0]
            found[2] = histogram[digit]
        above[0] += histogram[digit]
    if tx == 0:
        found[3] = total[0]
    T.sync_threads()


@T.macro
def count_digit(histogram: Any, rank: Any, prefix: Any, shift: Any) -> None:
    """Count the digit at `shift` of a rank if its higher digits are `prefix`."""
    if T.shift_right(rank, shift + T.uint64(DIGIT_BITS)) == prefix:
        T.atomic_add(histogram[T.cast(T.shift_right(rank, shift), "int32") & (DIGITS - 1)], 1)


@T.macro
def load_values(values: Any, logits: Any, row: Any, first: Any, base: Any, length: Any) -> None:
    """Load every THREADS-th value of a row from `base` on; past its end, what no threshold selects."""
    for i in T.unroll(AT_ONCE):
        values[i] = T.float32(LOWEST) * 2
        if base + i * THREADS < length:
            values[i] = logits[row, first + base + i * THREADS]


@tile_kernel((COLUMNS[0], False), (COLUMNS[1], True), pass_configs=PASSES)
def select_kernel(most_columns: int, paged: bool) -> Any:
    """Select from rows of up to `most_columns`; writes slots if `paged`, else positions."""
    rows, columns, k, pages = T.dynamic("rows, columns, k, pages")
    pitch, table_pitch = T.dynamic("pitch, table_pitch")

    @T.prim_func
    def kernel(
        logits: T.StridedTensor((rows, columns), (pitch, 1), "float32"),
        starts: T.Tensor((rows,), "int32"),
        ends: T.Tensor((rows,), "int32"),
        table: T.StridedTensor((rows, pages), (table_pitch, 1), "int32"),
        page_size: T.int32,
        out: T.Tensor((rows, k), "int32"),
    ):
        with T.Kernel(rows, threads=THREADS) as row:
            T.annotate_min_blocks_per_sm(3 if most_columns == COLUMNS[0] else 1)
            tx = T.get_thread_binding()
            histogram = T.alloc_shared((DIGITS,), "int32")
            sums = T.alloc_shared((32,), "int32")
            found = T.alloc_shared((4,), "int32")
            candidates = T.alloc_shared((1,), "int32")
            ranks = T.alloc_shared((CAPACITY,), "uint64")
            bitmap = T.alloc_shared((most_columns // 32,), "uint32")
            values = T.alloc_local((AT_ONCE,), "float32")
            count, before, total, at, needed, state, written = (T.alloc_local((1,), "int32") for _ in range(7))
            key, word = (T.alloc_local((1,), "uint32") for _ in range(2))
            rank, prefix, threshold = (T.alloc_local((1,), "uint64") for _ in range(3))
            least = T.alloc_local((1,), "float32")

            first = T.max(starts[row], 0)
            length = T.min(ends[row], columns) - first
            words = T.ceildiv(T.max(length, 0), 32)
            clear(histogram, tx)
            for i in T.serial(T.ceildiv(words, THREADS)):
                if i * THREADS + tx < words:
                    bitmap[i * THREADS + tx] = T.uint32(0)
            if tx == 0:
                candidates[0] = 0
            T.sync_threads()

            # A threshold that about k values reach, plus four standard deviations.
            least[0] = LOWEST
            if length > CAPACITY:
                logs = T.min(T.max(10, 32 - T.cast(T.clz(T.cast((length - 1) >> 6, "uint32")), "int32")), 13)
                samples = 1 << logs
                expected = T.cast(k, "float32") * T.cast(samples, "float32") / T.cast(length, "float32")
                needed[0] = T.cast(expected + 4.0 * T.sqrt(expected), "int32") + 2
                for i in T.serial(T.ceildiv(samples, THREADS)):  # one from each stretch, at a changing offset
                    sample = T.cast(i * THREADS + tx, "uint64")
                    start = T.cast(T.shift_right(sample * T.cast(length, "uint64"), T.cast(logs, "uint64")), "int32")
                    jitter = T.shift_right(T.cast(sample, "uint32") * T.uint32(2654435761), T.uint32(16))
                    within = T.shift_right(jitter * T.cast(length >> logs, "uint32"), T.uint32(16))
                    values[0] = logits[row, first + start + T.cast(within, "int32")]
                    key[0] = T.uint32(0)
                    if values[0] >= LOWEST:
                        key[0] = key_of(values[0])
                        T.atomic_add(histogram[T.cast(key[0] >> T.uint32(21), "int32")], 1)
                    ranks[i * THREADS + tx] = T.cast(key[0], "uint64")
                T.sync_threads()
                find_digit(histogram, found, needed[0], sums, tx)
                if found[3] >= needed[0]:
                    needed[0] -= found[1]
                    prefix[0] = T.cast(found[0], "uint64")
                    T.sync_threads()
                    clear(histogram, tx)
                    T.sync_threads()
                    for i in T.serial(T.ceildiv(samples, THREADS)):
                        rank[0] = ranks[i * THREADS + tx]
                        if T.shift_right(rank[0], T.uint64(21)) == prefix[0]:
                            digit = T.cast(T.shift_right(rank[0], T.uint64(10)), "int32") & (DIGITS - 1)
                            T.atomic_add(histogram[digit], 1)
                    T.sync_threads()
                    find_digit(histogram, found, needed[0], sums, tx)
                    key[0] = T.cast(prefix[0], "uint32") << T.uint32(21)
                    key[0] = T.max(key[0] | (T.cast(found[0], "uint32") << T.uint32(10)), T.uint32(0x00800000))
                    key[0] = T.if_then_else(key[0] >= T.uint32(0x80000000), key[0] ^ T.uint32(0x80000000), ~key[0])
                    least[0] = T.reinterpret(key[0], "float32")
                T.sync_threads()

            # The candidates, in any order. Those that do not fit are counted all the same.
            for tile in T.serial(T.ceildiv(T.max(length, 0), THREADS * AT_ONCE)):
                base = tile * (THREADS * AT_ONCE) + tx
                load_values(values, logits, row, first, base, length)
                count[0] = 0
                for i in T.unroll(AT_ONCE):
                    if values[i] >= least[0]:
                        count[0] += 1
                before[0] = count[0]
                through(before, at, tx % 32)
                at[0] = 0
                if tx % 32 == 31 and before[0] > 0:
                    at[0] = T.atomic_add(candidates[0], before[0], return_prev=True)
                at[0] = T.shfl_sync(at[0], 31)
                at[0] += before[0] - count[0]
                if at[0] + count[0] <= CAPACITY:
                    for i in T.unroll(AT_ONCE):
                        if values[i] >= least[0]:
                            ranks[at[0]] = rank_of(values[i], base + i * THREADS)
                            at[0] += 1
            T.sync_threads()

            # The rank of the last selected value, digit by digit, among the candidates or (state 1) over the row.
            total[0] = candidates[0]
            state[0] = T.if_then_else(total[0] > CAPACITY or (total[0] < k and least[0] > LOWEST), 1, 0)
            threshold[0] = T.uint64(0)
            if state[0] == 1 or total[0] > k:
                prefix[0] = T.uint64(0)
                needed[0] = k
                for digit_round in T.serial(ROUNDS):
                    shift = T.cast((ROUNDS - 1 - digit_round) * DIGIT_BITS, "uint64")
                    if needed[0] > 0:
                        clear(histogram, tx)
                        T.sync_threads()
                        if state[0] == 0:
                            for i in T.serial(T.ceildiv(total[0], THREADS)):
                                if i * THREADS + tx < total[0]:
                                    rank[0] = ranks[i * THREADS + tx]
                                    count_digit(histogram, rank[0], prefix[0], shift)
                        else:
                            for tile in T.serial(T.ceildiv(length, THREADS * AT_ONCE)):
                                base = tile * (THREADS * AT_ONCE) + tx
                                load_values(values, logits, row, first, base, length)
                                for i in T.unroll(AT_ONCE):
                                    if values[i] >= LOWEST:
                                        rank[0] = rank_of(values[i], base + i * THREADS)
                                        count_digit(histogram, rank[0], prefix[0], shift)
                        T.sync_threads()
                        find_digit(histogram, found, needed[0], sums, tx)
                        if found[3] < needed[0]:  # in the first round: fewer than k values, so all are selected
                            needed[0] = 0
                        else:
                            prefix[0] = (prefix[0] << T.uint64(DIGIT_BITS)) | T.cast(found[0], "uint64")
                            threshold[0] = prefix[0] << shift
                            needed[0] -= found[1]
                            if found[2] == needed[0]:
                                needed[0] = 0
                        T.sync_threads()

            if state[0] == 0:
                for i in T.serial(T.ceildiv(total[0], THREADS)):
                    if i * THREADS + tx < total[0]:
                        rank[0] = ranks[i * THREADS + tx]
                        if rank[0] >= threshold[0]:
                            mask = T.uint64((1 << POSITION_BITS) - 1)
                            place = T.cast(mask - (rank[0] & mask), "int32")
                            # An addition: each bit is set once, and T.atomic_or supports global memory only.
                            T.atomic_add(bitmap[place // 32], T.uint32(1) << T.cast(place % 32, "uint32"))
            else:
                for tile in T.serial(T.ceildiv(length, THREADS)):
                    place = tile * THREADS + tx
                    at[0] = 0
                    if place < length:
                        values[0] = logits[row, first + place]
                        if values[0] >= LOWEST and rank_of(values[0], place) >= threshold[0]:
                            at[0] = 1
                    word[0] = T.cast(T.ballot_sync(at[0]), "uint32")
                    if tx % 32 == 0 and place < length:
                        bitmap[place // 32] = word[0]
            T.sync_threads()

            written[0] = 0
            for i in T.serial(T.ceildiv(words, THREADS)):
                index = i * THREADS + tx
                word[0] = T.uint32(0)
                if index < words:
                    word[0] = bitmap[index]
                count[0] = T.cast(T.popcount(word[0]), "int32")
                scan(count, before, total, sums, tx)
                before[0] += written[0]
                while word[0] != T.uint32(0):
                    position = index * 32 + 31 - T.cast(T.clz(word[0] & (~word[0] + T.uint32(1))), "int32")
                    at[0] = position + first - starts[row]
                    if paged:
                        place, size = T.cast(at[0], "uint32"), T.cast(page_size, "uint32")  # no signed division
                        at[0] = table[row, T.cast(place // size, "int32")] * page_size + T.cast(place % size, "int32")
                    out[row, before[0]] = at[0]
                    before[0] += 1
                    word[0] = word[0] & (word[0] - T.uint32(1))
                written[0] += total[0]
            for i in T.serial(T.ceildiv(k - written[0], THREADS)):
                if written[0] + i * THREADS + tx < k:
                    out[row, written[0] + i * THREADS + tx] = -1

    return kernel


def select_topk(logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int) -> torch.Tensor:
    return select_topk_slots(Selection(logits, starts, ends, k))


def select_topk_slots(given: Selection) -> torch.Tensor:
    logits, starts, ends, k, block_table, page_size, record = given
    if record is not None and block_table is not None:
        positions = select_topk(logits, starts, ends, k)
        none = torch.iinfo(torch.int32).max  # a record is in ascending order, and ends in -1
        positions = torch.where(positions < 0, none, positions).sort(1).values
        positions = torch.where(positions == none, -1, positions)
        write_record(positions, logits, record)
        return positions_to_slots(positions, block_table, page_size)
    columns = logits.shape[1]
    if columns > COLUMNS[-1]:
        raise ValueError(
            f"logits has {columns} columns; expected at most {COLUMNS[-1]} for backend 'tile'; use backend='reference'"
        )
    out = torch.empty(logits.shape[0], k, dtype=torch.int32, device=logits.device)
    kernel = select_kernel(next(most for most in COLUMNS if columns <= most), block_table is not None)
    starts = torch.zeros_like(ends) if starts is None else starts
    kernel(logits, starts, ends, starts[:, None] if block_table is None else block_table, page_size, out)
    return out
