"""Mixture of experts: a router with a correction bias instead of an auxiliary loss, routed experts, and a shared expert.

Source: DeepSeek-V3 report (arXiv 2412.19437), section 2.1.2.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from ..kernels.fp32_ops import fp32_linear
from ..kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from ..kernels.routing import combine_experts, combine_norm_quantize, route, route_and_group
from ..kernels.types import ExpertGroups, Quantized
from .config import FP8_BLOCK, ModelConfig, blocks
from .layers import MLP, Compute, Operand, RMSNorm, Update, gated, parameter
from .profiling import profiler_range
from .stages import stages

# Up to this many tokens, the sum of the experts' outputs is left to the next norm, which saves a launch. The outputs of more tokens
# would occupy memory throughout the next layer.
DEFERRED_TOKENS = 64


class Router(nn.Module):
    """Chooses each token's experts. All of it is in fp32, because a rounded score would change the choice."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.config, self.compute = config, compute
        experts = config.n_routed_experts
        self.weight = parameter(experts, config.hidden_size, dtype=torch.float32, device=compute.device)
        self.e_score_correction_bias = parameter(experts, dtype=torch.float32, device=compute.device)

    def forward(self, x: torch.Tensor, count: int, first: int, step: int) -> tuple[torch.Tensor, ExpertGroups]:
        """x [T, D] -> weights fp32 [T, k], and the pairs grouped by expert; `count`, `first`, `step`: this rank's experts."""
        logits, bias = self.logits(x), self.e_score_correction_bias
        return route_and_group(logits, bias, **self._limits(), count=count, first=first, step=step)

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x [T, D] -> experts int64 [T, k], weights fp32 [T, k]."""
        return route(self.logits(x), self.e_score_correction_bias, **self._limits())

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, D] -> fp32 [T, E]."""
        return fp32_linear(x, self.weight, backend=self.compute.fp32_backend)

    def _limits(self) -> dict[str, Any]:
        """The arguments of `route` that the configuration decides."""
        config = self.config
        return {
            "topk": config.num_experts_per_tok,
            "num_groups": config.n_group,
            "topk_groups": config.topk_group,
            "normalise": config.norm_topk_prob,
            "scale": config.routed_scaling_factor,
            "backend": self.compute.backend,
        }


class ExpertOutputs(NamedTuple):
    """The outputs of a layer's experts for T tokens, before they are summed."""

    rows: torch.Tensor  # [T * k, D], sorted by expert
    groups: ExpertGroups
    weights: torch.Tensor  # fp32 [T, k]
    shared: torch.Tensor | None  # [T, D]

    def sum(self, compute: Compute) -> torch.Tensor:
        """The weighted sum plus the shared expert, [T, D]."""
        return combine_experts(*self, backend=compute.backend)

    def norm(self, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor, Operand]:
        """Return the same as `RMSNorm.with_operand` for the residual stream [T, D] and the sum."""
        compute = norm.compute
        return combine_norm_quantize(*self, residual, norm.weight, norm.eps, compute.ue8m0, backend=compute.backend)


