"""A step is captured once, after it has run without a graph."""

import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from deepseek_v32.inference.engine.running import captured_step
from deepseek_v32.inference.engine.running.captured_step import CapturedStep, GraphMemory


class Device:
    """Writes down what a step does; its captures can be made to fail."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fault: str | None = None
        self.attempts = 0  # to capture

    def run(self) -> str:
        if self.fault == "run":
            raise RuntimeError("out of memory")
        self.log.append("run")
        return "outputs"

    def capture(self, step: Callable[[], str]) -> Callable[[], str]:
        self.attempts += 1
        if self.fault == "capture":
            raise RuntimeError("out of memory")
        outputs = step()
        self.log[-1] = "capture"

        def replay() -> str:
            self.log.append("replay")
            return outputs

        return replay


@pytest.fixture
def device() -> Device:
    return Device()


def test_a_step_is_captured_when_it_comes_again(device: Device) -> None:
    step = CapturedStep(device.run, device.capture)
    assert [step.run() for _ in range(4)] == ["outputs"] * 4 and step.is_captured
    assert device.log == ["run", "capture", "replay", "replay", "replay"]


def test_a_capture_is_put_off(device: Device) -> None:
    step = CapturedStep(device.run, device.capture)
    for may_capture in (False, False, True, False):
        step.run(may_capture)
    assert device.log == ["run", "run", "capture", "replay", "replay"]


def test_a_run_that_has_failed_comes_before_a_capture(device: Device) -> None:
    """It may not have compiled all kernels, which a capture does not allow."""
    step = CapturedStep(device.run, device.capture)
    device.fault = "run"
    with pytest.raises(RuntimeError):
        step.run()
    device.fault = None
    for _ in range(2):
        step.run()
    assert device.log == ["run", "capture", "replay"]


def test_a_capture_that_fails_once_is_made_later(device: Device) -> None:
    step = CapturedStep(device.run, device.capture)
    step.run()
    device.fault = "capture"
    assert step.run() == "outputs" and not step.is_captured
    device.fault = None
    for _ in range(3):
        assert step.run() == "outputs"
    assert step.is_captured and device.log == ["run", "run", "capture", "replay", "replay", "replay"]


def test_a_capture_that_always_fails_is_given_up(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    step = CapturedStep(device.run, device.capture)
    step.run()
    device.fault = "capture"
    for _ in range(5):
        assert step.run() == "outputs"
    assert device.log == ["run"] * 6 and device.attempts == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"a step could not be captured ({i} of 2 times)" for i in (1, 2)
    ]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for CUDA's graphs."""
    graph = SimpleNamespace(capture_begin=lambda *_, **__: None, capture_end=lambda: None, replay=lambda: None)
    for name, stand_in in {
        "CUDAGraph": lambda: graph,
        "device": nullcontext,
        "graph_pool_handle": lambda: (0, 1),
        "mem_get_info": lambda: (80 << 30, 80 << 30),
        "stream": nullcontext,
        "synchronize": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(captured_step, "_capture_stream", lambda device: None)
    return graph


def test_a_capture_that_fails_says_why(graph: SimpleNamespace) -> None:
    """The error is the step's own. On a GPU, the end of a failed capture is a further error."""
    ended = []

    def end() -> None:
        ended.append(True)
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def step() -> None:
        raise ValueError("rows is 3; expected 4")

    graph.capture_end = end
    with pytest.raises(ValueError, match="rows is 3"):
        GraphMemory(torch.device("cuda")).capture(step)
    assert ended and gc.isenabled()


@pytest.mark.parametrize("fault", ["capture_begin", "step", "capture_end"])
def test_a_capture_behind_one_that_failed_has_another_pool(
    graph: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The allocator may still be recording to that pool, or the pool may have died with its only graph."""
    pools: list[int] = []
    numbers = count()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(numbers))
    memory = GraphMemory(torch.device("cuda"))

    def at(place: str) -> None:
        if place == fault and len(pools) == 1:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def begin(pool: int, **_: object) -> None:
        pools.append(pool)
        at("capture_begin")

    graph.capture_begin, graph.capture_end = begin, lambda: at("capture_end")
    with pytest.raises(RuntimeError):
        memory.capture(lambda: at("step"))
    for _ in range(2):
        memory.capture(lambda: at("step"))
    assert pools == [0, 1, 1]


class Engine:
    """One that only the garbage collector frees, as a real one, and that says so."""

    def __init__(self, freed: list[bool]) -> None:
        self.itself = self
        weakref.finalize(self, freed.append, True)


@pytest.mark.usefixtures("graph")
def test_no_engine_is_freed_during_a_capture() -> None:
    """CUDA refuses to free graphs during a capture, and the capture fails."""
    freed: list[bool] = []

    def step() -> bool:
        Engine(freed)
        pieces = [[i] for i in range(10 * gc.get_threshold()[0])]  # enough objects for a collection
        return len(pieces) > 0 and bool(freed)

    assert step(), "the collector frees it in the meantime"
    freed.clear()
    assert GraphMemory(torch.device("cuda")).capture(step)() is False
    assert gc.isenabled()
    gc.collect()
    assert freed
