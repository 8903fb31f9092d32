"""Repeated work: it runs without a graph at first, is captured as a CUDA graph the second time, and is replayed from then on."""

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, Generic, TypeVar

import torch

from ....model.host_step import divided_by
from ..fault import log_fault
from .inputs import same_memory

T = TypeVar("T")

log = logging.getLogger(__name__)

_MOST_FAILURES = 2  # of the captures of a step

# A capture first empties the allocator's cache if the GPU has less free memory than this, because the allocator cannot do so
# during a capture.
_ROOM = 2 << 30


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures on a device: cuBLAS keeps memory for each stream that it has seen."""
    return torch.cuda.Stream(device)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turn the garbage collector off: if it freed the graphs of an engine that is gone, it would end a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class GraphMemory:
    """Memory shared by a runner's graphs, of which only one runs at a time. On a CPU there are no graphs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def capture(self, step: Callable[[], T]) -> Callable[[], T]:
        """A function that replays the step as a CUDA graph and returns what it has returned; on a CPU, the step itself.

        The step must have run before: that compiles kernels and sets up libraries, which a capture does not allow. torch.cuda.graph
        would give all cached memory back, which the next prompt would have to allocate again.
        """
        if self._pool is None:
            return step
        parts: list[Callable[[], object]] = []  # graphs, and the host's work between them
        with torch.cuda.device(self._device), torch.cuda.stream(_capture_stream(self._device)), _no_collection():
            torch.cuda.synchronize()
            if torch.cuda.mem_get_info()[0] < _ROOM:
                torch.cuda.empty_cache()
            try:
                outputs = _record(parts, self._pool, step)
            except BaseException:
                # The allocator refuses all later captures into a pool to which it is still recording, or whose graphs are all gone.
                self._pool = torch.cuda.graph_pool_handle()
                raise

        def replay() -> T:
            for part in parts:
                part()
            return outputs

        return replay


def _record(parts: list[Callable[[], object]], pool: Any, step: Callable[[], T]) -> T:
    """Capture the step: append what replays it, graphs and the host's work between them, to `parts`."""
    graph: torch.cuda.CUDAGraph

    def begin() -> None:
        nonlocal graph
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may call CUDA during the capture, as NCCL's watchdog thread does.
        graph.capture_begin(pool, capture_error_mode="thread_local")

    def end() -> None:
        graph.capture_end()
        parts.append(graph.replay)

    def divide(work: Callable[..., object], *tensors: torch.Tensor) -> None:
        end()
        # The work does not own the tensors: a later part of the graph may have their memory, as within one graph.
        parts.append(partial(work, *[same_memory(each, each.device) for each in tensors]))
        begin()

    begin()
    try:
        with divided_by(divide):
            outputs = step()
    except BaseException:
        with suppress(RuntimeError):  # which says that the capture has failed; the step's own error says why
            graph.capture_end()
        raise
    end()
    return outputs


class CapturedStep(Generic[T]):
    """A step that reads and writes tensors that stay in place.

    It is captured when it runs a second time: capturing takes several times as long as running, other answers wait for both,
    and many steps never come again. If a capture fails, for lack of memory for example, the step runs as it is, and is captured
    later; after a second failure it is left without a graph.
    """

    def __init__(self, step: Callable[[], T], capture: Callable[[Callable[[], T]], Callable[[], T]]) -> None:
        self._step, self._capture = step, capture
        self._replay: Callable[[], T] | None = None
        self._has_run = False
        self._failures = 0

    @property
    def is_captured(self) -> bool:
        return self._replay is not None

    @property
    def is_given_up(self) -> bool:
        """Tell whether the step stays without a graph."""
        return self._failures >= _MOST_FAILURES

    def run(self, may_capture: bool = True) -> T:
        """may_capture: whether this run may take the time of a capture."""
        if self._replay is None and self._has_run and may_capture and not self.is_given_up:
            self._try_capture()
        if self._replay is not None:
            return self._replay()
        outputs = self._step()
        self._has_run = True
        return outputs

    def free(self) -> None:
        """Free the graph, even while others hold this step."""
        self._replay = None

    def _try_capture(self) -> None:
        try:
            self._replay = self._capture(self._step)
        except Exception:  # of any type: CUDA, libraries and compilers of kernels have their own
            self._failures += 1
            log_fault(log, "a step could not be captured (%d of %d times)", self._failures, _MOST_FAILURES)
