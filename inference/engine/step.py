"""One step of the engine from its launch on the device to its tokens on the host, and to the drafts for the next step.

A runner launches a batch and returns a Step, which samples it. InFlightStep is the engine's side: how far the step has come.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import torch

from .fault import Fault, log_fault
from .request import Request
from .running.selection import SelectionRecorder
from .sampling.filters import on_device
from .sampling.graph_tokens import GreedySample, GreedyTokens
from .sampling.noise import DraftNoise
from .sampling.sampler import Drafts, Sample, SampledTokens, draft_noise, needs_host_sync, sample_tokens
from .scheduling.batch import Batch

log = logging.getLogger(__name__)


class Choices(NamedTuple):
    """The draft layer's inputs from a step's sampling, all on the device."""

    tokens: torch.Tensor  # int64 [N], for each of the step's rows of logits
    accepted: torch.Tensor  # int64 [M], right drafts of each request: the next ones follow the token after them
    noise: DraftNoise  # of the M requests


class ReadTokens(NamedTuple):
    """Sampled tokens that are on the host already."""

    samples: list[list[Sample]]

    def read(self) -> list[list[Sample]]:
        return self.samples


Sampled = SampledTokens | GreedySample | ReadTokens  # a step's tokens on their way to the host
# Gives every rank rank 0's choices, in a context around its draft layer's passes.
Share = Callable[[Choices], AbstractContextManager[Choices]]


class ModelRunner(Protocol):
    """The runner that the engine drives: runner.Runner on one rank, distributed.leading_runner's LeadingRunner on several."""

    @property
    def supports_async_scheduling(self) -> bool:
        """Tell whether a step of decodes may take its tokens from the device, before the engine reads them (Batch.sampled_rows)."""

    def is_quick(self, batch: Batch) -> bool:
        """Tell whether a step of decodes launches so fast that earlier tokens may wait for it: whether it has a graph."""

    def run(self, batch: Batch) -> "Step":
        """Launch a step."""

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        """Keep sampled tokens, int64 [N] on the device, for the next step."""

    @property
    def max_draft_tokens(self) -> int:
        """The most drafts that a step makes for a request; 0 if there is no draft layer."""

    @property
    def drafts(self) -> torch.Tensor:
        """int64 [max_sequences, MAX_DRAFT_TOKENS] on the device: the table of drafts. See Batch.draft_rows."""

    def errors(self, requests: Sequence[Request]) -> dict[int, str]:
        """Errors by request id, from observers of steps whose tokens have been read. requests: all that run."""


