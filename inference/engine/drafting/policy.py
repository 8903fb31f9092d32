"""How many drafts a step makes: a fixed number, or as many as pay by what has been measured."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..limits import AUTO
from ..scheduling.batch import Batch
from .measured_drafts import GPU_PROMPT, MeasuredDrafts

_CPU_PROMPT = 16  # prompt tokens in the time of a decode step, about: 3 ms beside 50 ms for the demo on two cores


class DraftPolicy(Protocol):
    def choose(self, sequences: int, ready: int) -> int | None:
        """How many drafts a step of so many requests makes for each; None leaves the draft layer alone, also in later steps.

        ready: how many of the requests can have drafts. 0: the draft layer's entries are written for later drafts.
        """

    def pays(self, prompt: int, answer: int) -> bool:
        """Whether drafts of an answer of at most so many tokens may be worth passing so many of its prompt's through the draft
        layer first."""

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """A step's tokens have arrived: for each request that it sampled for, how many drafts it had, and how many were right.

        Both are empty for a step without drafts.
        """


def make_policy(
    count: int, layers: int, on_cpu: bool, ahead: bool, must_capture: Callable[[int, int], bool]
) -> DraftPolicy | None:
    """For Limits.speculative_tokens, with a model of so many layers. None: no drafts.

    on_cpu: the thread that takes steps also computes them, so its own time is their cost, whatever else keeps the machine busy.
    ahead: steps without the draft layer are started before the tokens of others have been read. must_capture: as in ModelRunner.
    """
    if count == AUTO:
        clock, parallel = (time.thread_time, _CPU_PROMPT) if on_cpu else (time.perf_counter, GPU_PROMPT)
        return MeasuredDrafts(layers, clock, parallel, ahead, must_capture)
    return FixedDrafts(count) if count else None


class FixedDrafts:
    """A DraftPolicy that is told how many."""

    def __init__(self, count: int) -> None:
        self._count = count

    def choose(self, sequences: int, ready: int) -> int | None:
        return self._count

    def pays(self, prompt: int, answer: int) -> bool:
        return True

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        pass
