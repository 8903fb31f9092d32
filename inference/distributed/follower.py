"""The other ranks of a job: they carry out rank 0's messages until it ends the job."""

import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from ..text.errors import describe_error
from .channel import Channel, Message, MessageKind
from .job import GRACE_SECONDS, Member, Place
from .shutdown import END_SECONDS, exit_now, start_watchdog


class Follower(Member):
    """The job as any other rank sees it."""

    def __init__(self, store: Any, place: Place, channel: Channel, is_child: bool = False) -> None:
        """is_child: of rank 0, whose end needs no line of its own."""
        super().__init__(store, place)
        self._is_child = is_child
        self._channel = channel
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        if threading.current_thread() is threading.main_thread():
            # torchrun sends these signals to all ranks; rank 0 decides when the job ends and which requests it still finishes.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=self._listen, daemon=True).start()

    def reply(self, values: dict[str, Any]) -> None:
        """Answer rank 0."""
        with suppress(OSError):  # rank 0 has ended, and the listening thread handles that
            self._channel.send(MessageKind.REPLY, values)

    def follow(self, handle: Callable[[Message], None]) -> NoReturn:
        """Call `handle` with each of rank 0's messages until rank 0 ends the job; then exit this process.

        An exception of `handle` is reported to rank 0, which ends the job.
        """
        try:
            while (message := self._messages.get()).kind != MessageKind.END:
                handle(message)
        except BaseException as error:
            self._fail(error)
        start_watchdog()
        self._leave()
        sys.exit(0)

    def _fail(self, error: BaseException) -> NoReturn:
        time.sleep(GRACE_SECONDS)  # if another rank failed first, rank 0 ends the job now
        with suppress(OSError):
            self._channel.send(MessageKind.FAILED, {"text": describe_error(error)})
        with suppress(queue.Empty):  # as a rule rank 0 prints the line and ends the job, or has ended already
            while self._messages.get(timeout=END_SECONDS).kind != MessageKind.END:
                pass
            exit_now(1)
        exit_now(1, f"rank {self.rank}: {describe_error(error)}")

    def _listen(self) -> None:
        try:
            while True:
                message = self._channel.receive()
                if message.kind == MessageKind.ABORT:
                    exit_now(1)
                if message.kind == MessageKind.END:
                    start_watchdog()  # the main thread may be in a step that rank 0 has left
                self._messages.put(message)  # from here on it belongs to the main thread
                if message.kind == MessageKind.END:
                    return
        except EOFError:
            exit_now(1, None if self._is_child else f"rank 0 of {self.size} has died, and rank {self.rank} with it")
