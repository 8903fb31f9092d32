"""FP8 quantisation of activations: e4m3 values with one fp32 scale per group of 128. quantize_weight.py has that of weights.

scale = max(amax, floor) / 448, rounded up to a power of two if `ue8m0`; value = x / scale. If a group or block holds a NaN or an
infinity, its scale and all its values are NaN, in every operation that quantises: e4m3 and ue8m0 have no infinity, and a NaN that
its neighbours did not share could be selected away.
Source: DeepSeek-V3 report, section 3.3; DeepSeek-V3.2 config.json, quantization_config.
"""

import torch

from .checks import FLOATS, check_tensor
from .registry import Preference, choose
from .types import Normed, Quantized


def quantize_blocks(x: torch.Tensor, ue8m0: bool = True, *, backend: str | Preference = "auto") -> Quantized:
    """Quantise activations x [..., D] (fp32 or bf16) in groups of 128 along the last axis."""
    check_tensor("x", x, (None,) * max(x.dim(), 1), FLOATS)
    return Quantized(*choose("quantize_blocks", x, backend)(x, ue8m0))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, *, backend: str | Preference = "auto") -> torch.Tensor:
    """RMSNorm of x [T, D] with weight fp32 [D], computed in fp32, in x's dtype."""
    check_tensor("x", x, (None, None), FLOATS)
    check_tensor("weight", weight, (x.shape[1],), torch.float32, x.device)
    return choose("rms_norm", x, backend)(x, weight, eps)


def rms_norm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    ue8m0: bool = True,
    residual: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> Normed:
    """RMSNorm of x [T, D] with weight fp32 [D]: the normed rows in x's dtype, and the same rows quantised.

    With `residual` [T, D] of x's dtype, the input of the norm is total = x + residual, rounded to that dtype.
    """
    check_tensor("x", x, (None, None), FLOATS)
    check_tensor("weight", weight, (x.shape[1],), torch.float32, x.device)
    if residual is not None:
        check_tensor("residual", residual, tuple(x.shape), x.dtype, x.device)
    total, rows, values, scales = choose("rms_norm_quantize", x, backend)(x, weight, eps, ue8m0, residual)
    return Normed(total, rows, Quantized(values, scales))


def swiglu(gate_up: torch.Tensor, *, backend: str | Preference = "auto") -> torch.Tensor:
    """silu(gate) * up of gate_up [T, 2I], in fp32, rounded once to gate_up's dtype: [T, I]."""
    check_tensor("gate_up", gate_up, (None, None), FLOATS)
    if gate_up.shape[1] % 2:
        raise ValueError(f"gate_up has {gate_up.shape[1]} columns; expected an even number")
    return choose("swiglu", gate_up, backend)(gate_up)


def swiglu_quantize(
    gate_up: torch.Tensor,
    ue8m0: bool = True,
    count: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> Quantized:
    """silu(gate) * up of gate_up [T, 2I] (product in fp32, rounded to gate_up's dtype), quantised: values [T, I].

    count: int32 [1]; rows from there on may be left out.
    """
    check_tensor("gate_up", gate_up, (None, None), FLOATS)
    if count is not None:
        check_tensor("count", count, (1,), torch.int32, gate_up.device)
    if gate_up.shape[1] % 2:
        raise ValueError(f"gate_up has {gate_up.shape[1]} columns; expected an even number")
    return Quantized(*choose("swiglu_quantize", gate_up, backend)(gate_up, ue8m0, count))