class Experts(nn.Module):
    """The routed experts' weights, stacked for the grouped GEMM: gate rows first, then up."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.total = config.n_routed_experts
        self.first, self.step = 0, 1  # a rank may hold only every step-th expert, beginning with number `first`
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

    @property
    def count(self) -> int:
        """The number of this rank's experts."""
        return self.gate_up_proj.shape[0]

    def forward(self, x: Operand, weights: torch.Tensor, groups: ExpertGroups, shared: MLP | None) -> ExpertOutputs:
        """x [T, D] and the router's weights fp32 [T, k] and groups -> the outputs of all experts."""
        compute, tokens = self.compute, len(weights)
        expected_m = -(-weights.numel() * self.count // self.total)
        dense: torch.Tensor | None
        if isinstance(x, Quantized) and self.fuses(shared) and tokens:
            assert shared is not None
            rows = self._with_shared(x, groups.offsets, groups.sorted_token_ids, expected_m, shared)
            own, dense = rows[tokens:], rows[:tokens]
        else:
            own = self._down(
                gated(self._gate_up(x, groups.offsets, groups.sorted_token_ids, expected_m), compute),
                groups.offsets,
                expected_m,
            )
            dense = None if shared is None else shared(x)
        return ExpertOutputs(own, groups, weights, dense)

    def fuses(self, shared: MLP | None) -> bool:
        """Return whether the shared expert has the shape of a routed one, so that one grouped GEMM can compute both."""
        if shared is None or self.gate_up_proj.shape[1] // 2 % FP8_BLOCK:
            return False
        shape = tuple(shared.gate_up_proj.weight.shape), tuple(shared.down_proj.weight.shape)
        return shape == (tuple(self.gate_up_proj.shape[1:]), tuple(self.down_proj.shape[1:]))

    def _with_shared(
        self, x: Quantized, offsets: torch.Tensor, sorted_token_ids: torch.Tensor, expected_m: int, shared: MLP
    ) -> torch.Tensor:
        """Compute the shared expert for x [T, D], then the routed experts for the sorted rows: [T + T * k, D]."""
        compute, first = self.compute, x.values.shape[0]
        gate_up, down = shared.gate_up_proj, shared.down_proj
        rows = grouped_gemm_with_shared(
            x,
            self.gate_up_proj,
            offsets,
            self.gate_up_proj_scale_inv,
            x,
            Quantized(gate_up.weight, gate_up.weight_scale_inv),
            compute.dtype,
            sorted_token_ids=sorted_token_ids,
            expected_m=expected_m,
            beside_previous=True,  # two launches, the router's product and its choice, lie between x and this product
            backend=compute.backend,
        )
        inner = gated(rows, compute)
        assert isinstance(inner, Quantized)
        return grouped_gemm_with_shared(
            Quantized(inner.values[first:], inner.scales[first:]),
            self.down_proj,
            offsets,
            self.down_proj_scale_inv,
            Quantized(inner.values[:first], inner.scales[:first]),
            Quantized(down.weight, down.weight_scale_inv),
            compute.dtype,
            expected_m=expected_m,
            backend=compute.backend,
        )

    def _gate_up(
        self, x: Operand, offsets: torch.Tensor, sorted_token_ids: torch.Tensor, expected_m: int
    ) -> torch.Tensor:
        """Gates and ups of the sorted rows [T * k, 2I]; row r belongs to token sorted_token_ids[r]."""

        def product(weight: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
            return grouped_gemm(
                x,
                weight,
                offsets,
                scale,
                self.compute.dtype,
                sorted_token_ids=sorted_token_ids,
                expected_m=expected_m,
                backend=self.compute.backend,
            )

        if not self.compute.quantized:
            return product(self.gate_up_proj, None)
        if self.gate_up_proj.shape[1] // 2 % FP8_BLOCK == 0:
            return product(self.gate_up_proj, self.gate_up_proj_scale_inv)
        pairs = zip(self.gate_up_proj.chunk(2, 1), self.gate_up_proj_scale_inv.chunk(2, 1), strict=True)
        return torch.cat([product(weight, scale) for weight, scale in pairs], 1)

    def _down(self, inner: Operand, offsets: torch.Tensor, expected_m: int) -> torch.Tensor:
        scale = self.down_proj_scale_inv if self.compute.quantized else None
        dtype, backend = self.compute.dtype, self.compute.backend
        return grouped_gemm(inner, self.down_proj, offsets, scale, dtype, expected_m=expected_m, backend=backend)


class MixtureOfExperts(nn.Module):
    """The weighted sum of routed experts plus the shared expert."""

    def __init__(self, config: ModelConfig, compute: Compute, layer: int) -> None:
        super().__init__()
        self.layer = layer
        # The next norm may sum the experts' outputs. False on several ranks, which add theirs up first.
        self.defers_sum = compute.quantized
        self.gate = Router(config, compute)
        self.experts = Experts(config, compute)
        self.shared_experts: MLP | None = None
        if config.n_shared_experts:
            inner = config.moe_intermediate_size * config.n_shared_experts
            self.shared_experts = MLP(config.hidden_size, inner, compute)

    def forward(self, x: torch.Tensor, operand: Operand) -> torch.Tensor:
        """x [T, D] and the same as an operand -> [T, D] in x's dtype."""
        outputs = self._outputs(x, operand)
        with profiler_range(f"layer {self.layer}/experts"):
            return outputs.sum(self.gate.compute)

    def pending(self, x: torch.Tensor, operand: Operand) -> Update:
        """Return the same, or terms that the next norm sums."""
        if self.defers_sum and x.shape[0] <= DEFERRED_TOKENS:
            return self._outputs(x, operand)
        output: Update = self(x, operand)
        return output

    def _outputs(self, x: torch.Tensor, operand: Operand) -> ExpertOutputs:
        experts = self.experts
        with profiler_range(f"layer {self.layer}/router"):
            weights, groups = self.gate(x, experts.count, experts.first, experts.step)
            stages(
                self.layer,
                router_logits=lambda: self.gate.logits(x),
                router_scores=lambda: self.gate.logits(x).sigmoid() + self.gate.e_score_correction_bias,
                router_choice=lambda: torch.searchsorted(groups.offsets[1:], groups.inverse_permutation, right=True),
                router_weights=weights,
            )
        with profiler_range(f"layer {self.layer}/experts"):
            outputs = experts(operand, weights, groups, self.shared_experts)
            stages(self.layer, shared_expert=outputs.shared)
            return outputs

    def operations(self, last: bool) -> tuple[str, ...]:
        """List the kernel operations that routed experts call in fp8 precision; `last`: in the last layer."""
        fused = self.experts.fuses(self.shared_experts)
        grouped = "grouped_gemm_with_shared" if fused else "grouped_gemm"
        deferred = self.defers_sum and not last
        return "fp32_linear", "route_and_group", grouped, "combine_norm_quantize" if deferred else "combine_experts"
