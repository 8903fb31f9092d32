"""Runs an operation on the implementation under test, so that the cases are the same for every backend and machine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.kernels.implementations import OPERATIONS

CPU = torch.device("cpu")


def present() -> list[Any]:
    """Fixture parameters: the reference always, and the compiled backends (marked gpu) on a machine with a Hopper GPU."""
    found: list[Any] = ["reference"]
    if torch.cuda.is_available() and is_hopper(torch.device("cuda", torch.cuda.current_device())):
        found += [pytest.param(name, marks=pytest.mark.gpu) for name in ("tile", "cuda")]
    return found


@dataclass(frozen=True)
class Backend:
    """Moves arguments to the backend's device, runs an operation there, and copies results and written tensors back."""

    name: str

    @property
    def device(self) -> torch.device:
        return CPU if self.name == "reference" else torch.device("cuda", torch.cuda.current_device())

    def run(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        leading = next(_tensors(args))
        implementations = [one for one in OPERATIONS[operation.__name__] if one.backend == self.name]
        reasons = [one.unsupported_reason(self.device, leading.dtype) for one in implementations] or ["not written"]
        if None not in reasons:
            pytest.skip(f"{operation.__name__}: {self.name} {reasons[0]}")
        if self.device == CPU:
            return operation(*args, backend=self.name, **kwargs)
        moved = [_move(argument, self.device) for argument in args]
        options = {key: _move(value, self.device) for key, value in kwargs.items()}
        result = operation(*moved, backend=self.name, **options)
        for mine, theirs in zip(_tensors(args), _tensors(moved), strict=True):
            if mine.dtype == torch.uint8 or operation.__name__.startswith(("write_", "norm_and_cache")):
                mine.copy_(theirs)
        return _move(result, CPU)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from _tensors(item)


def _move(tree: Any, device: torch.device) -> Any:
    """The same tree on `device`; tensors keep their strides."""
    if isinstance(tree, torch.Tensor):
        if tree.is_contiguous():
            return tree.to(device)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tree.shape, tree.stride(), strict=True))
        storage = torch.zeros(max(extent, 0), dtype=tree.dtype, device=device)
        return storage.as_strided(tree.shape, tree.stride()).copy_(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_move(item, device) for item in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(_move(item, device) for item in tree)
    return tree
