"""One step of the engine from its launch on the device to its tokens on the host."""

import logging

import torch

from .fault import Fault, log_fault
from .runner import ModelRunner
from .sampler import Sample, SampledTokens, needs_host_sync, sample, sample_tokens
from .scheduler import Batch
from .selection import SelectionRecorder

log = logging.getLogger(__name__)


class InFlightStep:
    """A batch that is launched, then sampled, then read.

    On a GPU, `launch` does not wait for the device, `sample` waits only for requests with `needs_host_sync`, and `read` waits.
    An exception of the forward pass is kept in `error` and raised by `read`. One of sampling ends the requests that caused it.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.recorder = SelectionRecorder(batch)
        self.following: InFlightStep | None = None  # the step that was launched before this one's tokens were read
        self.staged = False  # the device has kept the sampled tokens, from where a following step can take them
        self.error: Exception | None = None
        self._logits: torch.Tensor | None = None  # valid until another step is launched
        self._sampled: SampledTokens | list[Sample] | None = None

    def launch(self, runner: ModelRunner) -> None:
        """Start the forward pass."""
        try:
            self._logits = runner.run(self.batch, self.recorder.callback)
        except Exception as error:
            self.error = error
        else:
            self.recorder.try_fetch()

    def sample(self, runner: ModelRunner) -> None:
        """Sample this step's tokens on the device, unless that has been done or cannot be done yet.

        Requests with `needs_host_sync` are sampled from their earlier tokens on the host. While tokens of an earlier step are
        still to be read (``pending`` counts them and this step's own), a step with such a request stays as it is.
        """
        if self._sampled is not None or self.error is not None:
            return
        if any(request.pending > 1 and needs_host_sync(request.params) for request in self.batch.sampling):
            return
        assert self._logits is not None
        try:
            self._sampled = sample_tokens(self._logits, self.batch.sampling)
        except Exception:
            log_fault(
                log, "sampling %d requests together failed; they are sampled one by one", len(self.batch.sampling)
            )
            self._sampled = self._sample_each(self._logits)
            return
        if runner.supports_async_scheduling:
            try:
                runner.stage_tokens(self._sampled.tokens)
                self.staged = True
            except Exception:  # the next step gets its tokens from the host
                log_fault(log, "keeping sampled tokens on the device failed")

    def read(self) -> list[Sample]:
        """Wait for the sampled tokens. Raises what failed in the forward pass, or in waiting for it."""
        if self.error is not None:
            raise self.error
        assert self._sampled is not None
        return self._sampled if isinstance(self._sampled, list) else self._sampled.read()

    def _sample_each(self, logits: torch.Tensor) -> list[Sample]:
        """As sampling them together, but a request whose sampling raises gets a Sample with an error."""
        samples = []
        for row, request in enumerate(self.batch.sampling):
            try:
                samples += sample(logits[row : row + 1], [request])
            except Exception as error:
                samples.append(Sample(error=str(Fault("sampling", error))))
        return samples
