"""Reports which implementation each operation gets on a device, and why not the others. `deepseek-v32 doctor` prints it."""

from dataclasses import dataclass, replace
from importlib import import_module

import torch

from . import device as hardware
from .errors import ArgumentError
from .implementations import INVARIANT, OPERATIONS
from .registry import check_names, choose_implementation, preference_of


def leading_dtype(operation: str, precision: str) -> torch.dtype:
    """Return the dtype of the leading tensor that a model in exact, bf16 or fp8 precision passes to an operation."""
    if precision == "exact" or operation.startswith(("select_topk", "route")):
        return torch.float32
    if precision == "fp8" and ("_gemm" in operation or operation.endswith("indexer_logits")):
        return torch.float8_e4m3fn
    return torch.bfloat16


@dataclass(frozen=True)
class Choice:
    """One line of `deepseek-v32 doctor`."""

    operation: str
    chosen: str
    available: tuple[str, ...]
    unsupported_reasons: tuple[str, ...]


def describe(device: torch.device, backend: str = "auto", precision: str = "fp8") -> list[Choice]:
    """Return the implementation that each operation of a model in this precision gets; "none" if `backend` cannot run here.

    Leaves out the deterministic mode, which serves all operations of a model or none (`not_deterministic`).
    """
    lines = []
    for operation, every in OPERATIONS.items():
        implementations = [one for one in every if one.backend != INVARIANT]
        dtype = leading_dtype(operation, precision)
        chosen = choose_implementation(operation, device, dtype, preference_of(backend)).backend
        reasons = [one.unsupported_reason(device, dtype) for one in implementations]
        available = tuple(one.backend for one, reason in zip(implementations, reasons, strict=True) if reason is None)
        lines.append(Choice(operation, chosen, available, tuple(filter(None, reasons))))
    if backend in ("tile", "cuda") and all(line.chosen != backend for line in lines):
        return [replace(line, chosen="none") for line in lines]
    return lines


# What a deterministic model does not call: its prompts take the absorbed form, and decodes are sparse.
NOT_DETERMINISTIC = ("mha_prefill", "dense_mla_decode", "paged_mla_decode_h16")


def not_deterministic(device: torch.device, precision: str) -> str | None:
    """Return why a deterministic model in this precision cannot run on this device, or None if it can."""
    for operation in OPERATIONS:
        if operation in NOT_DETERMINISTIC:
            continue
        try:
            choose_implementation(operation, device, leading_dtype(operation, precision), preference_of("auto", True))
        except ValueError as error:
            return str(error)
    return None


def check_backend(backend: str, device: str) -> None:
    """Raise a ValueError if no implementation of `backend` can run on this device."""
    check_names((backend,))
    if all(line.chosen == "none" for line in describe(torch.device(device), backend)):
        raise ArgumentError(
            "backend",
            f"{backend!r}",
            f"auto or reference on {hardware.describe(torch.device(device))}: {backend} needs a Hopper GPU (sm_90) and the "
            "packages of 'deepseek-v32[kernels]'",
        )


def falls_back(operation: str, backend: str) -> str | None:
    """Describe the inputs for which this backend's implementation of `operation` runs PyTorch instead of kernels; None: no inputs.

    The words are FALLS_BACK in the implementation's module, next to the condition.
    """
    modules = [one.module for one in OPERATIONS[operation] if one.backend == backend]
    if not modules:
        return None
    try:
        module = import_module(f"..{backend}.{modules[0]}", __name__)
    except Exception as error:  # doctor is asked for just such a reason: a package that is there and does not work
        return f"cannot be imported: {type(error).__name__}: {error}".splitlines()[0]
    sentences: dict[str, str] = getattr(module, "FALLS_BACK", {})
    return sentences.get(operation)
