"""Watching a runner's steps from outside. CacheCheck and Tracer are observers; the runner names none."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
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


def make_observers(names: Sequence[str], setup: Setup) -> list[StepObserver]:
    """The observers that Limits.observers names: classes, which are called with the setup."""
    return [attached(name)(setup) for name in names]
