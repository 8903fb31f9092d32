"""Work of the host in the middle of a forward pass, which a CUDA graph cannot hold: the graph is divided there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

_DIVIDE: ContextVar[Callable[..., None] | None] = ContextVar("divide", default=None)  # of this thread


def on_host(
    work: Callable[..., torch.Tensor], place: Callable[[], torch.Tensor], *tensors: torch.Tensor
) -> torch.Tensor:
    """Return `work(None, *tensors)`.

    While a graph is captured nothing is computed: `place()` makes the result's memory, and each replay calls
    `work(place, *tensors)` between two graphs, which leaves the result there. All tensors keep their memory until then.
    """
    divide = _DIVIDE.get()
    if divide is None:
        return work(None, *tensors)
    result = place()
    divide(work, result, *tensors)
    return result


@contextmanager
def divided_by(divide: Callable[..., Any]) -> Iterator[None]:
    """In the block, of a capture, `divide(work, *tensors)` is called for each work of the host."""
    token = _DIVIDE.set(divide)
    try:
        yield
    finally:
        _DIVIDE.reset(token)