class Step(ABC):
    """A step that a runner has launched. It can be used until the runner launches the next one, which takes its tensors' place.

    There are four ways to sample it:

    1. The likeliest tokens that the step's graph has found, if the requests take them.
    2. Another graph, if they need only masks of grammars, temperatures and noise.
    3. The sampler, for all requests at once.
    4. The sampler, request by request, if sampling them together has raised.

    CUDA, compilers and the grammar engine have exceptions of their own: every Exception is logged, and ends only its requests.
    """

    def __init__(
        self,
        runner: ModelRunner,
        batch: Batch,
        logits: torch.Tensor,
        selections: SelectionRecorder | None,
        found: GreedyTokens | None = None,
        share: Share | None = None,
    ) -> None:
        """selections: None if no request asks for them. found: None if the step has no graph. share: on rank 0 of several."""
        self.runner, self.batch, self.selections = runner, batch, selections
        self.requests = batch.sampling
        self.staged = False  # the sampled tokens are kept on the device, where the next step can take them
        self.can_draft = False  # the sampled tokens are on the device, where the draft layer takes them
        self._logits: torch.Tensor | None = logits
        self._found, self._share = found, share
        self._sampled: Sampled | None = None
        # Whether the requests take the tokens that the step's graph has found.
        self.takes_likeliest = found is not None and all([request.takes_likeliest for request in self.requests])

    @property
    def logits(self) -> torch.Tensor:
        """fp32 [N, vocab], the logits of the last ``logit_counts[i]`` new tokens of each entry of the batch, in order."""
        assert self._logits is not None, "a later step has been launched"
        return self._logits

    def end(self) -> None:
        """Let the step's tensors go: the runner is about to launch another one."""
        self._logits = None

    def sample(self) -> Sampled:
        """Sample the batch's requests: an error for one whose own sampling raises. Waits only for those with `needs_host_sync`."""
        assert self._sampled is None and self._logits is not None, "a later step has been launched"
        batch, found = self.batch, self._found
        if found is not None and self.takes_likeliest:
            self._sampled = found.sample(self.requests, [each for each in batch.logit_counts if each])
            self.staged, self.can_draft = not batch.draft_counts, True
        elif (
            found is not None
            and not (batch.draft_counts or batch.draft_tokens is not None)
            and all(request.samples_in_graph for request in self.requests)
        ):
            try:
                self._sampled = self._sample_in_graph()
                self.staged = True
            except Exception:
                self._sampled = self._sample_each(None)
        else:
            self._sampled = self._sample()
        return self._sampled

    def choices(self) -> Choices:
        if self.takes_likeliest:
            return self._likeliest_choices()
        sampled = self._sampled
        assert isinstance(sampled, SampledTokens)
        device, accepted = sampled.tokens.device, sampled.accepted
        if accepted is None:
            accepted = torch.zeros(len(sampled.requests), dtype=torch.int64, device=device)
        return Choices(sampled.tokens, accepted, draft_noise(sampled.requests, device))

    def draft(self, choices: Choices | None = None) -> None:
        """Launch the draft layer over the step's rows, and for the drafts that the batch asks for. None: the step's own choices."""
        if self._share is None:
            self._draft(choices)
        else:
            with self._share(choices or self.choices()) as shared:
                self._draft(shared)

    @abstractmethod
    def _draft(self, choices: Choices | None) -> None:
        """Draft on this rank. choices: None: the step's own."""

    def _likeliest_choices(self) -> Choices:
        """Choices of the tokens that the graph has found, of a step with a graph."""
        raise NotImplementedError

    def _sample_in_graph(self) -> Sampled:
        """Sample in a graph and stage the tokens, without waiting for the device. Raises what a grammar raises."""
        raise NotImplementedError

    def _sample(self) -> Sampled:
        batch, drafts = self.batch, None
        if batch.draft_counts:
            sampling = [i for i, logit_count in enumerate(batch.logit_counts) if logit_count]
            table = self.runner.drafts
            rows = on_device(table.device, [batch.draft_rows[i] for i in sampling])
            drafts = Drafts([batch.draft_counts[i] for i in sampling], table[rows])
        try:
            sampled = sample_tokens(self.logits, self.requests, drafts)
        except Exception:
            return self._sample_each(drafts)
        self.can_draft = True
        if self.runner.supports_async_scheduling and drafts is None:
            try:
                self.runner.stage_tokens(sampled.tokens)
                self.staged = True
            except Exception:  # the next step gets its tokens from the host
                log_fault(log, "keeping sampled tokens on the device failed")
        return sampled

    def _sample_each(self, drafts: Drafts | None) -> "ReadTokens":
        log_fault(log, "sampling %d requests together failed; they are sampled one by one", len(self.requests))
        samples: list[list[Sample]] = []
        end = 0
        for i, request in enumerate(self.requests):
            own = None if drafts is None else drafts.of(i)
            first, end = end, end + 1 + (own.counts[0] if own else 0)
            try:
                samples += sample_tokens(self.logits[first:end], [request], own).read()
            except Exception as error:
                samples.append([Sample(error=str(Fault("sampling", error)))])
        return ReadTokens(samples)


class InFlightStep:
    """A batch that is launched, then sampled, then read: only `read` waits for the device, and `sample` as Step.sample."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.following: InFlightStep | None = None  # the step that was launched before this one's tokens were read
        self.drafted = False  # the draft layer has done its work
        self.error: Exception | None = None  # of the forward pass
        self._step: Step | None = None  # once it is launched
        self._sampled: Sampled | None = None

    @property
    def staged(self) -> bool:
        """Tell whether the device has kept the sampled tokens, from where a following step can take them."""
        return self._step is not None and self._step.staged

    @property
    def recorder(self) -> SelectionRecorder | None:
        assert self._step is not None
        return self._step.selections

    def launch(self, runner: ModelRunner) -> None:
        try:
            self._step = runner.run(self.batch)
        except Exception as error:
            self.error = error

    def sample(self) -> None:
        """Sample this step's tokens on the device, and let the draft layer work, unless that has been done or cannot be done yet.

        Requests with `needs_host_sync` need their earlier tokens on the host: while some are pending, the step stays as it is.
        """
        if self._sampled is not None or self.error is not None:
            return
        step = self._step
        assert step is not None
        if not step.takes_likeliest and any(
            request.cache.pending > 1 and needs_host_sync(request.params) for request in self.batch.sampling
        ):
            return
        self._sampled = step.sample()
        if self.batch.draft_tokens is not None and step.can_draft:
            try:
                step.draft()
                self.drafted = True
            except Exception:  # its requests go on without drafts
                log_fault(log, "drafting failed")

    def read(self) -> list[list[Sample]]:
        """Wait for the sampled tokens of each sampling request. Raises what failed in the forward pass, or in waiting for it."""
        if self.error is not None:
            raise self.error
        assert self._sampled is not None
        return self._sampled.read()
