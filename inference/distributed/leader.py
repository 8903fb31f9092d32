"""Rank 0 of a job: its messages to the other ranks, and how they all end together."""

import atexit
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np

from ..text.errors import describe_error
from .channel import Channel, Message, MessageKind, pack
from .children import Children
from .job import GRACE_SECONDS, Member, Place
from .shutdown import END_SECONDS, exit_now, start_watchdog


class Leader(Member):
    """The job as rank 0 sees it."""

    def __init__(
        self,
        store: Any,
        place: Place,
        channels: Mapping[int, Channel],
        children: Children | None = None,
    ) -> None:
        """children: the other ranks, if this process has started them."""
        super().__init__(store, place)
        self.has_model = False  # set by the first LLM; a second one is refused
        # Set if what rank 0 was to do has failed: the other ranks end with exit code 1, without a word.
        self.failed = False
        self._ending = False
        self._loading = False
        self.children = children
        self._process = os.getpid()
        self._channels = channels
        self._replies: dict[int, queue.SimpleQueue[Message]] = {rank: queue.SimpleQueue() for rank in channels}
        for rank, channel in channels.items():
            threading.Thread(target=self._listen, args=(rank, channel), daemon=True).start()
        atexit.register(self.end)
        if children is None and threading.current_thread() is threading.main_thread():
            # Exit in order, so that the other ranks learn of it.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def broadcast(
        self, kind: MessageKind, values: dict[str, Any] | None = None, arrays: Sequence[np.ndarray] = ()
    ) -> None:
        """Send a message to every other rank."""
        data = pack(kind, values, arrays)
        for rank, channel in self._channels.items():
            try:
                channel.send_packed(data)
            except OSError:
                self._on_lost_rank(rank)

    def gather_replies(self) -> list[dict[str, Any]]:
        """Wait for every other rank's reply to the latest message."""
        return [replies.get().values for replies in self._replies.values()]

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around what makes the LLM: unless it succeeds, the job has failed. ValueError for a second LLM.

        Children end at once. Under torchrun the other ranks end when this process exits: if they ended now, torchrun would end
        this process, too, before its user has read why.
        """
        if self.has_model:
            raise ValueError("this is the program's second LLM; expected one: several ranks run one model")
        self.failed = self._loading = True
        try:
            yield
            self.failed = False
        finally:
            self._loading = False
            if self.failed and self.children is not None:
                self.end()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around work that all ranks do at the same time.

        A rank that fails there leaves the others waiting in a collective, so any exception ends the whole job.
        """
        try:
            yield
        except BaseException as error:
            if self._loading and self.children is not None:
                raise  # `loading` ends them
            time.sleep(2 * GRACE_SECONDS)  # if another rank failed first, its message is the better one
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
            self.abort("interrupted" if interrupted else f"rank 0: {describe_error(error)}")

    def abort(self, text: str) -> NoReturn:
        """End all ranks at once, with one line on standard error."""
        self._ending = True
        for channel in self._channels.values():
            with suppress(OSError):
                channel.send(MessageKind.ABORT)
        if self.children is not None:
            self.children.kill()
        exit_now(1, text)

    def end(self) -> None:
        """End the other ranks and leave the group, in order unless the job has failed. Called when this process exits.

        With children, this process may go on afterwards.
        """
        if self._ending or os.getpid() != self._process:  # a copy that the user's program has forked
            return
        self._ending = True
        atexit.unregister(self.end)
        earlier = start_watchdog()
        try:
            for channel in self._channels.values():
                with suppress(OSError):
                    channel.send(MessageKind.ABORT if self.failed else MessageKind.END)
            self._leave(self.failed)
        finally:
            if self.children is not None:
                self.children.wait(0 if self.failed else END_SECONDS / 2)
                signal.alarm(earlier)

    def _listen(self, rank: int, channel: Channel) -> None:
        try:
            while True:
                message = channel.receive()
                if message.kind == MessageKind.FAILED:
                    self._on_lost_rank(rank, message.values["text"])
                    return
                self._replies[rank].put(message)
        except EOFError:
            self._on_lost_rank(rank)
        finally:
            channel.close()

    def _on_lost_rank(self, rank: int, text: str | None = None) -> None:
        """Abort the job, unless it is ending already. text: the rank's error; without one it ended without a word."""
        time.sleep(GRACE_SECONDS)  # this process may be ending for the same reason
        if not self._ending:
            self.abort(f"rank {rank}: {text}" if text else f"rank {rank} of {self.size} has died, and the job with it")
        if threading.current_thread() is threading.main_thread():
            time.sleep(END_SECONDS)  # another thread ends this process
