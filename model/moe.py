"""Mixture of experts: a router without auxiliary loss, grouped experts, and an always-on shared expert.

Source: DeepSeek-V3 report (arXiv 2412.19437), section 2.1.2.
"""

import torch
import torch.nn.functional as F
from torch import nn

from ..kernels.grouped_gemm import group_by_expert, grouped_gemm
from ..kernels.quantize import Quantized
from .config import FP8_BLOCK, ModelConfig, blocks
from .layers import MLP, Compute, Operand, gated, parameter


class Router(nn.Module):
    """Chooses each token's experts. Everything is fp32: a rounded score would change who is chosen."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.config = config
        experts = config.n_routed_experts
        self.weight = parameter(experts, config.hidden_size, dtype=torch.float32, device=compute.device)
        self.e_score_correction_bias = parameter(experts, dtype=torch.float32, device=compute.device)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x [T, D] -> experts int64 [T, k], weights fp32 [T, k]."""
        config = self.config
        scores = F.linear(x.float(), self.weight).sigmoid()
        # The bias balances the load: it decides who is chosen, and has no part in the weights.
        choice = scores + self.e_score_correction_bias
        if config.n_group > 1:
            by_group = choice.unflatten(1, (config.n_group, -1))
            group_scores = by_group.topk(min(2, by_group.shape[2]), dim=2).values.sum(2)
            kept = group_scores.topk(config.topk_group, dim=1).indices
            dropped = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, kept, False)
            choice = by_group.masked_fill(dropped[:, :, None], float("-inf")).flatten(1)
        experts = choice.topk(config.num_experts_per_tok, dim=1).indices
        weights = scores.gather(1, experts)
        if config.norm_topk_prob:
            weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
        return experts, weights * config.routed_scaling_factor


class Experts(nn.Module):
    """All routed experts' weights, stacked for the grouped GEMM: gate rows first, then up."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        # A rank may hold some of them: the pairs of the others' then come last, with weight 0.
        self.total = config.n_routed_experts
        count, hidden, inner = config.n_routed_experts, config.hidden_size, config.moe_intermediate_size
        dtype = torch.float8_e4m3fn if compute.quantized else compute.dtype
        self.gate_up_proj = parameter(count, 2 * inner, hidden, dtype=dtype, device=compute.device)
        self.down_proj = parameter(count, hidden, inner, dtype=dtype, device=compute.device)
        if compute.quantized:
            self.gate_up_proj_scale_inv = parameter(
                count, 2 * blocks(inner), blocks(hidden), dtype=torch.float32, device=compute.device
            )
            self.down_proj_scale_inv = parameter(
                count, blocks(hidden), blocks(inner), dtype=torch.float32, device=compute.device
            )

    def forward(self, x: Operand, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """x [T, D], experts int64 [T, k], weights fp32 [T, k] -> fp32 [T, D], the weighted sum in fp32."""
        tokens, chosen = experts.shape
        groups = group_by_expert(experts, self.gate_up_proj.shape[0])
        rows = groups.order // chosen
        sorted_x = Quantized(x.values[rows], x.scales[rows]) if isinstance(x, Quantized) else x[rows]
        inner = gated(self._gate_up(sorted_x, groups.offsets), self.compute)
        scale = self.down_proj_scale_inv if self.compute.quantized else None
        out = grouped_gemm(inner, self.down_proj, groups.offsets, scale, self.compute.dtype, self.compute.backend)
        pairs = torch.empty_like(out)
        pairs[groups.order] = out
        if self.gate_up_proj.shape[0] < self.total:  # rows past the last expert's were not computed
            pairs.masked_fill_(weights.view(-1, 1) == 0, 0)
        return torch.bmm(weights[:, None], pairs.view(tokens, chosen, -1).float())[:, 0]

    def _gate_up(self, x: Operand, offsets: torch.Tensor) -> torch.Tensor:
        dtype, backend = self.compute.dtype, self.compute.backend
        if not self.compute.quantized:
            return grouped_gemm(x, self.gate_up_proj, offsets, None, dtype, backend)
        if self.gate_up_proj.shape[1] // 2 % FP8_BLOCK == 0:
            return grouped_gemm(x, self.gate_up_proj, offsets, self.gate_up_proj_scale_inv, dtype, backend)
        pairs = zip(self.gate_up_proj.chunk(2, 1), self.gate_up_proj_scale_inv.chunk(2, 1), strict=True)
        return torch.cat([grouped_gemm(x, w, offsets, s, dtype, backend) for w, s in pairs], 1)


class MixtureOfExperts(nn.Module):
    """Routed experts, weighted, plus the shared expert, unscaled."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.gate = Router(config, compute)
        self.experts = Experts(config, compute)
        self.shared_experts: MLP | None = None
        if config.n_shared_experts:
            inner = config.moe_intermediate_size * config.n_shared_experts
            self.shared_experts = MLP(config.hidden_size, inner, compute)

    def forward(self, x: torch.Tensor, operand: Operand) -> torch.Tensor:
        """x [T, D] and the same as an operand -> [T, D] in x's dtype."""
        routed = self.experts(operand, *self.gate(x))
        if self.shared_experts is not None:
            routed += self.shared_experts(operand).float()
        return routed.to(x.dtype)
