"""Sparse decode attention in absorbed (MQA) form: a few new tokens per sequence, keys from the paged latent cache."""

import torch

from .cache_write import latent_record_bytes
from .checks import FLOATS, check_sparse_options, check_tensor
from .implementations import INVARIANT
from .registry import Preference, choose, choose_implementation
from .types import SparseAttention, SplitPlan


def plan_decode(
    batch: int,
    s_q: int,
    heads: int,
    topk: int,
    device: torch.device,
    topk_length: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> SplitPlan | None:
    """The split-KV plan of sparse_mla_decode for bf16 queries [batch, s_q, heads, D] over an FP8 cache.

    None for implementations without plans. The plan is made on the device, without waiting for it, once a step for all layers, also
    in a CUDA graph. It must be made again when topk_length changes.
    """
    implementation = choose_implementation("sparse_mla_decode", device, torch.bfloat16, backend)
    if implementation.backend == INVARIANT and implementation.device == "cuda":
        from .invariant.gpu.sparse_mla import plan_decode as fixed_plan

        return fixed_plan(batch * s_q, heads, topk, device)
    if implementation.backend != "cuda":
        return None
    from .cuda.sparse_mla_decode import plan_decode as plan_on_cuda

    return plan_on_cuda(batch, s_q, heads, topk, device, topk_length)


def sparse_mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int = 512,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    plan: SplitPlan | None = None,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q . k * scale) over the selected slots, applied to the latents' first `value_dim` dims.

    q [B, s_q, H, D] bf16 or fp32; cache uint8 [P, page, 1, record] (FP8 layout) or plain [P, page, 1, D] of q's dtype;
    indices int32 [B, s_q, K] slots, -1 or outside the cache for none; topk_length int32 [B]; attn_sink fp32 [H] as in prefill;
    plan: a split-KV plan from plan_decode; None: made in this call if needed.
    -> out [B, s_q, H, value_dim] in q's dtype, lse (natural) fp32 [B, H, s_q]; a row without a valid slot: 0 and -inf.
    """
    check_tensor("q", q, (None, None, None, None), FLOATS)
    batch, new, heads, width = q.shape
    record = latent_record_bytes(value_dim, width - value_dim) if cache.dtype == torch.uint8 else width
    check_tensor("cache", cache, (None, None, 1, record), (torch.uint8, q.dtype), q.device)
    check_tensor("indices", indices, (batch, new, None), torch.int32, q.device)
    check_sparse_options(q, batch, topk_length, attn_sink)
    if batch * new == 0 or cache.shape[0] == 0 or indices.shape[2] == 0:
        return q.new_zeros(batch, new, heads, value_dim), q.new_full(
            (batch, heads, new), float("-inf"), dtype=torch.float32
        )
    given = SparseAttention(q, cache, indices, softmax_scale, value_dim, topk_length, attn_sink)
    out, lse = choose("sparse_mla_decode", q, backend)(given, plan)
    return out, lse
