"""Requests in, answers out: the engine steps when a caller takes from a stream, for all the streams that are open."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..kernels.errors import check_flags
from .completion import Completion, Delta
from .engine.engine import Engine
from .engine.fault import check_process
from .engine.request import Request
from .inspection import Recorder


class Driver:
    """Lets callers drive the engine, one thread at a time.

    The streams of a thread may be interleaved. Each step advances all of them; deltas wait in an inbox until their stream asks
    for them. Another thread may take over between two calls, but two threads inside at the same moment are an error.
    """

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._engine: Engine | None = engine  # None once it is closed
        self._recorder = recorder
        self._in_use = threading.Lock()
        self._user = ""  # while it is in use
        self._process = os.getpid()
        self._inbox: dict[int, list[Delta]] = {}  # by request id, while its stream is open

    @property
    def closed(self) -> bool:
        return self._engine is None

    def check_open(self) -> Engine:
        """The engine. ValueError if it is closed, RuntimeError in a forked child."""
        check_process(self._process)
        if self._engine is None:
            raise ValueError("LLM is closed; expected an open one")
        return self._engine

    def close(self) -> bool:
        """Cancel what is open, and let the engine go. False if that has been done before, or must be done by another process."""
        if self.closed or os.getpid() != self._process:
            return False
        with self.engine() as engine:
            for id in self._inbox:
                engine.abort(id)
            engine.apply_aborts()
            self._inbox.clear()
            self._engine = None
        return True

    @contextmanager
    def engine(self, user: str | None = None) -> Iterator[Engine]:
        """The engine, for only this caller, or RuntimeError. user: what others are told; by default the thread's name."""
        check_process(self._process)
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError(
                f"LLM is used by {self._user}; expected one user at a time: many threads share a "
                "deepseek_v32.inference.server.service.service.Service, coroutines an AsyncLLM"
            )
        self._user = user or f"thread {threading.current_thread().name!r}"
        try:
            engine = self.check_open()
            self._deliver(engine.apply_aborts())
            yield engine
        finally:
            self._in_use.release()

    def deltas(self, requests: list[Request]) -> Iterator[Delta]:
        """Queue the requests and step until all of them have finished. Closing the iterator cancels the rest."""
        by_id = {request.id: request for request in requests}
        open_ids = set(by_id)
        try:
            self.queue(requests)
            while open_ids:
                for delta in self.advance(open_ids):
                    if delta.finish_reason is not None:
                        open_ids.discard(delta.request_id)
                        delta = self._recorder.recorded(by_id[delta.request_id], delta)
                    yield delta
        finally:
            self.cancel(open_ids)

    def completions(self, requests: list[Request]) -> Iterator[tuple[int, Completion]]:
        """(index of the request, completion) as each finishes."""
        index = {request.id: i for i, request in enumerate(requests)}
        for delta in self.deltas(requests):
            if delta.completion is not None:
                yield index[delta.request_id], delta.completion

    def all(self, requests: list[Request], use_tqdm: bool) -> list[Completion]:
        check_flags(use_tqdm=use_tqdm)
        completions = self.completions(requests)
        found = dict(_with_bar(completions, len(requests)) if use_tqdm else completions)
        return [found[i] for i in range(len(requests))]

    def queue(self, requests: list[Request]) -> None:
        """Queue requests. The caller then calls `advance` until each has finished, or `cancel`."""
        with self.engine() as engine:
            for request in requests:
                self._inbox[request.id] = []
                engine.queue(request)

    def advance(self, open_ids: set[int]) -> list[Delta]:
        """The deltas of these requests that no stream has taken yet, after a step if there are none."""
        with self.engine() as engine:
            inbox = self._inbox
            if not any([inbox[id] for id in open_ids]):
                self._deliver(engine.step())
            deltas: list[Delta] = []
            for id in sorted(open_ids):
                deltas += inbox.pop(id)
                if not deltas or deltas[-1].request_id != id or deltas[-1].finish_reason is None:
                    inbox[id] = []
            return deltas

    def _deliver(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            inbox = self._inbox.get(delta.request_id)
            if inbox is not None:  # its stream is still open
                inbox.append(delta)

    def cancel(self, request_ids: set[int]) -> None:
        engine = self._engine
        if engine is None or os.getpid() != self._process:
            return
        for id in request_ids:
            self._inbox.pop(id, None)
            engine.abort(id)
        # Never wait here: Python closes a forgotten iterator when it collects garbage, which may be in the middle of a step of
        # this very thread. Then the next use of the engine carries out the cancellation.
        if request_ids and self._in_use.acquire(blocking=False):
            try:
                self._deliver(engine.apply_aborts())
            finally:
                self._in_use.release()


def _with_bar(completions: Iterator[tuple[int, Completion]], total: int) -> Iterator[tuple[int, Completion]]:
    """The completions, with a bar on standard error, or in the notebook, that counts them and their tokens."""
    from tqdm.auto import tqdm  # it takes a while to import, and few ask for it

    tokens = 0
    with tqdm(total=total, desc="Answers", unit=" answers", dynamic_ncols=True) as bar:
        for index, completion in completions:
            tokens += completion.usage.completion_tokens
            bar.set_postfix_str(f"{tokens / max(bar.format_dict['elapsed'], 1e-3):.1f} tokens/s", refresh=False)
            bar.update()
            yield index, completion
