"""Mixture of experts: a router with a correction bias instead of an auxiliary loss, routed experts, and a shared expert.

Source: DeepSeek-V3 report (arXiv 2412.19437), section 2.1.2.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from ..kernels.fp32_ops import fp32_linear
from ..kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from ..kernels.routing import combine_experts, combine_norm_quantize, route, route_and_group
from ..kernels.types import ExpertGroups, Quantized
from .config import FP8_BLOCK, ModelConfig, blocks
from .host_step import on_host
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


class ExpertWeights(NamedTuple):
    """Weights of all or some of a layer's experts, for one launch."""

    weight: torch.Tensor  # [S, N, K]
    scale: torch.Tensor | None  # fp32 [S, blocks of N, blocks of K] of an FP8 weight
    slots: torch.Tensor | None = (
        None  # int32 [E]: expert e has weight[slots[e]], or -1: it is in another launch; None: weight[e]
    )


Parts = Callable[
    [str], Iterable[ExpertWeights]
]  # from "gate_up_proj" or "down_proj" to the weights, for one launch or several


class ExpertStore(Protocol):
    """A layer's routed experts, if they are not all in memory (expert_slots.py)."""

    def request(self, offsets: torch.Tensor, tokens: int) -> Parts:
        """Begin to read the experts of a step of T tokens, those e with offsets[e] < offsets[e + 1]; offsets int32 [E + 1]."""


