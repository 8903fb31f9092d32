"""Rank 0 and those that follow it: messages between them, and how they end together."""

import atexit
import gc
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
from .channel import Channel, pack

START_SECONDS = 300.0  # ranks may start one after the other, from a slow disk
_ADDRESS = "deepseek-v32/rank-0"  # the store's key of the socket's path
_GRACE_SECONDS = 0.5  # what a process that ends in order has for its own message
_END_SECONDS = 20  # and for its end, before it is cut short

Message = tuple[dict[str, Any], list[np.ndarray]]


class _Member:
    """What all ranks have in common."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store = store  # the process that serves it keeps it
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


class Leader(_Member):
    """Rank 0's side."""

    def __init__(self, store: Any, size: int) -> None:
        super().__init__(store, 0, size)
        self.leads = False  # a model
        self.before_end: list[Callable[[], None]] = []  # called at an end in order, while the group is still there
        self._ending = False
        self._channels: dict[int, Channel] = {}
        self._replies: dict[int, queue.SimpleQueue[Message]] = {}
        self._accept()
        for rank, channel in self._channels.items():
            self._replies[rank] = queue.SimpleQueue()
            threading.Thread(target=self._listen, args=(rank, channel), daemon=True).start()
        atexit.register(self.end)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # in order: the others are told

    def tell(self, kind: str, values: dict[str, Any] | None = None, arrays: Sequence[np.ndarray] = ()) -> None:
        """Send a message to every other rank."""
        data = pack({"kind": kind, **(values or {})}, arrays)
        for rank, channel in self._channels.items():
            try:
                channel.send_packed(data)
            except OSError:
                self._lost(rank)

    def ask(self) -> list[dict[str, Any]]:
        """The answer of every other rank, waited for."""
        return [replies.get()[0] for replies in self._replies.values()]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all ranks do at the same time: whoever fails there leaves the others waiting, so all have to end."""
        try:
            yield
        except BaseException as error:
            time.sleep(2 * _GRACE_SECONDS)  # the failure may be another rank's: then its message is the better one
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
            self.die("interrupted" if interrupted else f"rank 0: {_in_words(error)}")

    def die(self, text: str) -> NoReturn:
        """End the job with a line on standard error."""
        self._ending = True
        for channel in self._channels.values():
            with suppress(OSError):
                channel.send({"kind": "fail"})
        _exit(1, text)

    def end(self) -> None:
        """Let the others end, as this process does."""
        if self._ending:
            return
        self._ending = True
        _cut_short(_END_SECONDS)
        for channel in self._channels.values():
            with suppress(OSError):
                channel.send({"kind": "end"})
        for release in self.before_end:
            release()
        _leave_group()

    def _accept(self) -> None:
        """Let the others connect, through a socket in a directory that is this user's alone."""
        with tempfile.TemporaryDirectory(prefix="deepseek-v32-") as directory:
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
                            f"ranks {missing} of {self.size} have not come within {START_SECONDS:.0f} s"
                        ) from None
                    connection.settimeout(None)
                    channel = Channel(connection)
                    hello, _ = channel.receive()
                    self._channels[hello["rank"]] = channel

    def _listen(self, rank: int, channel: Channel) -> None:
        try:
            while True:
                message = channel.receive()
                if message[0]["kind"] == "failed":
                    self._lost(rank, message[0]["text"])
                    return
                self._replies[rank].put(message)
        except EOFError:
            self._lost(rank)

    def _lost(self, rank: int, text: str | None = None) -> None:
        time.sleep(_GRACE_SECONDS)  # this process may have come to its end for the same reason
        if not self._ending:
            self.die(f"rank {rank}: {text}" if text else f"rank {rank} of {self.size} has died, and the job with it")
        time.sleep(_END_SECONDS)


class Follower(_Member):
    """The other ranks' side."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(store, rank, size)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(store.get(_ADDRESS).decode())
        self._channel = Channel(connection)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.reply({"rank": rank})
        if threading.current_thread() is threading.main_thread():
            # torchrun hands these to all ranks; what they end, and after which last answers, rank 0 decides.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=self._listen, daemon=True).start()

    def reply(self, values: dict[str, Any]) -> None:
        """Answer rank 0."""
        with suppress(OSError):  # it is gone: the listening thread knows
            self._channel.send({"kind": "reply", **values})

    def follow(self) -> NoReturn:
        """Do what rank 0 says until it ends; then this process ends."""
        from .worker import Worker

        worker = Worker(self)
        try:
            while True:
                message, arrays = self._messages.get()
                if message["kind"] == "end":
                    break
                worker.handle(message, arrays)
        except BaseException as error:
            time.sleep(_GRACE_SECONDS)  # the failure may be another rank's: then rank 0 ends the job
            with suppress(OSError):
                self._channel.send({"kind": "failed", "text": _in_words(error)})
            with suppress(queue.Empty):  # as a rule rank 0 says so and ends the job, or has come to its end already
                while self._messages.get(timeout=_END_SECONDS)[0]["kind"] != "end":
                    pass
                _exit(1)
            _exit(1, f"rank {self.rank}: {_in_words(error)}")
        _cut_short(_END_SECONDS)
        del worker
        _leave_group()
        sys.exit(0)

    def _listen(self) -> None:
        try:
            while True:
                message = self._channel.receive()
                kind = message[0]["kind"]
                if kind == "fail":
                    _exit(1)
                if kind == "end":
                    _cut_short(_END_SECONDS)  # of a step that rank 0 does not take part in any more
                self._messages.put(message)  # from here on it is the other thread's
                if kind == "end":
                    return
        except EOFError:
            _exit(1, f"rank 0 of {self.size} has died, and rank {self.rank} with it")


def _in_words(error: BaseException) -> str:
    """What a user shall read of it, in one line."""
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _leave_group() -> None:
    """Leave the collectives in order. CUDA graphs that hold some must be gone: NCCL would wait for that for ever."""
    if dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()


def _cut_short(seconds: int) -> None:
    """End this process then, whatever hangs. By a signal: when Python ends there can be no new threads."""
    signal.alarm(seconds)


def _exit(code: int, text: str | None = None) -> NoReturn:
    """End now: a thread that hangs in a collective cannot be asked to."""
    if text is not None:
        print(f"deepseek-v32: {text}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
