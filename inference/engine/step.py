"""One step of the engine from its launch on the device to its tokens on the host, and to the drafts for the next step."""

import logging
from collections.abc import Callable

import torch

from .fault import Fault, log_fault
from .running.model_runner import ModelRunner
from .running.selection import SelectionRecorder
from .sampling.greedy import FoundTokens, GreedySample
from .sampling.sampler import Drafts, Sample, SampledTokens, draft_noise, needs_host_sync, sample, sample_tokens
from .scheduling.batch import Batch

log = logging.getLogger(__name__)


class InFlightStep:
    """A batch that is launched, then sampled, then read.

    On a GPU, `launch` does not wait for the device, `sample` waits only for requests with `needs_host_sync`, and `read` waits.
    An exception of the forward pass is kept in `error` and raised by `read`. One of sampling ends the requests that caused it. It
    may be of any type, since CUDA, compilers of kernels and the grammar engine have their own: so every Exception is caught here,
    logged, and ends the requests that it concerns and no others.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.recorder = SelectionRecorder(batch)
        self.following: InFlightStep | None = None  # the step that was launched before this one's tokens were read
        self.staged = False  # the device has kept the sampled tokens, from where a following step can take them
        self.drafted = False  # the draft layer has done its work
        self.error: Exception | None = None
        self._logits: torch.Tensor | None = None  # valid until another step is launched
        self._greedy: FoundTokens | None = None  # those of the graph, if they are what the requests take
        self._in_graph = False  # whether another graph can sample what the requests take
        self._sampled: SampledTokens | GreedySample | list[list[Sample]] | None = None

    def launch(self, runner: ModelRunner) -> None:
        """Start the forward pass."""
        try:
            self._logits = runner.run(self.batch, self.recorder.sink)
        except Exception as error:
            self.error = error
        else:
            self.recorder.try_fetch()
            sampling, found = self.batch.sampling, runner.greedy
            if found is None:
                return
            if all(request.takes_likeliest for request in sampling):
                self._greedy = found
            elif not self.batch.draft_counts and self.batch.draft_tokens is None:
                self._in_graph = all(request.samples_in_graph for request in sampling)

    def sample(self, runner: ModelRunner) -> None:
        """Sample this step's tokens on the device, and let the draft layer work, unless that has been done or cannot be done yet.

        Requests with `needs_host_sync` are sampled from their earlier tokens on the host. While tokens of an earlier step are
        still to be read (``pending`` counts them and this step's own), a step with such a request stays as it is.
        """
        if self._sampled is not None or self.error is not None:
            return
        if self._greedy is not None:
            self._sampled = self._greedy.sample(self.batch.sampling, [each for each in self.batch.logit_counts if each])
            self.staged = not self.batch.draft_counts
            if self.batch.draft_tokens is not None:
                self._try_draft(lambda: runner.draft_greedily(self.batch))
            return
        if any(request.pending > 1 and needs_host_sync(request.params) for request in self.batch.sampling):
            return
        assert self._logits is not None
        if self._in_graph:
            try:
                self._sampled = runner.sample_in_graph(self.batch.sampling)
                self.staged = True
            except Exception:
                self._sample_each(self._logits, None)
            return
        drafts = self._drafts(runner)
        try:
            self._sampled = sample_tokens(self._logits, self.batch.sampling, drafts)
        except Exception:
            self._sample_each(self._logits, drafts)
            return
        if runner.supports_async_scheduling and drafts is None:
            try:
                runner.stage_tokens(self._sampled.tokens)
                self.staged = True
            except Exception:  # the next step gets its tokens from the host
                log_fault(log, "keeping sampled tokens on the device failed")
        if self.batch.draft_tokens is not None:
            sampled = self._sampled
            self._try_draft(lambda: self._draft(runner, sampled))

    def read(self) -> list[list[Sample]]:
        """Wait for the sampled tokens of each sampling request. Raises what failed in the forward pass, or in waiting for it."""
        if self.error is not None:
            raise self.error
        assert self._sampled is not None
        return self._sampled if isinstance(self._sampled, list) else self._sampled.read()

    def _drafts(self, runner: ModelRunner) -> Drafts | None:
        """Those that this step verifies, of the requests that sample."""
        batch = self.batch
        if not batch.draft_counts:
            return None
        sampling = [i for i, logit_count in enumerate(batch.logit_counts) if logit_count]
        rows = torch.tensor([batch.draft_rows[i] for i in sampling])
        if runner.drafts.is_cuda:
            rows = rows.pin_memory().to(runner.drafts.device, non_blocking=True)
        return Drafts([batch.draft_counts[i] for i in sampling], runner.drafts[rows])

    def _try_draft(self, draft: Callable[[], None]) -> None:
        try:
            draft()
            self.drafted = True
        except Exception:  # its requests go on without drafts
            log_fault(log, "drafting failed")

    def _draft(self, runner: ModelRunner, sampled: SampledTokens) -> None:
        device = sampled.tokens.device
        accepted = sampled.accepted
        if accepted is None:
            accepted = torch.zeros(len(sampled.requests), dtype=torch.int64, device=device)
        runner.draft(self.batch, sampled.tokens, accepted, draft_noise(sampled.requests, device))

    def _sample_each(self, logits: torch.Tensor, drafts: Drafts | None) -> None:
        """After sampling them together has raised: a request whose own sampling raises gets a Sample with an error."""
        log_fault(log, "sampling %d requests together failed; they are sampled one by one", len(self.batch.sampling))
        samples: list[list[Sample]] = []
        end = 0
        for i, request in enumerate(self.batch.sampling):
            own = None if drafts is None else drafts.of(i)
            first, end = end, end + 1 + (own.counts[0] if own else 0)
            try:
                samples += sample(logits[first:end], [request], own)
            except Exception as error:
                samples.append([Sample(error=str(Fault("sampling", error)))])
        self._sampled = samples
