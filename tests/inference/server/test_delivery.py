"""When deltas leave the engine's thread: by a clock that the test sets."""

import pytest

from deepseek_v32.inference.completion import Delta
from deepseek_v32.inference.server.service.engine_thread import LONGEST_PAUSE, Delivery
from deepseek_v32.inference.server.service.streams import SyncInbox

PAUSE = 0.001  # per open request


def run(steps: list[float], open_requests: int, arrivals: tuple[int, ...] = ()) -> list[float]:
    """Return the times at which deltas leave; each step adds one. arrivals: steps that begin with new requests."""
    delivery, inbox, now = Delivery(PAUSE), SyncInbox(), 100.0
    delivery.flush((), now, open_requests)  # the step before
    left: list[float] = []

    def look() -> None:
        if not inbox.empty():
            left.append(round(now - 100, 6))
        while not inbox.empty():
            inbox.get()

    for number, seconds in enumerate(steps):
        if number in arrivals:
            delivery.flush_all(now)
            look()
        now += seconds
        delivery.waiting.append((inbox, Delta(0, "", ())))
        delivery.flush((), now, open_requests)
        look()
    return left


def test_short_steps_leave_together() -> None:
    """The pause of 32 requests is 32 ms, in which 3 steps of 10 ms end; of one request it is shorter than a step."""
    assert run([0.01] * 9, 32) == [0.03, 0.06, 0.09]
    assert run([0.01] * 3, 1) == [0.01, 0.02, 0.03]


def test_nothing_waits_for_a_long_step_to_end() -> None:
    """Another step of 20 ms would exceed the pause of 32 ms."""
    assert run([0.02] * 3, 32) == [0.02, 0.04, 0.06]


def test_new_requests_let_all_leave_before_their_step() -> None:
    assert run([0.01, 0.01, 0.2, 0.01], 32, arrivals=(2,)) == [0.02, 0.22]
    assert run([0.01, 0.01, 0.2], 32, arrivals=(0,)) == [0.22]  # nothing waits then


@pytest.mark.parametrize("requests", [1000, 100_000])
def test_the_pause_is_bounded(requests: int) -> None:
    assert run([0.01] * 40, requests)[0] <= LONGEST_PAUSE
