"""The parts of every block: the precision of computation, linear projections, norms and the gated MLP."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

from ..kernels import quantize
from ..kernels.fp8_gemm import fp8_gemm, fp8_gemms
from ..kernels.linear import linear
from ..kernels.reference.linear import linear as library_linear
from ..kernels.reference.quantize import rms_norm
from ..kernels.registry import Preference
from ..kernels.types import Quantized
from .config import FP8_BLOCK, ModelConfig, Precision, blocks

Operand = torch.Tensor | Quantized  # input of a projection: in fp8 precision, FP8 values with scales


@dataclass(frozen=True)
class Compute:
    """How the model computes. Resolved once and handed to every module.

    exact: fp32 throughout, with products in fp64 on a GPU. bf16: bf16 weights and activations. fp8: e4m3 weights and
    activations, bf16 between them.
    """

    precision: Precision
    backend: Preference
    device: torch.device
    ue8m0: bool = True
    deterministic: bool = False  # a token's arithmetic is the same in every batch, chunk and step (docs/determinism.md)
    # Routed experts are read from the checkpoint's files when a token needs them (docs/offload.md).
    offload: bool = False

    @cached_property
    def dtype(self) -> torch.dtype:
        """dtype of activations and of unquantised weights."""
        return torch.float32 if self.precision == "exact" else torch.bfloat16

    @cached_property
    def quantized(self) -> bool:
        return self.precision == "fp8"

    @cached_property
    def fp32_backend(self) -> Preference:
        """The backend of `fp32_linear`: in exact precision the reference, which is more precise on a GPU than a kernel."""
        return ("reference",) if self.precision == "exact" and not self.deterministic else self.backend

    def operand(self, x: torch.Tensor) -> Operand:
        """Make x [..., D] an input of projections, which all projections of one x share."""
        return quantize.quantize_blocks(x, self.ue8m0, backend=self.backend) if self.quantized else x


def parameter(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """Allocate a weight, which the checkpoint fills."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device=device), requires_grad=False)


