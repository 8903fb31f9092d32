"""Rank 0 (Leader) and the ranks that follow it (Follower): the messages between them, and how they all end together."""

import atexit
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from ...model.parallel.collectives import Ranks, shared_memory
from ..text.errors import describe_error
from .channel import Channel, Message, MessageKind, pack
from .shutdown import END_SECONDS, exit_now, leave_group, start_watchdog

START_SECONDS = 300.0  # ranks may start one after the other, from a slow disk
_ADDRESS = "deepseek-v32/rank-0"  # the store's key for the path of rank 0's socket
_GRACE_SECONDS = 0.5  # the time in which another process that is ending can report its own, better reason


class _Member:
    """The parts that all ranks have in common."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        # Called when the job ends in order, while the group of collectives still exists.
        self.before_end: list[Callable[[], None]] = []
        self._store = store  # referenced as long as the job runs: one process serves it to all the others
        self._ranks: Ranks | None = None

    def ranks(self, device: str) -> Ranks:
        """The group of collectives, made at the first call: NCCL on GPUs, gloo on CPUs."""
        if self._ranks is None:
            where = torch.device(device)
            on_gpu = where.type == "cuda"
            if on_gpu:
                torch.cuda.set_device(where)
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                store=PrefixStore("deepseek-v32/collectives", self._store),
                rank=self.rank,
                world_size=self.size,
                device_id=where if on_gpu else None,
            )
            self._ranks = Ranks(self.rank, self.size, shared_memory(where, self.size))
        return self._ranks

    def _leave(self, alone: bool = False) -> None:
        """Leave the group of collectives, with all ranks at the same time or alone."""
        for release in self.before_end:
            release()
        leave_group(alone)


class Leader(_Member):
    """The job as rank 0 sees it."""

    def __init__(self, store: Any, size: int) -> None:
        super().__init__(store, 0, size)
        self.has_model = False  # set by the first LLM; a second one is refused
        self.failed = (
            False  # set if what rank 0 was to do has failed: the other ranks end with exit code 1, without a word
        )
        self._ending = False
        self._channels: dict[int, Channel] = {}
        self._replies: dict[int, queue.SimpleQueue[Message]] = {}
        self._accept()
        for rank, channel in self._channels.items():
            self._replies[rank] = queue.SimpleQueue()
            threading.Thread(target=self._listen, args=(rank, channel), daemon=True).start()
        atexit.register(self.end)
        if threading.current_thread() is threading.main_thread():
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

        The other ranks end when this process exits. If they ended at once, torchrun would end this process, too, before its
        user has read why.
        """
        if self.has_model:
            raise ValueError("this is the program's second LLM; expected one: several ranks run one model")
        self.failed = True
        yield
        self.failed = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around work that all ranks do at the same time.

        A rank that fails there leaves the others waiting in a collective, so any exception ends the whole job.
        """
        try:
            yield
        except BaseException as error:
            time.sleep(2 * _GRACE_SECONDS)  # if another rank failed first, its message is the better one
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
            self.abort("interrupted" if interrupted else f"rank 0: {describe_error(error)}")

    def abort(self, text: str) -> NoReturn:
        """End all ranks at once, with one line on standard error."""
        self._ending = True
        for channel in self._channels.values():
            with suppress(OSError):
                channel.send(MessageKind.ABORT)
        exit_now(1, text)

    def end(self) -> None:
        """End the other ranks and leave the group, in order unless the job has failed. Called when this process exits."""
        if self._ending:
            return
        self._ending = True
        start_watchdog()
        for channel in self._channels.values():
            with suppress(OSError):
                channel.send(MessageKind.ABORT if self.failed else MessageKind.END)
        self._leave(self.failed)

    def _accept(self) -> None:
        """Let the other ranks connect, through a socket in a directory that only this user may enter."""
        # The address of such a socket has room for 107 bytes, which a long TMPDIR would exceed.
        parent = "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 70 else None
        with tempfile.TemporaryDirectory(prefix="deepseek-v32-", dir=parent) as directory:
            path = str(Path(directory) / "socket")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
                server.bind(path)
                server.listen(self.size)
                server.settimeout(START_SECONDS)
                self._store.set(_ADDRESS, path)
                while len(self._channels) < self.size - 1:
                    try:
                        connection, _ = server.accept()
                    except TimeoutError:
                        missing = sorted(set(range(1, self.size)) - self._channels.keys())
                        raise ValueError(
                            f"ranks {missing} have not connected within {START_SECONDS:.0f} s; expected all {self.size} ranks"
                        ) from None
                    connection.settimeout(None)
                    channel = Channel(connection)
                    self._channels[channel.receive().values["rank"]] = channel

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

    def _on_lost_rank(self, rank: int, text: str | None = None) -> None:
        """Abort the job, unless it is ending already. text: the rank's error; without one it ended without a word."""
        time.sleep(_GRACE_SECONDS)  # this process may be ending for the same reason
        if not self._ending:
            self.abort(f"rank {rank}: {text}" if text else f"rank {rank} of {self.size} has died, and the job with it")
        time.sleep(END_SECONDS)


class Follower(_Member):
    """The job as any other rank sees it."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(store, rank, size)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(store.get(_ADDRESS).decode())
        self._channel = Channel(connection)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.reply({"rank": rank})
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
        time.sleep(_GRACE_SECONDS)  # if another rank failed first, rank 0 ends the job now
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
            exit_now(1, f"rank 0 of {self.size} has died, and rank {self.rank} with it")
