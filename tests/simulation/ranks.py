"""Followers: the product's LeadingRunner, Channel, BatchUpdate and Worker over a socket and a collective that are lists."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from deepseek_v32.inference.config import Limits
from deepseek_v32.inference.distributed import rank_tokens
from deepseek_v32.inference.distributed.channel import Channel, MessageKind, pack
from deepseek_v32.inference.distributed.leading_runner import LeadingRunner
from deepseek_v32.inference.distributed.worker import Worker
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.step import Choices, Step
from simulation.runner import SimulatedRunner


class Wire:
    """One direction of a socket: bytes that have been sent and not yet received."""

    def __init__(self) -> None:
        self.data = bytearray()

    def sendall(self, data: bytes) -> None:
        self.data += data

    def recv_into(self, view: memoryview) -> int:
        count = min(len(view), len(self.data))
        view[:count] = self.data[:count]
        del self.data[:count]
        return count


class SimulatedFollower:
    """Another rank. It handles rank 0's messages when the schedule lets it, however late."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self.runner = runner
        self.wire = Wire()
        self.broadcasts: deque[list[Any]] = deque()  # rank 0's side of collectives that this rank has not joined yet
        self._channel: Any = Channel(self.wire)  # type: ignore[arg-type]
        self._worker = Worker(SimpleNamespace(before_end=[]))  # type: ignore[arg-type]
        self._worker._runner = runner  # type: ignore[assignment]

    @property
    def has_messages(self) -> bool:
        return bool(self.wire.data)

    def follow(self) -> None:
        """Handle one message of rank 0."""
        with patch.object(rank_tokens, "dist", self):  # this rank's side of collectives
            self._worker.handle(self._channel.receive())

    def broadcast(self, values: Any, source: int) -> None:
        """values: a list or tensor to be filled."""
        assert source == 0
        received = torch.tensor(self.broadcasts.popleft())
        values[:] = received.tolist() if isinstance(values, list) else received


class SimulatedLeader:
    """The part of a job that LeadingRunner uses."""

    def __init__(self, followers: Sequence[SimulatedFollower]) -> None:
        self.before_end: list[Any] = []
        self.followers = followers

    def broadcast(
        self, kind: MessageKind, values: dict[str, Any] | None = None, arrays: Sequence[np.ndarray] = ()
    ) -> None:
        if kind is not MessageKind.START:  # which makes the caches and the runner; they are here already
            for follower in self.followers:
                follower.wire.sendall(pack(kind, values, arrays))

    @contextmanager
    def together(self) -> Iterator[None]:
        yield


class Collectives:
    """Takes the place of torch.distributed on rank 0."""

    def __init__(self, followers: Sequence[SimulatedFollower]) -> None:
        self._followers = followers

    def broadcast(self, values: Any, source: int) -> None:
        assert source == 0
        for follower in self._followers:
            follower.broadcasts.append(torch.as_tensor(values).tolist())


class SimulatedLeadingRunner(LeadingRunner):
    """Rank 0's runner of several."""

    def __init__(self, runner: SimulatedRunner, followers: Sequence[SimulatedFollower], limits: Limits) -> None:
        super().__init__(SimulatedLeader(followers), limits, runner)  # type: ignore[arg-type]
        self._collectives = Collectives(followers)

    def run(self, batch: Batch) -> Step:
        with patch.object(rank_tokens, "dist", self._collectives):
            return super().run(batch)

    @contextmanager
    def _share(self, choices: Choices) -> Iterator[Choices]:
        with patch.object(rank_tokens, "dist", self._collectives), super()._share(choices) as shared:
            yield shared
