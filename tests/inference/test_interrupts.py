"""Ctrl-C around the steps of several ranks."""

import signal
import threading

import pytest

from deepseek_v32.inference.distributed import job
from deepseek_v32.inference.distributed.job import interrupts_deferred


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    handler = signal.getsignal(signal.SIGINT)
    done = False
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # a nervous second one
        done = True
    assert done and signal.getsignal(signal.SIGINT) is handler


def test_who_insists_interrupts_a_block_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "INSIST_SECONDS", -1)
    done = False
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done = True
    assert not done


def test_other_handlers_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
            assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, previous)


def test_threads_that_get_no_signals_are_left_alone() -> None:
    handlers: list[object] = []

    def work() -> None:
        with interrupts_deferred():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
