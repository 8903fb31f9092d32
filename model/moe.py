"""Mixture of experts: a router with a correction bias instead of an auxiliary loss, routed experts, and a shared expert.

Source: DeepSeek-V3 report (arXiv 2412.19437), section 2.1.2.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from ..kernels import types
from ..kernels.fp32_ops import fp32_linear
from ..kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from ..kernels.routing import combine_experts, combine_norm_quantize, group_by_expert, route, route_and_group
from ..kernels.types import ExpertGroups, Quantized
from .config import FP8_BLOCK, ModelConfig, blocks
from .host_step import on_host
from .layers import MLP, Compute, Operand, RMSNorm, Update, gated, parameter
from .metadata import Rows
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


class ExpertOutputs(types.ExpertOutputs):
    """The outputs of a layer's experts for T tokens, before they are summed."""

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
    # int32 [E]: expert e has weight[slots[e]], or -1: it is in another launch; None: weight[e].
    slots: torch.Tensor | None = None


# From "gate_up_proj" or "down_proj" to the weights, for one launch or several.
Parts = Callable[[str], Iterable[ExpertWeights]]

# A layer's routed experts, if they are not all in memory (expert_slots.py): from offsets int32 [E + 1] and the number of a step's
# tokens to the experts e with offsets[e] < offsets[e + 1]. The call begins to read them. "gate_up_proj" must be asked for first.
ExpertStore = Callable[[torch.Tensor, int], Parts]


class Experts(nn.Module):
    """The routed experts: their weights, stacked for the grouped GEMM with gate rows first, then up; or a store of them."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.total = self.count = config.n_routed_experts
        self.first, self.step = 0, 1  # a rank may hold `count` experts: `first`, and every step-th after it
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
        values, tokens = x.values if isinstance(x, Quantized) else x, len(weights)
        fused = shared if isinstance(x, Quantized) and tokens and self.fuses(shared) else None
        first = 0 if fused is None else tokens
        work = partial(self._rows, tokens, -(-weights.numel() * self.count // self.total), fused)
        given = *groups, *(x if isinstance(x, Quantized) else (x,))
        if self.store is None:
            rows = work(None, *given)
        else:
            shape = first + weights.numel(), values.shape[1]
            place = partial(torch.empty, shape, dtype=self.compute.dtype, device=values.device)
            rows = on_host(work, place, *given)
        dense = rows[:tokens] if fused is not None else None if shared is None else shared(x)
        return ExpertOutputs(rows[first:], groups, weights, dense)

    def fuses(self, shared: MLP | None) -> bool:
        """Return whether the shared expert has the shape of a routed one, so that one grouped GEMM can compute both."""
        return shared is not None and self.inner % FP8_BLOCK == 0 and shared.down_proj.weight.shape[1] == self.inner

    def _rows(
        self, tokens: int, expected_m: int, shared: MLP | None, out: torch.Tensor | None, *given: torch.Tensor
    ) -> torch.Tensor:
        """Outputs of the sorted rows [T * k, D], after the shared expert's [T, D] if it is given; in `out`, if that is given.

        given: the tensors of ExpertGroups, then those of x [T, D]. Row r belongs to token sorted_token_ids[r].
        """
        groups, x = ExpertGroups(*given[:3]), Quantized(*given[3:]) if len(given) > 4 else given[3]
        parts = self._in_memory if self.store is None else self.store(groups.offsets, tokens)
        product, own = partial(self._product, parts, groups, expected_m), x
        ids: torch.Tensor | None = groups.sorted_token_ids
        if self.store is not None and tokens > DEFERRED_TOKENS:
            own, ids = _gathered(x, groups.sorted_token_ids.clamp(0, tokens - 1)), None  # once for all launches
        if shared is None:
            # A rank's experts have few of the rows.
            end = groups.offsets[-1:] if self.count < self.total and tokens > DEFERRED_TOKENS else None
            return product("down_proj", gated(product("gate_up_proj", own, ids), self.compute, end), out=out)
        gate_up, down = shared.gate_up_proj, shared.down_proj
        dense_weight = Quantized(gate_up.weight, gate_up.weight_scale_inv)
        inner = gated(product("gate_up_proj", own, ids, (x, dense_weight)), self.compute)
        own, dense = (Quantized(*(each[half] for each in inner)) for half in (slice(tokens, None), slice(tokens)))
        return product("down_proj", own, None, (dense, Quantized(down.weight, down.weight_scale_inv)), out)

    def _in_memory(self, name: str) -> tuple[ExpertWeights]:
        return (ExpertWeights(getattr(self, name), getattr(self, name + "_scale_inv", None)),)

    def _product(
        self,
        parts: Parts,
        groups: ExpertGroups,
        expected_m: int,
        name: str,
        rows: Operand,
        ids: torch.Tensor | None = None,
        shared: tuple[Any, ...] | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Multiply rows with the experts' weights of this name, in one launch or several.

        ids: of rows that are not sorted. shared: the shared expert's rows and weight.
        """
        up = name == "gate_up_proj"
        # Gate and up have blocks of scales of their own, which cannot be stacked if gate ends inside a block.
        halves = 2 if up and self.compute.quantized and self.inner % FP8_BLOCK else 1
        outs = [out] * halves
        first = 0 if shared is None else len(shared[0].values)
        for number, part in enumerate(parts(name)):
            only_routed = number > 0 and first > DEFERRED_TOKENS  # for many tokens the shared expert takes long
            weights = [(part.weight, part.scale)]
            if halves > 1 and part.scale is not None:
                weights = list(zip(part.weight.chunk(halves, 1), part.scale.chunk(halves, 1), strict=True))
            for half, (weight, scale) in enumerate(weights):
                operands: tuple[Any, ...] = rows, weight, groups.offsets, scale
                options: dict[str, Any] = {
                    "out_dtype": self.compute.dtype,
                    "sorted_token_ids": ids,
                    "expected_m": expected_m,
                    "slots": part.slots,
                    "out": outs[half],
                    "backend": self.compute.backend,
                }
                done = outs[half]
                if shared is None:
                    outs[half] = grouped_gemm(*operands, **options)
                elif only_routed and done is not None:
                    grouped_gemm(*operands, **options | {"out": done[first:]})
                else:
                    # Two launches, the router's product and its choice, lie between x and the product of gate and up.
                    options["beside_previous"] = up
                    outs[half] = grouped_gemm_with_shared(*operands, *shared, **options)
        found = [each for each in outs if each is not None]
        return found[0] if halves == 1 else torch.cat(found, 1)


