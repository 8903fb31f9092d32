"""A job of several ranks: rank 0, the leader; the followers, which do what it sends; and how their processes end."""

import atexit
import gc
import os
import queue
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from ...model.parallel.collectives import Ranks, shared_memory
from ..text.errors import describe_error
from .channel import Channel, Message, MessageKind, pack
from .connection import Children

GRACE_SECONDS = 0.5  # the time in which another process that is ending can report its own, better reason
_GROUP = "deepseek-v32/group"  # the store's key for the name of the group of collectives


@dataclass(frozen=True)
class Place:
    """A rank's place in the job and on its machine."""

    rank: int
    size: int  # of the job
    local_rank: int = 0  # among the ranks of its machine
    one_machine: bool = True  # for all ranks of the job


class Member:
    """The parts that all ranks have in common."""

    def __init__(self, store: Any, place: Place) -> None:
        self.rank, self.size = place.rank, place.size
        self._place = place
        self.before_end: list[Callable[[], None]] = []  # called when the job ends in order, before the group is left
        self._store = store  # referenced as long as the job runs: one process serves it to all the others
        self._ranks: Ranks | None = None

    def device(self, kind: str) -> str:
        """This rank's device of a kind: "cuda" is the GPU of its local rank."""
        return f"cuda:{self._place.local_rank}" if kind == "cuda" else kind

    def ranks(self, device: str) -> Ranks:
        """The group of collectives, made at the first call: NCCL on GPUs, gloo on CPUs."""
        if self._ranks is None:
            where = torch.device(device)
            on_gpu = where.type == "cuda"
            if on_gpu:
                torch.cuda.set_device(where)
            if self.rank == 0:
                self._store.set(_GROUP, f"deepseek-v32-{secrets.token_hex(8)}")
            hook = sys.excepthook
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                store=PrefixStore("deepseek-v32/collectives", self._store),
                rank=self.rank,
                world_size=self.size,
                # torch keeps what it knows of a name, so the next job of this process needs another one.
                group_name=self._store.get(_GROUP).decode(),
                device_id=where if on_gpu else None,
            )
            sys.excepthook = hook  # torch's writes [rank0] before each line of the user's own errors
            shared = shared_memory(where, self.rank, self.size) if self._place.one_machine else None
            self._ranks = Ranks(self.rank, self.size, shared)
        return self._ranks

    def _leave(self, single: bool = False) -> None:
        """Leave the group of collectives, with all ranks at the same time or as a single rank."""
        # Also of CUDA graphs that contain collectives: NCCL would wait for them for ever.
        for release in self.before_end:
            release()
        if dist.is_initialized():
            gc.collect()
            if single and dist.get_backend() == "nccl":  # which would wait for the others
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()


class Leader(Member):
    """The job as rank 0 sees it."""

    def __init__(
        self, store: Any, place: Place, channels: Mapping[int, Channel], children: Children | None = None
    ) -> None:
        """children: the other ranks, if this process has started them."""
        super().__init__(store, place)
        self.has_model = False  # set by the first LLM; a second one is refused
        self.failed = False  # what rank 0 was to do has failed: the other ranks end with exit code 1, without a word
        self._ending = self._loading = False
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
        """Wrap the making of the one LLM: unless it succeeds, the job has failed. Children end at once, others at the exit."""
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
        """Wrap work that all ranks do at the same time: an exception ends the job, because the others wait in a collective."""
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
        """End the other ranks and leave the group, in order unless the job has failed; at the latest when this process exits."""
        if self._ending or os.getpid() != self._process:  # a copy that the user's program has forked
            return
        self._ending = True
        atexit.unregister(self.end)
        earlier = signal.alarm(END_SECONDS)
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
        with suppress(OSError):  # rank 0 has ended, and the listening thread handles that
            self._channel.send(MessageKind.REPLY, values)

    def follow(self, handle: Callable[[Message], None]) -> NoReturn:
        """Call `handle` with each of rank 0's messages until rank 0 ends the job, which an exception makes it do; then exit."""
        try:
            while (message := self._messages.get()).kind != MessageKind.END:
                handle(message)
        except BaseException as error:
            self._fail(error)
        signal.alarm(END_SECONDS)
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
                    signal.alarm(END_SECONDS)  # the main thread may be in a step that rank 0 has left
                self._messages.put(message)  # from here on it belongs to the main thread
                if message.kind == MessageKind.END:
                    return
        except EOFError:
            exit_now(1, None if self._is_child else f"rank 0 of {self.size} has died, and rank {self.rank} with it")


INSIST_SECONDS = 3  # a second Ctrl-C this long after the first does interrupt: the step may hang


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Delay a KeyboardInterrupt of Ctrl-C until the block's end. Other handlers of the program run at once."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # no signal raises anything here
        return
    deferred: KeyboardInterrupt | None = None
    interrupted_at = 0.0

    def defer(number: int, frame: FrameType | None) -> None:
        nonlocal deferred, interrupted_at
        try:
            handler(number, frame)
        except KeyboardInterrupt as interrupt:
            if deferred is None:
                deferred, interrupted_at = interrupt, time.monotonic()
            elif time.monotonic() - interrupted_at > INSIST_SECONDS:
                raise

    signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if deferred is not None:
        raise deferred.with_traceback(None)


# The time that an orderly end may take. Then SIGALRM ends this process: a collective may hang, and no thread can start while the
# interpreter shuts down.
END_SECONDS = 20


def exit_now(code: int, text: str | None = None) -> NoReturn:
    """Print a line and end this process without clean-up: a thread that hangs in a collective cannot be asked to end."""
    if text is not None:
        print(f"deepseek-v32: {text}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