class Experts(nn.Module):
    """The routed experts: their weights, stacked for the grouped GEMM with gate rows first, then up; or a store of them."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.total = self.count = config.n_routed_experts
        self.first, self.step = (
            0,
            1,
        )  # a rank may hold only every step-th expert, beginning with number `first`: `count` of them
        hidden, self.inner = config.hidden_size, config.moe_intermediate_size
        self.store: ExpertStore | None = None
        if compute.offload:
            return
        dtype = torch.float8_e4m3fn if compute.quantized else compute.dtype
        self.gate_up_proj = parameter(self.count, 2 * self.inner, hidden, dtype=dtype, device=compute.device)
        self.down_proj = parameter(self.count, hidden, self.inner, dtype=dtype, device=compute.device)
        if compute.quantized:
            self.gate_up_proj_scale_inv = parameter(
                self.count, 2 * blocks(self.inner), blocks(hidden), dtype=torch.float32, device=compute.device
            )
            self.down_proj_scale_inv = parameter(
                self.count, blocks(hidden), blocks(self.inner), dtype=torch.float32, device=compute.device
            )

    def forward(self, x: Operand, weights: torch.Tensor, groups: ExpertGroups, shared: MLP | None) -> ExpertOutputs:
        """x [T, D] and the router's weights fp32 [T, k] and groups -> the outputs of all experts."""
        tokens, fused = (
            len(weights),
            shared if isinstance(x, Quantized) and self.fuses(shared) and len(weights) else None,
        )
        expected_m = -(-weights.numel() * self.count // self.total)
        first = 0 if fused is None else tokens
        if self.store is None:
            rows = self._rows(x, groups, expected_m, fused, self._in_memory)
        else:
            values = x.values if isinstance(x, Quantized) else x
            shape = first + weights.numel(), values.shape[1]
            place = partial(torch.empty, shape, dtype=self.compute.dtype, device=values.device)
            work = partial(self._offloaded, self.store, tokens, expected_m, fused)
            rows = on_host(work, place, *groups, *(x if isinstance(x, Quantized) else (x,)))
        dense = rows[:tokens] if fused is not None else None if shared is None else shared(x)
        return ExpertOutputs(rows[first:], groups, weights, dense)

    def _offloaded(
        self,
        store: ExpertStore,
        tokens: int,
        expected_m: int,
        shared: MLP | None,
        out: torch.Tensor | None,
        *given: torch.Tensor,
    ) -> torch.Tensor:
        """Return `_rows`, in `out` if it is given. given: groups, then x."""
        groups, x = ExpertGroups(*given[:3]), Quantized(*given[3:]) if len(given) > 4 else given[3]
        return self._rows(x, groups, expected_m, shared, store.request(groups.offsets, tokens), out)

    def _rows(
        self,
        x: Operand,
        groups: ExpertGroups,
        expected_m: int,
        shared: MLP | None,
        parts: Parts,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Outputs of the sorted rows [T * k, D]; before them those of the shared expert [T, D], if it is given."""
        if shared is not None:
            assert isinstance(x, Quantized)
            return self._with_shared(x, groups, expected_m, shared, parts, out)
        return self._down(
            gated(self._gate_up(x, groups, expected_m, parts), self.compute), groups, expected_m, parts, out
        )

    def _in_memory(self, name: str) -> tuple[ExpertWeights]:
        return (ExpertWeights(getattr(self, name), getattr(self, name + "_scale_inv", None)),)

    def fuses(self, shared: MLP | None) -> bool:
        """Return whether the shared expert has the shape of a routed one, so that one grouped GEMM can compute both."""
        return shared is not None and self.inner % FP8_BLOCK == 0 and shared.down_proj.weight.shape[1] == self.inner

    def _with_shared(
        self,
        x: Quantized,
        groups: ExpertGroups,
        expected_m: int,
        shared: MLP,
        parts: Parts,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        """Compute the shared expert for x [T, D], then the routed experts for the sorted rows: [T + T * k, D]."""
        compute, first = self.compute, x.values.shape[0]

        def product(
            name: str,
            dense: Quantized,
            dense_weight: Quantized,
            rows: Quantized,
            out: torch.Tensor | None = None,
            **options: Any,
        ) -> torch.Tensor:
            for part in parts(name):
                assert part.scale is not None
                out = grouped_gemm_with_shared(
                    rows,
                    part.weight,
                    groups.offsets,
                    part.scale,
                    dense,
                    dense_weight,
                    compute.dtype,
                    expected_m=expected_m,
                    slots=part.slots,
                    out=out,
                    backend=compute.backend,
                    **options,
                )
            assert out is not None
            return out

        gate_up, down = shared.gate_up_proj, shared.down_proj
        rows = product(
            "gate_up_proj",
            x,
            Quantized(gate_up.weight, gate_up.weight_scale_inv),
            x,
            sorted_token_ids=groups.sorted_token_ids,
            beside_previous=True,  # two launches, the router's product and its choice, lie between x and this product
        )
        inner = gated(rows, compute)
        assert isinstance(inner, Quantized)
        own, dense = (Quantized(*(each[half] for each in inner)) for half in (slice(first, None), slice(first)))
        return product("down_proj", dense, Quantized(down.weight, down.weight_scale_inv), own, out)

    def _gate_up(self, x: Operand, groups: ExpertGroups, expected_m: int, parts: Parts) -> torch.Tensor:
        """Gates and ups of the sorted rows [T * k, 2I]; row r belongs to token sorted_token_ids[r]."""
        # Gate and up have blocks of scales of their own, which cannot be stacked if gate ends inside a block.
        halves = 1 if not self.compute.quantized or self.inner % FP8_BLOCK == 0 else 2
        outs: list[torch.Tensor | None] = [None] * halves
        for part in parts("gate_up_proj"):
            scales = [None] * halves if part.scale is None else part.scale.chunk(halves, 1)
            for half, (weight, scale) in enumerate(zip(part.weight.chunk(halves, 1), scales, strict=True)):
                piece = ExpertWeights(weight, scale, part.slots)
                outs[half] = self._product(x, piece, groups, expected_m, outs[half], groups.sorted_token_ids)
        found = [out for out in outs if out is not None]
        return found[0] if halves == 1 else torch.cat(found, 1)

    def _down(
        self, inner: Operand, groups: ExpertGroups, expected_m: int, parts: Parts, out: torch.Tensor | None
    ) -> torch.Tensor:
        for part in parts("down_proj"):
            out = self._product(inner, part, groups, expected_m, out)
        assert out is not None
        return out

    def _product(
        self,
        rows: Operand,
        part: ExpertWeights,
        groups: ExpertGroups,
        expected_m: int,
        out: torch.Tensor | None,
        sorted_token_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return grouped_gemm(
            rows,
            part.weight,
            groups.offsets,
            part.scale,
            self.compute.dtype,
            sorted_token_ids=sorted_token_ids,
            expected_m=expected_m,
            slots=part.slots,
            out=out,
            backend=self.compute.backend,
        )


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
