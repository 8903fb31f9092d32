"""Attention over gathered latents in TileLang, with explicit warp specialisation: the seesaw schedule.

"Seesaw" is FlashMLA's name for it (docs/20250422-new-kernel-deep-dive.md there). There are two math warpgroups and a producer
warpgroup. A thread block has 64 heads of a query, which share their keys, and processes the keys in pairs of 64-key blocks. Group 0
computes the scores of even blocks, group 1 of odd ones. Each group owns 256 of the 512 output columns, and passes its probabilities
to the other group through shared memory:

    group 0 (columns 0-255):   Q K0 | softmax 0 | P0 V0        | wait P1 | P1 V1 | Q K0' ...
    group 1 (columns 256-511): wait P0          | P0 V0 | Q K1 | softmax 1 | P1 V1 | wait P0' ...
    producer:                  copies rows of the next blocks, by 16-byte cp.async, into the halves of buffers that are free

The group that owns the columns in half of a key buffer releases that half. The probabilities of the even block overwrite its RoPE
columns, which are not needed after its scores: 2 x 72 KB of keys, 72 KB of queries and the odd probabilities fill shared memory.
The reference value that is subtracted in the exponents follows a row's maximum only when that is more than 2^8 larger, so
accumulators are rarely rescaled after the first blocks. The true maximum is kept separately.
"""

from typing import Any

import tilelang.language as T

from .factory import tile_kernel

ROWS = 64  # query rows per thread block: the M of a WGMMA
BLOCK = 64  # keys per block
LATENT, ROPE = 512, 64
HALF = LATENT // 2
GROUP, WARPS = 128, 4  # threads and warps of a role
P0, P1, SUMS, STAGED = 3, 4, 5, 6  # named barriers
LOG2E = 1.4426950408889634
LAZY = 8.0  # log2 of the factor by which a maximum may exceed the reference value
FLOOR = -1e30  # the first reference value: finite, so that -inf minus it is not NaN

PASSES = {
    "tl.disable_warp_specialized": True,  # the kernel has explicit roles,
    "tl.disable_thread_storage_sync": True,  # and explicit synchronisation
    "tl.disable_safe_memory_legalize": True,  # indices are checked where they are read
    "tl.enable_fast_math": True,  # exp2 is one instruction with an error of 2 ulp; its results are rounded to bf16
}


