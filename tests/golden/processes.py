"""Calls of a function by several processes that do not grow, with a line for each call that is done."""

import multiprocessing
import os
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import torch

CALLS = 6  # after which a process ends: the memory that engines do not give back adds up


class Processes:
    """`count` processes at a time, which share the cores. Each begins anew: threads of torch do not survive a fork."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.peak = 0  # bytes that the largest process has taken so far
        self._lock = threading.Lock()

    def ask(self, title: str, function: Callable[[Any], Any], asked: Sequence[Any]) -> dict[Any, Any]:
        """{each: function(each)} for what is asked, first come, first served. BrokenProcessPool if a process is killed."""
        waiting, began = deque(asked), time.monotonic()
        said: dict[Any, Any] = {}

        def note(each: Any, answer: Any, seconds: float, peak: int) -> None:
            with self._lock:
                said[each] = answer
                self.peak = max(self.peak, peak)
                so_far = time.monotonic() - began
                left = so_far / len(said) * (len(asked) - len(said))
                done = f"{title}: {len(said)} of {len(asked)} done in {so_far:.0f} s, about {left:.0f} s left"
                print(f"{done}; {each}: {seconds:.0f} s, {peak / 1e9:.1f} GB", flush=True)

        def work() -> None:
            context, threads = multiprocessing.get_context("spawn"), max((os.cpu_count() or 1) // self.count, 1)
            while waiting:
                with ProcessPoolExecutor(1, context, torch.set_num_threads, (threads,)) as process:
                    for _ in range(CALLS):
                        try:
                            each = waiting.popleft()
                        except IndexError:
                            return
                        note(each, *process.submit(measured, function, each).result())

        with ThreadPoolExecutor(self.count) as pool:
            for working in [pool.submit(work) for _ in range(self.count)]:
                try:
                    working.result()
                except BaseException:
                    waiting.clear()  # the others end after their call
                    raise
        return {each: said[each] for each in asked}


def measured(function: Callable[[Any], Any], argument: Any) -> tuple[Any, float, int]:
    """The function's result, its seconds, and the most bytes that this process has taken so far."""
    began = time.monotonic()
    result = function(argument)
    return result, time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
