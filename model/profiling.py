"""Named ranges for profilers: "embedding", "layer 3/indexer", "head".

In eager mode, Nsight Systems shows them as NVTX ranges, and torch.profiler shows them as annotations. They lie on the host: a
replayed CUDA graph has none.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeVar, cast

import torch

_Method = TypeVar("_Method", bound=Callable[..., Any])

_NO_RANGE = nullcontext()


class _NvtxRange:
    """torch.cuda.nvtx.range without the cost of a generator: it is entered several times per layer."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        torch.cuda.nvtx.range_push(self._name)

    def __exit__(self, *_: object) -> None:
        torch.cuda.nvtx.range_pop()


def profiler_range(name: str) -> AbstractContextManager[object]:
    """Make a context in which work belongs to the range `name`. Without a profiler it costs about a microsecond."""
    if torch._C._autograd._profiler_enabled():
        return torch.profiler.record_function(name)
    return _NvtxRange(name) if torch.cuda.is_initialized() else _NO_RANGE


def layer_part(part: str) -> Callable[[_Method], _Method]:
    """Decorate a method of a module with a `layer` number: its calls are the range "layer <number>/<part>"."""

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            with profiler_range(f"layer {self.layer}/{part}"):
                return method(self, *arguments, **named)

        return cast(_Method, call)

    return decorate
