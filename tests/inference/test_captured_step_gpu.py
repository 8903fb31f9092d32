"""A failed capture on a GPU harms neither earlier graphs nor later ones."""

import gc
from collections.abc import Callable

import pytest
import torch

from deepseek_v32.inference.engine.running.captured_step import CapturedStep, GraphMemory
from deepseek_v32.model.host_step import on_host

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


class Doubler:
    """A step that doubles its input in place of its own, and can be made to fail in the middle."""

    def __init__(self, memory: GraphMemory, size: int) -> None:
        self.input, self.output = torch.ones(size, device="cuda"), torch.zeros(size, device="cuda")
        self.fault: Callable[[], object] | None = None
        self.step = CapturedStep(self._run, memory.capture)

    def _run(self) -> None:
        doubled = self.input * 2
        if self.fault is not None:
            self.fault()
        self.output.copy_(doubled)

    def check(self, captured: bool) -> None:
        """A run gives the right output, and has a graph or none."""
        self.input += 1
        self.output.zero_()
        self.step.run()
        assert torch.equal(self.output, 2 * self.input) and self.step.is_captured == captured


def raise_own() -> None:
    raise ValueError("rows is 3; expected 4")


FAULTS = {"an error of the step": raise_own, "what CUDA does not allow": torch.cuda.synchronize}


@pytest.mark.parametrize("others", [0, 1], ids=["first", "after another"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_capture_that_fails_spoils_no_other(fault: Callable[[], object], others: int) -> None:
    memory = GraphMemory(torch.device("cuda"))
    steps = [Doubler(memory, 1000 + number) for number in range(others + 2)]
    for each in steps[:others]:
        each.check(captured=False)
        each.check(captured=True)
    failing, later = steps[others:]
    failing.check(captured=False)
    failing.fault = lambda: fault() if torch.cuda.is_current_stream_capturing() else None
    failing.check(captured=False)
    failing.fault = None
    later.check(captured=False)
    for each in (later, failing, *steps):
        each.check(captured=True)


def test_captures_go_on_after_all_graphs_are_gone() -> None:
    """The allocator refuses a pool whose graphs have all been freed: one capture fails, the next has another pool."""
    memory = GraphMemory(torch.device("cuda"))
    first = Doubler(memory, 1000)
    first.check(captured=False)
    first.check(captured=True)
    del first
    gc.collect()
    later = Doubler(memory, 1001)
    for _ in range(2):
        later.step.run()
    later.step.run()
    later.check(captured=True)


def test_an_engine_that_is_gone_does_not_cut_a_capture_short() -> None:
    """A dead engine's graphs wait for the garbage collector. If it ran during a capture, CUDA would refuse to free them."""
    gone = Doubler(GraphMemory(torch.device("cuda")), 1000)
    gone.check(captured=False)
    gone.check(captured=True)
    cycle = [gone]
    cycle.append(cycle)  # type: ignore[arg-type]
    step = Doubler(GraphMemory(torch.device("cuda")), 1001)
    step.check(captured=False)
    del gone, cycle
    step.fault = lambda: [[i] for i in range(10 * gc.get_threshold()[0])]  # enough objects for a collection
    step.check(captured=True)


def test_work_of_the_host_between_parts_of_a_graph() -> None:
    """Twice in a step, and with memory that a later part of the step uses for something else."""
    given, found = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    seen: list[float] = []

    def triple(out: torch.Tensor | None, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        seen.append(x[0].item())  # waits for the device, which a capture does not allow
        return torch.add(3 * x, shift[:, 1].float(), out=out)

    def run() -> None:
        x = given
        for _ in range(2):
            shift = torch.stack([(2 * x).bfloat16(), x.bfloat16()], 1)
            x = on_host(triple, lambda: torch.empty_like(given), x * 2, shift) + 1
        found.copy_(x)

    step = CapturedStep(run, GraphMemory(torch.device("cuda")).capture)
    for value in (1, 2, 3, 4):
        given.fill_(value)
        step.run()
        first = 7 * value + 1
        assert found.unique().tolist() == [7 * first + 1] and seen[-2:] == [2 * value, 2 * first]
    assert step.is_captured and len(seen) == 8
