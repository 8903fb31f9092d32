"""A step under way: started, then drawn from, then read."""

import torch

from .runner import ModelRunner
from .sampler import Sample, SampledTokens, sample_tokens
from .scheduler import Batch
from .selection import SelectionRecorder


class InFlightStep:
    """One batch on its way through the device. What fails is kept in `error`, for good, and raised by `read`."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.recorder = SelectionRecorder(batch)
        self.error: Exception | None = None
        self._logits: torch.Tensor | None = None  # valid until another step starts
        self._draws: SampledTokens | None = None

    def start(self, runner: ModelRunner) -> None:
        """Run the forward pass; on a GPU, without waiting for it."""
        try:
            self._logits = runner.run(self.batch, self.recorder.callback)
            self.recorder.fetch()
        except Exception as error:
            self.error = error

    def draw(self, runner: ModelRunner) -> None:
        """Draw its tokens, if that is still to do. Who `waits` does it here, when all earlier tokens are known."""
        if self._draws is not None or self.error is not None:
            return
        assert self._logits is not None
        try:
            self._draws = sample_tokens(self._logits, self.batch.sampling)
            if runner.supports_async_scheduling:
                runner.stage_tokens(self._draws.tokens)
        except Exception as error:
            self.error = error  # drawing again would count penalties twice

    def read(self) -> list[Sample]:
        """Wait for what was drawn."""
        if self.error is not None:
            raise self.error
        assert self._draws is not None
        return self._draws.read()
