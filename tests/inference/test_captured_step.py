"""When a step is captured: not before it has run as it is, and once."""

from collections.abc import Callable

import pytest

from deepseek_v32.inference.engine.captured_step import CapturedStep


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
