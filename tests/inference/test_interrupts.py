"""Ctrl-C around the steps of several ranks, and while a token is added to an answer."""

import signal
import threading

import pytest

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.distributed import job
from deepseek_v32.inference.distributed.job import interrupts_deferred
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.request_state import RequestState
from deepseek_v32.inference.engine.sampling.sampler import Sample
from support.fake_model import ByteTokenizer


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


def test_a_token_cut_short_leaves_stop_strings_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """One among the first `min_tokens` tokens ends nothing, also when the answer so far is read again."""
    request = Request(0, (1,), SamplingParams(stop="b", min_tokens=3), max_tokens=9, seed=0)
    state, work = RequestState(request, ByteTokenizer(), set(), 16), RequestState._delta  # type: ignore[arg-type]
    for token in b"abc":
        state.push(Sample(token), None)
    monkeypatch.setattr(RequestState, "_delta", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        state.push(Sample(ord("d")), None)
    monkeypatch.setattr(RequestState, "_delta", work)
    assert [state.push(Sample(token), None).text for token in b"db"] == ["d", ""]
    assert state.completion().text == "abcd" and state.stop_reason == "b"