def _gathered(x: Operand, ids: torch.Tensor) -> Operand:
    if isinstance(x, torch.Tensor):
        return x[ids]
    return Quantized(x.values.view(torch.uint8)[ids].view(x.values.dtype), x.scales[ids])


class MixtureOfExperts(nn.Module):
    """The weighted sum of routed experts plus the shared expert."""

    def __init__(self, config: ModelConfig, compute: Compute, layer: int) -> None:
        super().__init__()
        self.layer, self.compute = layer, compute
        self.partial = False  # whether it has a part of the experts, whose sums ranks add up
        self.gate = Router(config, compute)
        self.experts = Experts(config, compute)
        self.shared_experts: MLP | None = None
        if config.n_shared_experts:
            inner = config.moe_intermediate_size * config.n_shared_experts
            self.shared_experts = MLP(config.hidden_size, inner, compute)

    def forward(self, x: torch.Tensor, operand: Operand, rows: Rows) -> Update:
        """This process's rows of x [T, D], and as an operand -> its rows of the sum over ranks, or terms for the next norm."""
        outputs = self._outputs(x, operand, rows)
        if self._defers_sum(len(x)):
            return outputs
        with profiler_range(f"layer {self.layer}/experts"):
            output = outputs.sum(self.compute)
        return rows.sum(output) if self.partial else output

    def _defers_sum(self, tokens: int) -> bool:
        return self.compute.quantized and not self.partial and tokens <= DEFERRED_TOKENS

    def _outputs(self, x: torch.Tensor, operand: Operand, rows: Rows) -> ExpertOutputs:
        experts, gate = self.experts, self.gate
        with profiler_range(f"layer {self.layer}/router"):
            if rows.divided:
                chosen, weights = gate.choose(x)
                operand, (chosen, weights) = rows.gather_inputs(operand, chosen, weights)
                share, backend = (experts.count, experts.first, experts.step), self.compute.backend
                groups = group_by_expert(chosen, *share, backend=backend)
            else:
                weights, groups = gate(x, experts.count, experts.first, experts.step)
            stages(
                self.layer,
                router_logits=lambda: gate.logits(x),
                router_scores=lambda: gate.logits(x).sigmoid() + gate.e_score_correction_bias,
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
        deferred = self._defers_sum(1) and not last
        return "fp32_linear", "route_and_group", grouped, "combine_norm_quantize" if deferred else "combine_experts"
