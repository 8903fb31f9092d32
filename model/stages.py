"""Named stages of a forward pass, for traces: the model hands each intermediate result to whoever records it.

Nothing is recorded, copied or computed unless a sink is installed around the call. inference/trace.py lists the
names, shapes and formulas.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch

from ..kernels.quantize import Quantized

Rows = slice | torch.Tensor  # some of a step's T rows
# What a fused kernel does not hand out is given as a function, which a sink calls: the plain formula of the kernel's inputs.
Values = torch.Tensor | Quantized | Callable[[], torch.Tensor] | None


class StageSink(Protocol):
    """Takes the stages of a forward pass, in the order in which they are computed."""

    def __call__(self, name: str, layer: int | None, rows: Rows | None, values: Values) -> None: ...


_SINK: ContextVar[StageSink | None] = ContextVar("stages", default=None)  # of this thread


def is_traced() -> bool:
    """Whether a forward pass that begins now is recorded. It then runs without a CUDA graph."""
    return _SINK.get() is not None


def stages(layer: int | None = None, rows: Rows | None = None, **values: Values) -> None:
    """Record results by name, with a first axis of the step's T rows, or of `rows` of them. None: the stage is not computed."""
    sink = _SINK.get()
    if sink is None:
        return
    for name, value in values.items():
        sink(name, layer, rows, value)


@contextmanager
def traced(sink: StageSink) -> Iterator[None]:
    """Forward passes of this thread hand their stages to `sink`."""
    token = _SINK.set(sink)
    try:
        yield
    finally:
        _SINK.reset(token)
