"""Sparse prefill attention in absorbed (MQA) form: each query of a prompt chunk attends to its own selection of latents."""

import torch

from .cache_write import gather_latents, latent_record_bytes
from .checks import FLOATS, check_sparse_options, check_tensor
from .implementations import INVARIANT
from .registry import Preference, choose
from .types import SparseAttention

# With at least MANY_HEADS heads, attention over a context that was converted to bf16 once is faster than over FP8 records, which
# each query converts again, unless the context exceeds CONTEXT_PER_QUERY tokens per query. With 128 heads it saves about 0.3 us
# per query (docs/log/attention-h100.md); the conversion takes about 1 ns per token.
MANY_HEADS, CONTEXT_PER_QUERY = 64, 256


def sparse_mla_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int = 512,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """softmax(q . k * scale) over the selected rows of kv, applied to their first `value_dim` dims.

    q [T, H, D] bf16 or fp32; kv: rows [S, 1, D] of q's dtype, or a uint8 paged latent cache [P, page, 1, record], where an index
    is a slot; indices int32 [T, 1, K], invalid if negative or past the end; topk_length int32 [T]: the number of columns that
    count; attn_sink fp32 [H]: a logit that is added to the denominator of `out` only (plus or minus infinity allowed).
    -> out [T, H, value_dim] in q's dtype, max_logits and lse (natural) fp32 [T, H]; a row without a valid key: 0, -inf, -inf.
    """
    check_tensor("q", q, (None, None, None), FLOATS)
    tokens, heads, width = q.shape
    if kv.dtype == torch.uint8:
        check_tensor(
            "kv", kv, (None, None, 1, latent_record_bytes(value_dim, width - value_dim)), torch.uint8, q.device
        )
    else:
        check_tensor("kv", kv, (None, 1, width), q.dtype, q.device)
    check_tensor("indices", indices, (tokens, 1, None), torch.int32, q.device)
    check_sparse_options(q, tokens, topk_length, attn_sink)
    if tokens == 0 or kv.shape[0] == 0 or indices.shape[2] == 0:
        empty = q.new_full((tokens, heads), float("-inf"), dtype=torch.float32)
        return q.new_zeros(tokens, heads, value_dim), empty, empty.clone()
    if kv.dtype == torch.uint8 and kv.is_cuda and kv.is_contiguous() and backend in ("auto", ("auto",)):
        slots = kv.shape[0] * kv.shape[1]
        if converts_context(q, slots, indices.shape[2]):
            kv = gather_latents(kv, torch.arange(slots, device=kv.device), value_dim, q.dtype)[:, None]
    given = SparseAttention(q, kv, indices, softmax_scale, value_dim, topk_length, attn_sink)
    out, max_logits, lse = choose("sparse_mla_prefill", q, backend)(given)
    return out, max_logits, lse


def converts_context(q: torch.Tensor, context: int, selected: int, *, backend: str | Preference = "auto") -> bool:
    """Decide whether to convert a chunk's FP8 context to rows of q's dtype once, instead of each query's `selected` keys.

    q [T, H, D]; `context`: how many tokens the chunk's queries select from. Both ways give attention the same bits.
    """
    tokens, heads, _ = q.shape
    if INVARIANT in backend and q.device.type == "cpu":  # the deterministic mode converts each key by itself
        return context <= selected * tokens
    return heads >= MANY_HEADS and context <= CONTEXT_PER_QUERY * tokens


def attends_as_decode(q: torch.Tensor, *, backend: str | Preference = "auto") -> bool:
    """Decide whether a prompt's queries q [T, H, D] must call `sparse_mla_decode`, so that they get the bits of decodes.

    In the deterministic mode on a GPU, few heads' keys are divided by their places in the list, which only that operation does.
    """
    if INVARIANT not in backend or q.device.type != "cuda":
        return False
    from .cuda.sparse_mla_decode import FEW_HEADS

    return q.shape[1] <= FEW_HEADS