@T.macro
def load_queries(q: Any, item: Any, first: Any, rows: Any, left: Any, right: Any, rope: Any, tx: Any) -> None:
    """256 threads copy 64 query rows into swizzled tiles; rows that do not exist become zeros."""
    for i in T.unroll(ROWS * 8 // (2 * GROUP)):
        line = i * (2 * GROUP // 8) + tx // 8
        row = T.min(first + line, rows - 1)
        exists = first + line < rows
        for tile in T.unroll(HALF // 64):
            at = tile * 64 + tx % 8 * 8
            T.ptx_cp_async(T.access_ptr(left[line, at], "w", 8), T.access_ptr(q[item, row, at], "r", 8), 8, exists)
            T.ptx_cp_async(
                T.access_ptr(right[line, at], "w", 8), T.access_ptr(q[item, row, HALF + at], "r", 8), 8, exists
            )
        at_rope = tx % 8 * 8
        T.ptx_cp_async(
            T.access_ptr(rope[line, at_rope], "w", 8), T.access_ptr(q[item, row, LATENT + at_rope], "r", 8), 8, exists
        )


@T.macro
def look_up(table: Any, item: Any, block: Any, limit: Any, slots: Any, tx: Any) -> None:
    """Read the indices of the keys of a block that this thread copies; -1 from `limit` on."""
    for r in T.unroll(4):
        column = block * BLOCK + r * 16 + tx // 8
        slots[r] = -1
        if column < limit:
            slots[r] = table[item, column]


@T.macro
def gather(kv: Any, slots: Any, first: Any, target: Any, columns: int, tx: Any) -> None:
    """Copy columns [first, first + columns) of 64 keys; keys that do not exist become zeros and are not read."""
    for tile in T.unroll(columns // 64):
        for r in T.unroll(4):
            at = tile * 64 + tx % 8 * 8
            T.ptx_cp_async(
                T.access_ptr(target[r * 16 + tx // 8, at], "w", 8),
                T.access_ptr(kv[T.max(slots[r], 0), first + at], "r", 8),
                8,
                slots[r] >= 0,
            )


@T.macro
def publish_bias(slots: Any, keys: Any, bias: Any, tx: Any) -> None:
    """Write the mask that is added to the scores of this block: -inf where there is no key. Sets the slot of such keys to -1."""
    for r in T.unroll(4):
        slots[r] = T.if_then_else(slots[r] < keys, slots[r], -1)
    if tx % 8 == 0:
        for r in T.unroll(4):
            bias[r * 16 + tx // 8] = T.if_then_else(slots[r] >= 0, T.float32(0), -T.infinity("float32"))


@T.macro
def release(barrier: Any, tx: Any) -> None:
    """Arrive once per warp, after all its lanes have finished with the memory that the barrier guards."""
    T.sync_warp()
    if tx % 32 == 0:
        T.mbarrier_arrive(barrier)


@T.macro
def start_scores(bias: Any, full: Any, parity: Any, s: Any) -> None:
    """Set s to the mask's bias. Scores are added to it, so masking takes no time between scores and probabilities."""
    T.mbarrier_wait_parity(full, parity)
    for h, k in T.Parallel(ROWS, BLOCK):
        s[h, k] = bias[k]
    T.warpgroup_fence_operand(s, num_regs=BLOCK // 2)  # before the first MMA, not between two


@T.macro
def score_left(q: Any, k: Any, full: Any, parity: Any, s: Any) -> None:
    """s += Q K^T over the left half of the columns, after waiting for them."""
    T.mbarrier_wait_parity(full, parity)
    T.fence_proxy_async()
    T.wgmma_gemm(q, k, s, transpose_B=True)


@T.macro
def score_right(qr: Any, qt: Any, kr: Any, kt: Any, full: Any, parity: Any, s: Any) -> None:
    """s += Q K^T over the right half and the RoPE columns, after waiting for them."""
    T.mbarrier_wait_parity(full, parity)
    T.fence_proxy_async()
    T.wgmma_gemm(qr, kr, s, transpose_B=True)
    T.wgmma_gemm(qt, kt, s, transpose_B=True)


@T.macro
def softmax(s: Any, p: Any, top: Any, highest: Any, ref: Any, new: Any, scale: Any) -> None:
    """s = p = 2^(s * scale - new), where `new` is the next reference value. `top` is the true maximum."""
    T.reduce_max(s, highest, dim=1, clear=True)
    for h in T.Parallel(ROWS):
        top[h] = T.max(top[h], highest[h])
        new[h] = T.if_then_else(highest[h] * scale > ref[h] + LAZY, highest[h] * scale, ref[h])
    for h, k in T.Parallel(ROWS, BLOCK):
        s[h, k] = T.exp2(s[h, k] * scale - new[h])
    T.copy(s, p)


@T.macro
def rescale(o: Any, ref: Any, new: Any, sums: Any, factor: Any, moved: Any) -> None:
    """Rescale the accumulators of one group to the reference value `new`, if any row of a warp needs it."""
    moved[0] = 0
    for h in T.Parallel(ROWS):
        factor[h] = T.exp2(ref[h] - new[h])
        if new[h] != ref[h]:
            moved[0] = 1
    if T.any_sync(moved[0] != 0):
        for h, d in T.Parallel(ROWS, HALF):
            o[h, d] = o[h, d] * factor[h]
        for h in T.Parallel(ROWS):
            sums[h] = sums[h] * factor[h]
            ref[h] = new[h]


@T.macro
def finish(
    out: Any,
    sink: Any,
    item: Any,
    first: Any,
    rows: Any,
    o: Any,
    sums: Any,
    ref: Any,
    factor: Any,
    staged: Any,
    column: int,
    has_sink: bool,
    barrier: int,
) -> None:
    """Divide one group's columns by the row sums, sink included, and write them through shared memory."""
    for h in T.Parallel(ROWS):
        factor[h] = sums[h]
        if has_sink:
            factor[h] = sums[h] + T.exp2(sink[T.min(first + h, rows - 1)] * LOG2E - ref[h])
    for h in T.Parallel(ROWS):
        factor[h] = T.if_then_else(sums[h] > 0, 1 / factor[h], 0)
    for h, d in T.Parallel(ROWS, HALF):
        o[h, d] = o[h, d] * factor[h]
    T.copy(o, staged)
    T.sync_threads(barrier, GROUP)
    for h, d in T.Parallel(ROWS, HALF):
        if first + h < rows:
            out[item, first + h, column + d] = staged[h, d]


@tile_kernel((True, True), pass_configs=PASSES)
def attend(has_length: bool, has_sink: bool) -> Any:
    """Attention of N queries with R heads each.

    q bf16 [N, R, 576]; kv bf16 [S, 576]; table [N, K]: the rows of kv that are a query's keys; lengths [N]: the number of them that
    count; sink [R] -> out [N, R, 512], max_logits and lse fp32 [N, R].
    """
    dtype = "bfloat16"
    items, rows, keys, columns = T.dynamic("items"), T.dynamic("rows"), T.dynamic("keys"), T.dynamic("columns")
    width = LATENT + ROPE
    q_item, q_row, kv_row = T.dynamic("q_item", "int64"), T.dynamic("q_row", "int64"), T.dynamic("kv_row", "int64")
    table_row = T.dynamic("table_row", "int64")

    @T.prim_func
    def kernel(
        q: T.StridedTensor((items, rows, width), (q_item, q_row, 1), dtype),
        kv: T.StridedTensor((keys, width), (kv_row, 1), dtype),
        table: T.StridedTensor((items, columns), (table_row, 1), "int32"),
        lengths: T.Tensor((items,), "int32"),
        sink: T.Tensor((rows,), "float32"),
        out: T.Tensor((items, rows, LATENT), dtype),
        max_logits: T.Tensor((items, rows), "float32"),
        lse: T.Tensor((items, rows), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(items * T.ceildiv(rows, ROWS), threads=3 * GROUP) as cta:
            ql, qr = (T.alloc_shared((ROWS, HALF), dtype) for _ in range(2))
            qt = T.alloc_shared((ROWS, ROPE), dtype)
            kl0, kr0, kl1, kr1 = (T.alloc_shared((BLOCK, HALF), dtype) for _ in range(4))
            kt0, kt1 = (T.alloc_shared((BLOCK, ROPE), dtype) for _ in range(2))
            p1 = T.alloc_shared((ROWS, BLOCK), dtype)
            bias0, bias1 = (T.alloc_shared((BLOCK,), "float32") for _ in range(2))
            ref0, ref1, sum0, sum1, top1 = (T.alloc_shared((ROWS,), "float32") for _ in range(5))

            kl0_full, kr0_full, kl1_full, kr1_full = (T.alloc_barrier(GROUP) for _ in range(4))
            kl0_free, kr0_free, kl1_free, kr1_free, bias0_full, bias1_full = (T.alloc_barrier(WARPS) for _ in range(6))
            q_full = T.alloc_barrier(2 * GROUP)

            tx = T.get_thread_binding()
            groups = T.ceildiv(rows, ROWS)
            item = T.alloc_var("int32", init=T.truncdiv(cta, groups))
            first = T.alloc_var("int32", init=T.truncmod(cta, groups) * ROWS)
            limit = T.alloc_var("int32", init=T.min(lengths[item], columns) if has_length else columns)
            pairs = T.alloc_var("int32", init=T.ceildiv(limit, 2 * BLOCK))
            scale2 = scale * LOG2E

            if tx < GROUP:
                T.set_max_nreg(216, 1)
                o0 = T.alloc_fragment((ROWS, HALF), "float32")
                s0 = T.alloc_fragment((ROWS, BLOCK), "float32")
                p0_own = T.alloc_fragment((ROWS, BLOCK), dtype)
                r0, new0, t0, high0, sums0, added0, factor0 = (T.alloc_fragment((ROWS,), "float32") for _ in range(7))
                moved0 = T.alloc_local((1,), "int32")
                load_queries(q, item, first, rows, ql, qr, qt, tx)
                T.cp_async_barrier_noinc(q_full)
                T.fill(o0, 0)
                T.fill(sums0, 0)
                T.fill(r0, FLOOR)
                T.fill(t0, -T.infinity("float32"))
                T.mbarrier_wait_parity(q_full, 0)
                for i in T.serial(pairs):
                    start_scores(bias0, bias0_full, i & 1, s0)
                    score_left(ql, kl0, kl0_full, i & 1, s0)
                    score_right(qr, qt, kr0, kt0, kr0_full, i & 1, s0)
                    T.wait_wgmma(0)
                    softmax(s0, p0_own, t0, high0, r0, new0, scale2)
                    T.reduce_sum(s0, added0, dim=1, clear=True)
                    T.copy(new0, ref0)
                    T.copy(p0_own, kt0)
                    T.fence_proxy_async()
                    T.named_barrier_arrive(P0, 2 * GROUP)
                    rescale(o0, r0, new0, sums0, factor0, moved0)
                    for h in T.Parallel(ROWS):
                        sums0[h] = sums0[h] + added0[h]
                    T.wgmma_gemm(p0_own, kl0, o0)
                    T.wait_wgmma(0)
                    release(kl0_free, tx)
                    T.sync_threads(P1, 2 * GROUP)
                    T.copy(ref1, new0)
                    rescale(o0, r0, new0, sums0, factor0, moved0)
                    T.mbarrier_wait_parity(kl1_full, i & 1)
                    T.fence_proxy_async()
                    T.wgmma_gemm(p1, kl1, o0)
                    T.wait_wgmma(0)
                    release(kl1_free, tx)
                T.copy(sums0, sum0)
                T.sync_threads(SUMS, 2 * GROUP)
                for h in T.Parallel(ROWS):
                    sums0[h] = sum0[h] + sum1[h]
                    t0[h] = T.max(t0[h], top1[h])
                for h in T.Parallel(ROWS):
                    if first + h < rows:
                        max_logits[item, first + h] = t0[h] * scale
                        lse[item, first + h] = T.if_then_else(
                            sums0[h] > 0, (r0[h] + T.log2(sums0[h])) / LOG2E, -T.infinity("float32")
                        )
                finish(out, sink, item, first, rows, o0, sums0, r0, factor0, ql, 0, has_sink, STAGED)
            elif tx < 2 * GROUP:
                T.set_max_nreg(216, 1)
                o1 = T.alloc_fragment((ROWS, HALF), "float32")
                s1 = T.alloc_fragment((ROWS, BLOCK), "float32")
                p1_own = T.alloc_fragment((ROWS, BLOCK), dtype)
                r1, new1, t1, high1, sums1, added1, factor1 = (T.alloc_fragment((ROWS,), "float32") for _ in range(7))
                moved1 = T.alloc_local((1,), "int32")
                load_queries(q, item, first, rows, ql, qr, qt, tx)
                T.cp_async_barrier_noinc(q_full)
                T.fill(o1, 0)
                T.fill(sums1, 0)
                T.fill(r1, FLOOR)
                T.fill(t1, -T.infinity("float32"))
                T.mbarrier_wait_parity(q_full, 0)
                for i in T.serial(pairs):
                    start_scores(bias1, bias1_full, i & 1, s1)
                    T.sync_threads(P0, 2 * GROUP)
                    T.copy(ref0, new1)
                    rescale(o1, r1, new1, sums1, factor1, moved1)
                    T.mbarrier_wait_parity(kr0_full, i & 1)
                    T.fence_proxy_async()
                    T.wgmma_gemm(kt0, kr0, o1)
                    score_right(qr, qt, kr1, kt1, kr1_full, i & 1, s1)
                    T.wait_wgmma(2)  # the product with the values of the even block has finished, these scores have not
                    release(kr0_free, tx)
                    score_left(ql, kl1, kl1_full, i & 1, s1)
                    T.wait_wgmma(0)
                    softmax(s1, p1_own, t1, high1, r1, new1, scale2)
                    T.reduce_sum(s1, added1, dim=1, clear=True)
                    T.copy(new1, ref1)
                    T.copy(p1_own, p1)
                    T.fence_proxy_async()
                    T.named_barrier_arrive(P1, 2 * GROUP)
                    rescale(o1, r1, new1, sums1, factor1, moved1)
                    for h in T.Parallel(ROWS):
                        sums1[h] = sums1[h] + added1[h]
                    T.wgmma_gemm(p1_own, kr1, o1)
                    T.wait_wgmma(0)
                    release(kr1_free, tx)
                T.copy(sums1, sum1)
                T.copy(t1, top1)
                T.sync_threads(SUMS, 2 * GROUP)
                # In the order of group 0, so that both groups divide by the same number.
                for h in T.Parallel(ROWS):
                    sums1[h] = sum0[h] + sum1[h]
                finish(out, sink, item, first, rows, o1, sums1, r1, factor1, qr, HALF, has_sink, STAGED + 1)
            else:
                T.set_max_nreg(72, 0)
                lane = tx - 2 * GROUP
                even, odd = T.alloc_local((4,), "int32"), T.alloc_local((4,), "int32")
                look_up(table, item, 0, limit, even, lane)
                look_up(table, item, 1, limit, odd, lane)
                for i in T.serial(pairs):
                    T.mbarrier_wait_parity(kl0_free, (i & 1) ^ 1)
                    publish_bias(even, keys, bias0, lane)
                    release(bias0_full, tx)
                    gather(kv, even, 0, kl0, HALF, lane)
                    T.cp_async_barrier_noinc(kl0_full)
                    T.mbarrier_wait_parity(kr0_free, (i & 1) ^ 1)
                    gather(kv, even, HALF, kr0, HALF, lane)
                    gather(kv, even, LATENT, kt0, ROPE, lane)
                    T.cp_async_barrier_noinc(kr0_full)
                    look_up(table, item, 2 * i + 2, limit, even, lane)
                    # Group 1 reads the odd mask, so it may be overwritten once group 1 has released its half.
                    T.mbarrier_wait_parity(kr1_free, (i & 1) ^ 1)
                    publish_bias(odd, keys, bias1, lane)
                    release(bias1_full, tx)
                    gather(kv, odd, HALF, kr1, HALF, lane)
                    gather(kv, odd, LATENT, kt1, ROPE, lane)
                    T.cp_async_barrier_noinc(kr1_full)
                    T.mbarrier_wait_parity(kl1_free, (i & 1) ^ 1)
                    gather(kv, odd, 0, kl1, HALF, lane)
                    T.cp_async_barrier_noinc(kl1_full)
                    look_up(table, item, 2 * i + 3, limit, odd, lane)

    return kernel.with_attr("global_symbol", "sparse_attn_fwd_pipelined_kernel")
