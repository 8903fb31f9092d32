"""Watching a runner's steps from outside. Checks of the caches, traces and recordings are observers; the runner names none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch

from ....model.config import ModelConfig
from ....model.metadata import AttentionMetadata, LayerCache
from ...extensions import attached
from ..request import Request
from ..scheduling.batch import Batch
from .inputs import Inputs


class Model(Protocol):
    """The runner's view of a model: model.transformer.Transformer, or a test's stand-in."""

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor: ...


Plan = tuple[np.ndarray, ...]  # what an observer wants all ranks to know of a step: int64 arrays


class Setup(NamedTuple):
    """The observed runner of one rank, which is about to be made."""

    model: Model
    caches: list[LayerCache]  # an observer may replace entries by ones that have stamps
    config: ModelConfig
    max_sequences: int
    max_model_len: int
    scratch_page: int
    ranks: int


class StepObserver:
    """Watches the steps of a runner. Its methods do nothing; an observer overrides those that it needs."""

    by_layer = False  # while it watches, steps run layer by layer: without CUDA graphs and records of decodes
    words = 0  # int64 numbers that steps with CUDA graphs carry for it next to their inputs

    def allows_graph(self, batch: Batch) -> bool:
        """Tell whether a step of decodes may run as a CUDA graph."""
        return not self.by_layer

    def plan(self, batch: Batch, in_graph: bool) -> Plan:
        """Decide what to do in a step. Rank 0 decides for all ranks."""
        return ()

    def step(self, batch: Batch, plan: Plan, inputs: Inputs) -> AbstractContextManager[Inputs]:
        """Return a context around the forward pass of a step without a graph; it gives the inputs that the model takes."""
        return nullcontext(inputs)

    def before_graph(self, batch: Batch, plan: Plan) -> np.ndarray:
        """Called before the launch of a step's graph. Returns its words, int64 [`words`]."""
        return np.zeros(self.words, dtype=np.int64)

    def in_graph(self, words: torch.Tensor, inputs: Inputs) -> AbstractContextManager[Inputs]:
        """Return a context around the forward pass within a graph, as `step`. words: the step's, on the device."""
        return nullcontext(inputs)

    def draft(self, batch: Batch) -> AbstractContextManager[None]:
        """Return a context around the draft layer's passes after a step without a graph."""
        return nullcontext()

    def errors(self, requests: Sequence[Request]) -> dict[int, str]:
        """Return errors by request id: these requests end. Called when a step's tokens have been read. requests: all that run."""
        return {}

    @staticmethod
    def page_bytes(layers: int) -> int:
        """Bytes of a device's memory that such an observer takes for each page of the caches."""
        return 0


class Observers:
    """A runner's observers, as one. Without any, a call costs 0.2 to 0.7 µs."""

    def __init__(self, members: Sequence[StepObserver] = ()) -> None:
        self.members = tuple(members)
        self.words = sum(each.words for each in members)

    @property
    def by_layer(self) -> bool:
        return any([each.by_layer for each in self.members])

    @contextmanager
    def joined_by(self, observer: StepObserver) -> Iterator[None]:
        """Let another observer, which must have no words, watch the steps in the block. Call between two steps."""
        assert not observer.words
        self.members += (observer,)
        try:
            yield
        finally:
            self.members = tuple(each for each in self.members if each is not observer)

    def allow_graph(self, batch: Batch) -> bool:
        return all([each.allows_graph(batch) for each in self.members])

    def plan(self, batch: Batch, in_graph: bool) -> tuple[Plan, ...]:
        return tuple([each.plan(batch, in_graph) for each in self.members])

    def step(self, batch: Batch, plans: Sequence[Plan], inputs: Inputs) -> AbstractContextManager[Inputs]:
        contexts = zip(self.members, plans, strict=True)
        return _nested([partial(each.step, batch, plan) for each, plan in contexts], inputs)

    def before_graph(self, batch: Batch, plans: Sequence[Plan]) -> np.ndarray | None:
        """The words of all observers; None if there are none."""
        found = [each.before_graph(batch, plan) for each, plan in zip(self.members, plans, strict=True)]
        return np.concatenate(found) if self.words else None

    def in_graph(self, words: torch.Tensor, inputs: Inputs) -> AbstractContextManager[Inputs]:
        parts = words.split([each.words for each in self.members]) if self.members else ()
        contexts = zip(self.members, parts, strict=True)
        return _nested([partial(each.in_graph, part) for each, part in contexts], inputs)

    def draft(self, batch: Batch) -> AbstractContextManager[object]:
        stack = ExitStack()
        for each in self.members:
            stack.enter_context(each.draft(batch))
        return stack

    def errors(self, requests: Sequence[Request]) -> dict[int, str]:
        return {id: error for each in self.members for id, error in each.errors(requests).items()}


def make_observers(names: Sequence[str], setup: Setup) -> Observers:
    """The observers that Limits.observers names: classes, which are called with the setup."""
    return Observers([attached(name)(setup) for name in names])


def _nested(
    contexts: Sequence[Callable[[Inputs], AbstractContextManager[Inputs]]], inputs: Inputs
) -> AbstractContextManager[Inputs]:
    """One context: each gives the next one's inputs."""
    return _entered(contexts, inputs) if contexts else nullcontext(inputs)


@contextmanager
def _entered(
    contexts: Sequence[Callable[[Inputs], AbstractContextManager[Inputs]]], inputs: Inputs
) -> Iterator[Inputs]:
    with ExitStack() as stack:
        for context in contexts:
            inputs = stack.enter_context(context(inputs))
        yield inputs
