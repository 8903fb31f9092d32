"""Chooses the implementation of an operation, once per (device, dtype, backend, width), and never silently.

`plan_decode` and `plan_dense` ask which implementation will run and make that one's split-KV plan; they choose nothing.
`converts_context` and `attends_as_decode` (sparse_mla_prefill.py) choose between two operations, not between implementations.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Literal, get_args

import torch

from . import device as hardware
from .errors import ArgumentError
from .implementations import INVARIANT, OPERATIONS, Implementation

Backend = Literal["auto", "reference", "tile", "cuda"]
BACKENDS = get_args(Backend)
# Backends in the order in which they are tried. "auto" stands for all backends of an operation, the fastest first; INVARIANT for
# all implementations that are batch-invariant.
Preference = tuple[str, ...]
Operation = Callable[..., torch.Tensor]  # or several tensors, which a caller unpacks in the same way
# The width of other operations changes at every step: it would only fill the cache of choices.
_BY_WIDTH = {operation for operation, every in OPERATIONS.items() if any(one.width for one in every)}


def preference_of(backend: str, deterministic: bool = False) -> Preference:
    """Return the preference that a model with this backend passes to its operations.

    "tile" or "cuda" runs where it has an implementation that supports the input, and the fastest other one elsewhere. An operation
    that gets "tile" or "cuda" as a string, by contrast, runs that implementation or raises. deterministic: any backend, but
    batch-invariant.
    """
    check_names((backend,))
    if deterministic:
        return (INVARIANT,)
    return (backend, "auto") if backend in ("tile", "cuda") else (backend,)


def _allows(name: str, implementation: Implementation) -> bool:
    if name == INVARIANT:
        return implementation.invariant
    return name in ("auto", implementation.backend) and implementation.backend != INVARIANT


@cache
def choose_implementation(
    operation: str, device: torch.device, dtype: torch.dtype, backend: str | Preference, width: int | None = None
) -> Implementation:
    """Return the implementation of `operation` for this device, dtype and width. ValueError, with the reasons, if none fits.

    `backend`: one backend, or several in order of preference.
    """
    preference = (backend,) if isinstance(backend, str) else backend
    check_names(preference)
    reasons = []
    allowed = (one for name in preference for one in OPERATIONS[operation] if _allows(name, one))
    for implementation in dict.fromkeys(allowed):
        reason = implementation.unsupported_reason(device, dtype, width)
        if INVARIANT in preference and implementation.backend == "reference" and device.type != "cpu":
            reason = "reference is batch-invariant only on a CPU"
        if reason is None:
            return implementation
        reasons.append(reason)
    asked = " or ".join(preference)
    why = "; ".join(reasons) or f"it has {', '.join(one.backend for one in OPERATIONS[operation])}"
    raise ValueError(f"{operation} has no {asked} implementation for {dtype} on {hardware.describe(device)}: {why}")


@cache
def _load(operation: str, implementation: Implementation) -> Operation:
    module = import_module(f"..{implementation.backend}.{implementation.module}", __name__)
    function: Operation = getattr(module, operation)
    return function


def choose(operation: str, tensor: torch.Tensor, backend: str | Preference) -> Operation:
    """Return the function that runs `operation` for this leading tensor. See choose_implementation for the other arguments."""
    width = tensor.shape[-1] if operation in _BY_WIDTH else None
    return _load(operation, choose_implementation(operation, tensor.device, tensor.dtype, backend, width))


def check_names(preference: Preference) -> None:
    """Raise a ValueError if a name in `preference` is no backend."""
    for name in preference:
        if name not in (*BACKENDS, INVARIANT):
            raise ArgumentError("backend", f"{name!r}", f"one of {', '.join(BACKENDS)}")
