"""When a step is captured: not before it has run as it is, and once."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from deepseek_v32.inference.engine import captured_step
from deepseek_v32.inference.engine.captured_step import CapturedStep, GraphMemory


class Device:
    """Writes down what a step does; its captures can be made to fail."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fault: str | None = None

    def run(self) -> str:
        if self.fault == "run":
            raise RuntimeError("out of memory")
        self.log.append("run")
        return "outputs"

    def capture(self, step: Callable[[], str]) -> Callable[[], str]:
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


@pytest.mark.parametrize(
    ("fault", "after"), [("run", ["run", "capture", "replay"]), ("capture", ["capture", "replay"])]
)
def test_what_has_failed_is_done_again(device: Device, fault: str, after: list[str]) -> None:
    """A run that fails may not have compiled all kernels, which a capture does not allow."""
    step = CapturedStep(device.run, device.capture)
    if fault == "capture":
        step.run()
    device.log.clear()
    device.fault = fault
    with pytest.raises(RuntimeError):
        step.run()
    assert not step.is_captured
    device.fault = None
    for _ in range(len(after) - 1):
        step.run()
    assert device.log == after


def test_a_capture_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the end of a capture that an error has cut short is an error, too."""
    ended = []

    def end() -> None:
        ended.append(True)
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    graph = SimpleNamespace(capture_begin=lambda *_, **__: None, capture_end=end)
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

    def step() -> None:
        raise ValueError("rows is 3; expected 4")

    with pytest.raises(ValueError, match="rows is 3"):
        GraphMemory(torch.device("cuda")).capture(step)
    assert ended
