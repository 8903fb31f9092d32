"""MoE routing on the GPU, one kernel each for the choice of experts, the sorting and the weighted sum.

Shapes that the kernels do not support run in the reference.
"""

import torch

from .. import quantize
from ..alignment import ROW_BYTES, is_aligned
from ..build import load
from ..reference import routing as reference
from ..types import ExpertChoice, ExpertOutputs, Quantized
from .pdl import weights_are_static

MAX_EXPERTS, MAX_GROUPS, MAX_TOPK = 1023, 32, 32
# Up to this many tokens one launch routes and groups; its experts are in groups of GROUP_SIZE.
FEW_TOKENS, FEW_EXPERTS, GROUP_SIZE = 128, 256, 32
# Up to this many tokens one launch sums and norms, with a CTA for each COLUMNS columns, from two to MAX_COLUMNS / COLUMNS of them.
FEW_SUMS, COLUMNS, MAX_COLUMNS = 64, 1024, 8192

FALLS_BACK = {
    "route": f"torch beyond {MAX_EXPERTS} experts, {MAX_GROUPS} groups or top-{MAX_TOPK}",
    "group_by_expert": f"torch beyond {MAX_EXPERTS} experts",
}


def route(logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, count = logits.shape
    if count > MAX_EXPERTS or choice.num_groups > MAX_GROUPS or choice.topk > MAX_TOPK:
        return reference.route(logits, bias, choice)
    experts = logits.new_empty(tokens, choice.topk, dtype=torch.int64)
    weights = logits.new_empty(tokens, choice.topk, dtype=torch.float32)
    if tokens:
        load("routing").route(logits, bias, experts, weights, *choice[1:])
    return experts, weights


def group_by_expert(
    experts: torch.Tensor, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if count > MAX_EXPERTS or not experts.numel():
        return reference.group_by_expert(experts, count, first, step)
    groups = _groups(experts, count)
    load("routing").group_by_expert(experts, *groups, first, step)
    return groups


def route_and_group(
    logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    (tokens, experts), (topk, num_groups, topk_groups, *_) = logits.shape, choice
    released = experts == num_groups * GROUP_SIZE and experts <= FEW_EXPERTS and topk <= min(MAX_TOPK, 32 * topk_groups)
    if not released or count > FEW_EXPERTS or not 0 < tokens <= FEW_TOKENS:
        chosen, weights = route(logits, bias, choice)
        return weights, *group_by_expert(chosen, count, first, step)
    chosen = logits.new_empty(tokens, topk, dtype=torch.int64)
    weights = logits.new_empty(tokens, topk, dtype=torch.float32)
    groups = _groups(chosen, count)
    load("routing").route_and_group(logits, bias, chosen, weights, *groups, *choice[1:], first, step)
    return weights, *groups


def _groups(experts: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sorted token ids, inverse permutation and offsets, not yet written."""
    sorted_token_ids = experts.new_empty(experts.numel(), dtype=torch.int32)
    inverse_permutation = experts.new_empty(experts.shape, dtype=torch.int32)
    return sorted_token_ids, inverse_permutation, experts.new_empty(count + 1, dtype=torch.int32)


def gather_rows(a: Quantized, sorted_token_ids: torch.Tensor, offsets: torch.Tensor) -> Quantized:
    """The tokens' rows of a [T, D] in the order of their experts, sorted_token_ids int32 [R] -> [R, D].

    Rows from offsets[-1] on belong to other ranks' experts and are not written.
    """
    values, scales = a
    rows, width = len(sorted_token_ids), values.shape[1]
    if not rows or width % ROW_BYTES or not is_aligned(values) or scales.stride(1) != 1:
        return Quantized(values[sorted_token_ids], scales[sorted_token_ids])
    sorted_values, sorted_scales = values.new_empty(rows, width), scales.new_empty(rows, scales.shape[1])
    load("routing").gather_rows(values, scales, sorted_token_ids, offsets, sorted_values, sorted_scales)
    return Quantized(sorted_values, sorted_scales)


def combine_experts(outputs: ExpertOutputs) -> torch.Tensor:
    rows, (_, inverse_permutation, offsets), weights, shared = outputs
    out = rows.new_empty(inverse_permutation.shape[0], rows.shape[1])
    if out.numel():
        load("routing").combine_experts(rows, inverse_permutation.contiguous(), offsets, weights, shared, out)
    return out


def combine_norm_quantize(
    outputs: ExpertOutputs, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, ue8m0: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, groups, weights, shared = outputs
    tokens, width = residual.shape
    fits = rows.dtype == torch.bfloat16 and width % COLUMNS == 0 and 2 * COLUMNS <= width <= MAX_COLUMNS
    fits = fits and 0 < tokens <= FEW_SUMS
    aligned = is_aligned(rows, residual, norm_weight, *(() if shared is None else (shared,)))
    if not fits or not aligned:
        update = combine_experts(outputs)
        normed = quantize.rms_norm_quantize(residual, norm_weight, eps, ue8m0, update)
        return normed.total, normed.rows, *normed.quantized
    total, normed_rows = (rows.new_empty(tokens, width) for _ in range(2))
    codes = rows.new_empty(tokens, width, dtype=torch.float8_e4m3fn)
    scales = rows.new_empty(tokens, width // 128, dtype=torch.float32)
    operands = rows, groups.inverse_permutation.contiguous(), groups.offsets, weights, shared, residual
    results = total, normed_rows, codes, scales
    static = weights_are_static(norm_weight)
    load("routing").combine_norm_quantize(*operands, norm_weight, *results, eps, ue8m0, static)
    return total, normed_rows, codes, scales
