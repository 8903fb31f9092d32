"""Multi-head prefill on GPUs by torch's cuDNN attention, its only backend that is fast with 192/128 head dims."""

import warnings

import torch

from ..reference.dense_mla import mha_prefill as reference

FALLS_BACK = {"mha_prefill": "torch where cuDNN refuses, with a warning"}


def mha_prefill(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    earlier = k.shape[0] - q.shape[0]  # keys before the chunk
    heads_first = [x.transpose(0, 1)[None] for x in (q, k, v)]
    if not _cudnn_takes(*heads_first):
        if len(k) > 1:  # cuDNN never takes a single key, and a prompt may be one token
            shapes = f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
            warnings.warn(f"cuDNN refuses attention over {shapes}: mha_prefill runs its reference", stacklevel=3)
        return reference(q, k, v, softmax_scale, mask)
    q, k, v = heads_first
    if mask is not None:
        bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))[None, None]
        out, _ = _attend(q, k, v, softmax_scale, bias, causal=False)
        # The softmax of a row without any allowed key is undefined: its result is zero.
        return out[0].transpose(0, 1).masked_fill_(~mask.any(1)[:, None, None], 0.0)
    out, lse = _attend(q, k[:, :, earlier:], v[:, :, earlier:], softmax_scale, None, causal=True)
    if earlier:
        # cuDNN aligns the causal mask with the first key. So the keys before the chunk are attended to separately, and both results
        # are merged by their logsumexp.
        before, lse_before = _attend(q, k[:, :, :earlier], v[:, :, :earlier], softmax_scale, None, causal=False)
        share = torch.sigmoid(lse_before - lse)[..., None]
        out = torch.lerp(out.float(), before.float(), share).to(q.dtype)
    return out[0].transpose(0, 1)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend: [1, H, T, D], [1, H, S, D], [1, H, S, Dv] -> [1, H, T, Dv] and the logsumexp, fp32 [1, H, T]."""
    result: tuple[torch.Tensor, ...] = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, bias, True, 0.0, causal, False, scale=scale
    )
    return result[0], result[1].view(q.shape[:3])


def _cudnn_takes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    parameters = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, False, False)
    return torch.backends.cuda.can_use_cudnn_attention(parameters)
