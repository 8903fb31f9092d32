"""One step of the engine from its launch on the device to its tokens on the host."""

import torch

from .runner import ModelRunner
from .sampler import Sample, SampledTokens, needs_host_sync, sample_tokens
from .scheduler import Batch
from .selection import SelectionRecorder


class InFlightStep:
    """A batch that is launched, then sampled, then read.

    On a GPU, `launch` does not wait for the device, `sample` waits only for requests with `needs_host_sync`, and `read` waits.
    The first exception of any part is kept in `error` and raised by `read`; no part is tried again.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.recorder = SelectionRecorder(batch)
        self.following: InFlightStep | None = None  # the step that was launched before this one's tokens were read
        self.error: Exception | None = None
        self._logits: torch.Tensor | None = None  # valid until another step is launched
        self._sampled: SampledTokens | None = None

    def launch(self, runner: ModelRunner) -> None:
        """Start the forward pass."""
        try:
            self._logits = runner.run(self.batch, self.recorder.callback)
            self.recorder.fetch()
        except Exception as error:
            self.error = error

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
            if runner.supports_async_scheduling:
                runner.stage_tokens(self._sampled.tokens)
        except Exception as error:
            self.error = error  # sampling again would apply penalties twice to the same logits

    def read(self) -> list[Sample]:
        """Wait for the sampled tokens. Raises what failed in any part of the step."""
        if self.error is not None:
            raise self.error
        assert self._sampled is not None
        return self._sampled.read()