def dense(
    x: torch.Tensor, weight: torch.Tensor, compute: Compute, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """x W^T of a weight [N, K] that is not quantised: x [T, K] -> [T, N] in `out_dtype`, by default x's."""
    if compute.deterministic:
        return linear(x, weight, out_dtype, backend=compute.backend)
    return library_linear(x, weight, out_dtype)


class Linear(nn.Module):
    """y = x W^T. In fp8 precision W is e4m3 with block scales; otherwise it has the compute dtype.

    A weight of several `parts` (gate and up) stacks them by rows. Each part is quantised by itself.
    """

    def __init__(self, inputs: int, outputs: int, compute: Compute, parts: int = 1) -> None:
        super().__init__()
        self.compute = compute
        self.parts = parts
        dtype = torch.float8_e4m3fn if compute.quantized else compute.dtype
        self.weight = parameter(parts * outputs, inputs, dtype=dtype, device=compute.device)
        if compute.quantized:
            self.weight_scale_inv = parameter(
                parts * blocks(outputs), blocks(inputs), dtype=torch.float32, device=compute.device
            )

    def forward(self, x: Operand, beside_previous: bool = False) -> torch.Tensor:
        """x [T, inputs] -> [T, parts * outputs] in the compute dtype. beside_previous: see `fp8_gemm`."""
        compute, weight, parts = self.compute, self.weight, self.parts
        if not isinstance(x, Quantized):
            return dense(x, weight, compute)
        scale, dtype, backend = self.weight_scale_inv, compute.dtype, compute.backend
        if parts == 1 or weight.shape[0] // parts % FP8_BLOCK == 0:
            return fp8_gemm(x, weight, scale, dtype, beside_previous=beside_previous, backend=backend)
        # The parts end inside a block, so their scales are not aligned with the stacked rows.
        pairs = zip(weight.chunk(parts), scale.chunk(parts), strict=True)
        return torch.cat([fp8_gemm(x, *pair, dtype, backend=backend) for pair in pairs], 1)


class UnquantizedLinear(nn.Module):
    """y = x W^T with a weight of the compute dtype, also in fp8 precision."""

    def __init__(self, inputs: int, outputs: int, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.weight = parameter(outputs, inputs, dtype=compute.dtype, device=compute.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, inputs] -> [T, outputs]."""
        return dense(x, self.weight, self.compute)


class Embedding(nn.Module):
    """A [V, D] table: embeds tokens or, transposed, computes logits."""

    def __init__(self, rows: int, width: int, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.weight = parameter(rows, width, dtype=compute.dtype, device=compute.device)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.weight)

    def logits(self, h: torch.Tensor) -> torch.Tensor:
        """h [N, D] -> fp32 [N, V]. bf16 products are accumulated in fp32 and not rounded."""
        return dense(h, self.weight, self.compute, torch.float32)


class KVUpProjection(nn.Module):
    """kv_b_proj, never quantised. Each head's rows are [nope | v], which `halves` separates."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.nope, self.value = config.qk_nope_head_dim, config.v_head_dim
        rows = self.heads * (self.nope + self.value)
        self.weight = parameter(rows, config.kv_lora_rank, dtype=compute.dtype, device=compute.device)

    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The projections of keys and of values: Wk [H, nope, L] and Wv [H, v, L]."""
        wk, wv = self.weight.unflatten(0, (self.heads, -1)).split_with_sizes((self.nope, self.value), 1)
        return wk, wv

    def forward(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """latent [S, L] -> k_nope [S, H, nope], v [S, H, v]."""
        expanded = library_linear(latent, self.weight).unflatten(1, (self.heads, -1))
        k_nope, v = expanded.split_with_sizes((self.nope, self.value), 2)
        return k_nope, v


def projections(x: Operand, *linears: Linear) -> list[torch.Tensor]:
    """Compute several projections of one part, x [T, inputs] -> [T, outputs] each. A few rows in FP8 need one launch for all."""
    if not isinstance(x, Quantized):
        return [linear(x) for linear in linears]
    compute = linears[0].compute
    weights = [Quantized(linear.weight, linear.weight_scale_inv) for linear in linears]
    return fp8_gemms(x, weights, compute.dtype, backend=compute.backend)


def joined(parts: list[Operand]) -> Operand:
    """Concatenate the rows of several operands."""
    if len(parts) == 1:
        return parts[0]
    quantized = [part for part in parts if isinstance(part, Quantized)]
    if not quantized:
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    codes = torch.cat([part.values.view(torch.uint8) for part in quantized])
    return Quantized(codes.view(torch.float8_e4m3fn), torch.cat([part.scales for part in quantized]))


class RMSNorm(nn.Module):
    """x / rms(x) * weight, computed in fp32 with an fp32 weight, then cast."""

    def __init__(self, width: int, eps: float, compute: Compute) -> None:
        super().__init__()
        self.eps = eps
        self.compute = compute
        self.weight = parameter(width, dtype=torch.float32, device=compute.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.compute.deterministic:
            return quantize.rms_norm(x, self.weight, self.eps, backend=self.compute.backend)
        return rms_norm(x, self.weight, self.eps)

    def with_operand(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, Operand]:
        """Return x [T, D] plus `residual` if there is one, this sum normed, and the norm as an input of projections."""
        if self.compute.quantized:
            ue8m0, backend = self.compute.ue8m0, self.compute.backend
            return quantize.rms_norm_quantize(x, self.weight, self.eps, ue8m0, residual, backend=backend)
        total = x if residual is None else x + residual
        normed = self(total)
        return total, normed, normed


class Pending(Protocol):
    """A sublayer's output [T, D] as terms that the next norm can sum in its own pass."""

    def sum(self, compute: Compute) -> torch.Tensor:
        """The output, [T, D]."""

    def norm(self, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor, Operand]:
        """Return the same as `norm.with_operand(residual, output)`."""


Update = torch.Tensor | Pending  # a sublayer's output


def summed(update: Update, compute: Compute) -> torch.Tensor:
    """The output, [T, D]."""
    return update if isinstance(update, torch.Tensor) else update.sum(compute)


class MLP(nn.Module):
    """down(silu(gate x) * up x): the MLP of dense layers, and the shared expert."""

    partial = False  # whether it computes a part of a sum over ranks

    def __init__(self, hidden: int, intermediate: int, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.gate_up_proj = Linear(hidden, intermediate, compute, parts=2)
        self.down_proj = Linear(intermediate, hidden, compute)

    def forward(self, x: Operand) -> torch.Tensor:
        """[T, D] -> [T, D]."""
        return self.down_proj(gated(self.gate_up_proj(x), self.compute))


def gated(gate_up: torch.Tensor, compute: Compute, count: torch.Tensor | None = None) -> Operand:
    """gate_up [T, 2I] -> silu(gate) * up [T, I], as an input of the down projection; of the first `count` rows at least."""
    if compute.quantized:
        return quantize.swiglu_quantize(gate_up, compute.ue8m0, count, backend=compute.backend)
    return quantize.swiglu(gate_up, backend=compute.backend)
