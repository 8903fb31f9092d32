"""The engine: requests in, deltas out, one step at a time."""

import itertools
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch

from ...model.config import ModelConfig
from ...model.metadata import PAGE_SIZE, LayerCache
from ..params import Delta, FinishReason, PromptTooLong, Request, SamplingParams, check_token_ids
from ..text.tokenizer import Tokenizer
from .cache import SCRATCH_PAGES
from .limits import Limits
from .pages import PagePool
from .request_state import RequestState
from .runner import Model, ModelRunner, make_runner
from .sampler import Sample, needs_host_sync
from .scheduler import Batch, Scheduler
from .selection import SelectionRecorder
from .stats import EngineStats
from .step import InFlightStep

log = logging.getLogger(__name__)


class Engine:
    """Continuous batching around one model.

    Where decode steps are graphs, the next one is scheduled and started before what this one draws has been read: the device passes
    tokens on to itself, and goes on while the host turns them into text.

    One thread at a time may call it, except ``abort``, which any thread may call at any time.
    """

    def __init__(
        self,
        model: Model,
        config: ModelConfig,
        caches: list[LayerCache],
        limits: Limits,
        tokenizer: Tokenizer | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """`caches` have SCRATCH_PAGES pages beyond limits.page_count.

        Both the tokenizer's and the configuration's end tokens end an answer.
        """
        assert all(cache.latent.shape[0] == limits.page_count + SCRATCH_PAGES for cache in caches)
        self.config = config
        self.limits = limits
        self.tokenizer = tokenizer
        self.eos_ids = frozenset(config.eos_token_ids) | frozenset(tokenizer.eos_ids if tokenizer else ())
        self.pool = PagePool(limits.page_count, PAGE_SIZE, limits.reuse_pages)
        self.scheduler = Scheduler(self.pool, limits.max_batch_tokens, limits.max_sequences)
        self.runner: ModelRunner = make_runner(model, config, caches, limits, device)
        self._outputs: dict[int, RequestState] = {}
        self._flights: deque[InFlightStep] = deque()  # oldest first; between steps at most one, started ahead
        self._added: list[Delta] = []  # what `step` is to return, or the next one if Ctrl-C cuts it short
        self._aborted: deque[int] = deque()  # appended by any thread, emptied between steps
        self._ids = itertools.count()
        self._stats = EngineStats()

    @property
    def has_work(self) -> bool:
        return bool(self._outputs or self._added)

    def make_request(
        self, prompt: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> Request:
        """Check a prompt of token ids against the limits and queue nothing. Any thread may call it.

        Raises ValueError, which names the value and the limit; PromptTooLong if the context cannot hold the prompt.
        """
        params = params or SamplingParams()
        tokens = check_token_ids(prompt, self.config.vocab_size)
        room = self.limits.max_model_len - len(tokens)
        if room < 1:
            raise PromptTooLong(
                f"prompt has {len(tokens)} tokens; the context of {self.limits.max_model_len} must hold it and one new token"
            )
        if params.stop and self.tokenizer is None:
            raise ValueError(
                f"stop is {params.stop!r}, but the model has no tokenizer; stop_token_ids works without one"
            )
        for token in params.stop_token_ids:
            if token >= self.config.vocab_size:
                raise ValueError(f"stop_token_ids holds {token}; the vocabulary has {self.config.vocab_size}")
        max_tokens = room if params.max_tokens is None else min(params.max_tokens, room)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        return Request(next(self._ids), tokens, params, max_tokens, seed, inspect)

    def add_request(
        self, prompt: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> Request:
        """Queue a prompt of token ids; the next steps' deltas carry its id. Errors as `make_request`."""
        request = self.make_request(prompt, params, inspect)
        self.queue(request)
        return request

    def queue(self, request: Request) -> None:
        """Queue a request of `make_request`."""
        self._outputs[request.id] = RequestState(request, self.tokenizer, self.eos_ids, self.config.index_topk)
        self.scheduler.add(request)

    def abort(self, request_id: int) -> None:
        """Cancel a request before the next step. A request that has finished, or never was, is left alone."""
        self._aborted.append(request_id)

    def step(self) -> list[Delta]:
        """Advance every running request: schedule, run, postprocess. Returns what the step added, request by request."""
        self._added += self.apply_aborts()
        if not self._flights and (batch := self.scheduler.schedule()).requests:
            self._start(batch)
        if self._flights:
            self._flights[0].draw(self.runner)
            self._start_ahead()
            self._finish()
        if not self._outputs:
            self._flights.clear()  # nobody waits for it: all have ended
        deltas, self._added = self._added, []
        return deltas

    def drain(self) -> None:
        """Finish the step under way, for who needs the caches between two steps; the next `step` returns what it added."""
        while self._flights:
            self._finish()

    def apply_aborts(self) -> list[Delta]:
        """Carry out the cancellations asked for; their pages are free afterwards."""
        deltas = []
        while self._aborted:
            output = self._outputs.get(self._aborted.popleft())
            if output is not None:
                deltas.append(self._end(output, "abort"))
        return deltas

    def stats(self) -> EngineStats:
        """A snapshot, for metrics."""
        return replace(
            self._stats,
            finished=dict(self._stats.finished),
            prompt_tokens=self.scheduler.prompt_tokens,
            cached_tokens=self.scheduler.cached_tokens,
            preemptions=self.scheduler.preemptions,
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            pages_free=self.pool.free,
            pages_used=self.pool.used,
            pages_cached=self.pool.cached,
        )

    def logits(self, tokens: Sequence[int], chunk: int | None = None) -> torch.Tensor:
        """fp32 [T, vocab] on the CPU: the logits after every token, computed `chunk` tokens at a step, nothing reused.

        Running requests keep their place; the latest ones are preempted if the pages are needed. ValueError as `make_request`.
        """
        ids = check_token_ids(tokens, self.config.vocab_size, "token_ids")
        chunk = self.limits.max_batch_tokens if chunk is None else chunk
        if chunk < 1:
            raise ValueError(f"chunk is {chunk}; at least 1 is wanted")
        if len(ids) > self.limits.max_model_len:
            raise ValueError(f"token_ids has {len(ids)} tokens; the context holds {self.limits.max_model_len}")
        self.drain()
        request = Request(next(self._ids), ids, SamplingParams(), max_tokens=0, seed=0)
        request.pages = self.scheduler.take_pages(self.pool.pages_for(len(ids)))
        out = torch.empty(len(ids), self.config.vocab_size)
        try:
            for start in range(0, len(ids), chunk):
                request.computed = start
                count = min(chunk, len(ids) - start)
                batch = Batch((request,), (start,), (count,), decodes=int(count == 1), logit_counts=(count,))
                out[start : start + count] = self.runner.run(batch)
        finally:
            self.pool.release(request.pages)
        return out

    def _start(self, batch: Batch) -> InFlightStep:
        flight = InFlightStep(batch)
        flight.start(self.runner)
        if flight.error is None:
            self.scheduler.start(batch)
        self._flights.append(flight)
        return flight

    def _start_ahead(self) -> None:
        """Start what follows the step under way, if that does not depend on what it draws."""
        flight = self._flights[0]
        if not self.runner.supports_async_scheduling or flight.error is not None or len(self._flights) > 1:
            return
        following = self.scheduler.schedule_ahead(flight.batch)
        if following is not None:
            ahead = self._start(following)
            if not any(needs_host_sync(request.params) for request in following.sampling):
                ahead.draw(self.runner)

    def _finish(self) -> None:
        """Read what the oldest step under way has drawn."""
        flight = self._flights[0]
        flight.draw(self.runner)
        try:
            samples = flight.read()
        except Exception as error:  # whatever the model raised ends this step's requests, not the engine
            log.exception("a step failed")
            self._flights.popleft()
            self._added += self._fail(flight.batch, error)
        else:
            self._flights.popleft()
            self._added += self._postprocess(flight.batch, samples, flight.recorder)

    def _postprocess(self, batch: Batch, samples: list[Sample], recorder: SelectionRecorder) -> list[Delta]:
        self.scheduler.commit(batch)
        self._stats.steps += 1
        self._stats.computed_tokens += batch.tokens
        deltas = []
        for request, drawn in zip(batch.sampling, samples, strict=True):
            output = self._outputs.get(request.id)
            if output is None:  # it ended while this step was under way
                continue
            delta = output.push(drawn, recorder.of(request))
            self._stats.generated_tokens += len(delta.token_ids)
            if delta.finish_reason is not None:
                self._remove(output)
            deltas.append(delta)
        return deltas

    def _fail(self, batch: Batch, error: Exception) -> list[Delta]:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        outputs = [self._outputs[request.id] for request in batch.requests if request.id in self._outputs]
        return [self._end(output, "error", message) for output in outputs]

    def _end(self, output: RequestState, reason: FinishReason, error: str | None = None) -> Delta:
        delta = output.finish(reason, error)
        self._remove(output)
        return delta

    def _remove(self, output: RequestState) -> None:
        """Free a finished request's pages. What a failed one has cached may be the cause: nobody may reuse it."""
        del self._outputs[output.request.id]
        self.scheduler.remove(output.request, discard=output.finish_reason == "error")
        reason = str(output.finish_reason)
        self._stats.finished[reason] = self._stats.finished.get(reason, 0) + 1
