"""Named stages of a forward pass: the model hands each intermediate result to an observer, if there is one.

Nothing is copied or computed unless a sink is installed around the call. inference/trace.py lists the
names, shapes and formulas.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from ..kernels.types import Quantized

Rows = slice | torch.Tensor  # some of a step's T rows
# Values that a fused kernel never materialises are passed as callables, which a sink calls: the plain formula.
Values = torch.Tensor | Quantized | Callable[[], torch.Tensor] | None
# Takes the stages of a forward pass, in the order in which they are computed: name, layer, rows and values.
StageSink = Callable[[str, int | None, Rows | None, Values], None]

_SINK: ContextVar[StageSink | None] = ContextVar("stages", default=None)  # of this thread


def is_traced() -> bool:
    """Return whether a forward pass that begins now is observed. It then runs without a CUDA graph."""
    return _SINK.get() is not None


def stages(layer: int | None = None, rows: Rows | None = None, **values: Values) -> None:
    """Hand out results by name, with a first axis of the step's T rows, or of `rows` of them. None: the stage is not computed."""
    sink = _SINK.get()
    if sink is None:
        return
    for name, value in values.items():
        sink(name, layer, rows, value)


@contextmanager
def traced(sink: StageSink) -> Iterator[None]:
    """Install `sink` for the forward passes of this thread."""
    token = _SINK.set(sink)
    try:
        yield
    finally:
        _SINK.reset(token)
