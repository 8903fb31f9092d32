"""Several implementations of one operation, timed in turns on one card, and their results compared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

FLUSHED_BYTES = 256 << 20  # more than any L2 cache holds


@dataclass(frozen=True)
class Case:
    """One problem. Both calls return the same tensors, which are compared."""

    name: str
    ours: Callable[[], Sequence[torch.Tensor]]
    theirs: Callable[[], Sequence[torch.Tensor]]
    tolerance: float  # of |ours - theirs| / |theirs|, in Frobenius norms, for each pair of tensors
    rows: torch.Tensor | None = None  # where theirs has padding: its rows (all axes but the last as one) that are ours
    compared: Callable[[torch.Tensor], torch.Tensor] | None = None  # what is compared of each tensor; None: all of it


@dataclass(frozen=True)
class Result:
    name: str
    microseconds: dict[str, float]  # medians
    difference: float  # the largest, as in Case.tolerance

    @property
    def ratio(self) -> float:
        return self.microseconds["ours"] / self.microseconds["theirs"]


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """|ours - theirs| / |theirs|; infinite where one is finite and the other is not."""
    a, b = ours.double().flatten(), theirs.double().flatten()
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    a, b = a[a.isfinite()], b[b.isfinite()]
    scale = b.norm().item()
    return (a - b).norm().item() / scale if scale > 0 else (a - b).norm().item()


def captured(call: Callable[[], Sequence[torch.Tensor]]) -> tuple[torch.cuda.CUDAGraph, Sequence[torch.Tensor]]:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensors = call()
    return graph, tensors


def compare(case: Case, rounds: int) -> Result:
    """Medians of `rounds` samples each, A B A B; the L2 cache is overwritten before each sample.

    ValueError if results differ by more than the case tolerates.
    """
    calls = {"ours": case.ours, "theirs": case.theirs}
    graphs = {name: captured(call) for name, call in calls.items()}
    for graph, tensors in graphs.values():
        for tensor in tensors:
            tensor.fill_(float("nan") if tensor.is_floating_point() else -1)  # what a call leaves unwritten shows
        graph.replay()
    torch.cuda.synchronize()
    theirs = graphs["theirs"][1]
    if case.rows is not None:
        theirs = [tensor.flatten(0, -2)[case.rows] for tensor in theirs]
    compared = case.compared or (lambda tensor: tensor)
    pairs = zip(graphs["ours"][1], theirs, strict=True)
    difference = max(relative_difference(compared(a), compared(b)) for a, b in pairs)
    if difference > case.tolerance:
        raise ValueError(f"{case.name}: difference is {difference:.2e}; expected at most {case.tolerance:.0e}")
    flush = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    samples: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, (graph, _) in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            graph.replay()
            end.record()
            samples[name].append((start, end))
    torch.cuda.synchronize()
    medians = {
        name: sorted(start.elapsed_time(end) for start, end in events)[rounds // 2] * 1e3
        for name, events in samples.items()
    }
    return Result(case.name, medians, difference)


def compare_all(cases: Iterator[Case], rounds: int) -> Iterator[Result]:
    for case in cases:
        yield compare(case, rounds)
        del case
        torch.cuda.empty_cache()
