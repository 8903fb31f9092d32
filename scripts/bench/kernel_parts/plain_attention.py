"""Sparse prefill in TileLang, written like the mathematics, for comparison with kernels/tile/mla_pipelined.py."""

from typing import Any

import tilelang.language as T
import torch

from deepseek_v32.kernels.tile.factory import tile_kernel
from deepseek_v32.kernels.tile.mla_pipelined import BLOCK, FLOOR, LATENT, LOG2E, ROPE, ROWS
from deepseek_v32.kernels.tile.sparse_mla_prefill import prepare

HEADS = ROWS  # heads per thread block


@tile_kernel((True, True), pass_configs={"tl.enable_fast_math": True, "tl.disable_safe_memory_legalize": True})
def sparse_attn_fwd_plain(has_length: bool, has_sink: bool) -> Any:
    """Online softmax over blocks of 64 gathered keys. A thread block computes 64 heads of one query.

    q [T, H, 576], kv [S, 576], indices [T, K], lengths [T], sink [H] -> out [T, H, 512], max_logits and lse [T, H].
    """
    tokens, rows = T.dynamic("tokens", "int64"), T.dynamic("rows", "int64")
    heads, topk = T.dynamic("heads"), T.dynamic("topk")

    @T.prim_func
    def sparse_attn_fwd_plain_kernel(
        q: T.Tensor((tokens, heads, LATENT + ROPE), "bfloat16"),
        kv: T.Tensor((rows, LATENT + ROPE), "bfloat16"),
        indices: T.Tensor((tokens, topk), "int32"),
        lengths: T.Tensor((tokens,), "int32"),
        sink: T.Tensor((heads,), "float32"),
        out: T.Tensor((tokens, heads, LATENT), "bfloat16"),
        max_logits: T.Tensor((tokens, heads), "float32"),
        lse: T.Tensor((tokens, heads), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(tokens * T.ceildiv(heads, HEADS), threads=256) as cta:
            q_latent = T.alloc_shared((HEADS, LATENT), "bfloat16")
            q_rope = T.alloc_shared((HEADS, ROPE), "bfloat16")
            k_latent = T.alloc_shared((BLOCK, LATENT), "bfloat16")
            k_rope = T.alloc_shared((BLOCK, ROPE), "bfloat16")
            p = T.alloc_shared((HEADS, BLOCK), "bfloat16")
            o = T.alloc_fragment((HEADS, LATENT), "float32")
            s = T.alloc_fragment((HEADS, BLOCK), "float32")
            top, last = T.alloc_fragment((HEADS,), "float32"), T.alloc_fragment((HEADS,), "float32")
            sums, added = T.alloc_fragment((HEADS,), "float32"), T.alloc_fragment((HEADS,), "float32")

            groups = T.ceildiv(heads, HEADS)
            token = T.truncdiv(cta, groups)
            first = T.truncmod(cta, groups) * HEADS
            limit = T.min(topk, lengths[token]) if has_length else topk

            for h, d in T.Parallel(HEADS, LATENT):
                q_latent[h, d] = q[token, T.min(first + h, heads - 1), d]
            for h, d in T.Parallel(HEADS, ROPE):
                q_rope[h, d] = q[token, T.min(first + h, heads - 1), LATENT + d]
            T.fill(o, 0)
            T.fill(sums, 0)
            T.fill(top, FLOOR)
            for block in T.serial(T.ceildiv(limit, BLOCK)):
                for k, d in T.Parallel(BLOCK, LATENT):
                    k_latent[k, d] = T.if_then_else(
                        exists(indices, token, block * BLOCK + k, limit, topk, rows),
                        kv[row(indices, token, block * BLOCK + k, topk, rows), d],
                        0,
                    )
                for k, d in T.Parallel(BLOCK, ROPE):
                    k_rope[k, d] = T.if_then_else(
                        exists(indices, token, block * BLOCK + k, limit, topk, rows),
                        kv[row(indices, token, block * BLOCK + k, topk, rows), LATENT + d],
                        0,
                    )
                for h, k in T.Parallel(HEADS, BLOCK):
                    s[h, k] = T.if_then_else(
                        exists(indices, token, block * BLOCK + k, limit, topk, rows), 0, -T.infinity("float32")
                    )
                T.gemm(q_latent, k_latent, s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(q_rope, k_rope, s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(top, last)
                T.reduce_max(s, top, dim=1, clear=False)
                for h, k in T.Parallel(HEADS, BLOCK):
                    s[h, k] = T.exp2((s[h, k] - top[h]) * (scale * LOG2E))
                T.reduce_sum(s, added, dim=1)
                for h in T.Parallel(HEADS):
                    last[h] = T.exp2((last[h] - top[h]) * (scale * LOG2E))
                    sums[h] = sums[h] * last[h] + added[h]
                for h, d in T.Parallel(HEADS, LATENT):
                    o[h, d] = o[h, d] * last[h]
                T.copy(s, p)
                T.gemm(p, k_latent, o, policy=T.GemmWarpPolicy.FullCol)
            for h in T.Parallel(HEADS):
                if first + h < heads:
                    max_logits[token, first + h] = T.if_then_else(sums[h] > 0, top[h] * scale, -T.infinity("float32"))
                    lse[token, first + h] = T.if_then_else(
                        sums[h] > 0, top[h] * scale + T.log2(sums[h]) / LOG2E, -T.infinity("float32")
                    )
            for h in T.Parallel(HEADS):
                added[h] = sums[h]
                if has_sink:
                    added[h] = sums[h] + T.exp2((sink[T.min(first + h, heads - 1)] - top[h] * scale) * LOG2E)
                last[h] = T.if_then_else(sums[h] > 0, 1 / added[h], 0)
            for h, d in T.Parallel(HEADS, LATENT):
                if first + h < heads:
                    out[token, first + h, d] = o[h, d] * last[h]

    return sparse_attn_fwd_plain_kernel


def row(indices: Any, token: Any, column: Any, topk: Any, rows: Any) -> Any:
    """Return the row of kv that a column of the selection names; 0 if it names none, so that it can be read."""
    index = indices[token, T.min(column, topk - 1)]
    return T.if_then_else(index < rows, T.max(index, 0), 0)


def exists(indices: Any, token: Any, column: Any, limit: Any, topk: Any, rows: Any) -> Any:
    """Return whether this column of the selection counts and names a row of kv."""
    index = indices[token, T.min(column, topk - 1)]
    return T.And(column < limit, T.And(index >= 0, index < rows))


def sparse_mla_prefill_plain(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run sparse_mla_prefill over contiguous bf16 rows by the plain kernel, for comparison with the pipelined one."""
    results, lengths, sink = prepare(q, topk_length, attn_sink)
    compiled = sparse_attn_fwd_plain(topk_length is not None, attn_sink is not None)
    compiled(q, kv[:, 0], indices[:, 0], lengths, sink, *results, softmax_scale)
    return results
