"""The engine: requests in, deltas out, one step at a time."""

import itertools
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ...model.config import ModelConfig
from ...model.metadata import PAGE_SIZE
from ..params import Delta, FinishReason, PromptTooLong, Request, SamplingParams, check_token_ids
from ..text.tokenizer import Tokenizer
from .cache_check import CacheCheck
from .cache_report import CacheReports
from .limits import Limits
from .pages import PagePool
from .request_state import RequestState
from .runner import ModelRunner
from .scheduler import Scheduler
from .stats import EngineStats
from .step import InFlightStep

log = logging.getLogger(__name__)


class Engine:
    """Continuous batching over one model runner.

    Where the runner supports asynchronous scheduling, the next step of decodes is launched before the tokens of the present one
    are read. The device takes those tokens from its own memory and goes on while the host turns them into text.

    One thread at a time may call its methods, except `make_request` and `abort`, which any thread may call at any time.
    """

    def __init__(
        self,
        runner: ModelRunner,
        config: ModelConfig,
        limits: Limits,
        tokenizer: Tokenizer | None = None,
        page_size: int = PAGE_SIZE,
        cache_check: CacheCheck | None = None,
    ) -> None:
        """An answer ends at the end-of-sentence tokens of both the tokenizer and the configuration.

        page_size: tokens of a page, as the runner's caches have it. Only a simulated runner has another one than PAGE_SIZE.
        cache_check: the runner's, if it has one. A mismatch that it finds ends its request.
        """
        self.runner = runner
        self.config = config
        self.limits = limits
        self.tokenizer = tokenizer
        self.eos_ids = frozenset(config.eos_token_ids) | frozenset(tokenizer.eos_ids if tokenizer else ())
        self.pool = PagePool(limits.page_count, page_size, limits.reuse_pages)
        self.scheduler = Scheduler(self.pool, limits.max_batch_tokens, limits.max_sequences)
        self._states: dict[int, RequestState] = {}  # by request id: those that have not finished
        # The oldest step whose tokens have not been read. Between two calls of `step`, the one that was launched ahead.
        self._in_flight: InFlightStep | None = None
        self._deltas: list[Delta] = []  # for `step` to return; if Ctrl-C cuts it short, the next one returns them
        self._aborted: deque[int] = deque()  # appended by any thread, emptied between steps
        self._ids = itertools.count()
        self._stats = EngineStats()
        self._cache_check = cache_check
        self._reports = None if cache_check is None else CacheReports(cache_check)

    @property
    def has_work(self) -> bool:
        return bool(self._states or self._deltas)

    def make_request(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        inspect: bool = False,
        min_new_tokens: int = 1,
    ) -> Request:
        """Check a prompt of token ids against the limits, without queueing it.

        min_new_tokens: how many tokens must fit after the prompt; 0 for a prompt of which only logits are computed. ValueError
        names the value and the limit; it is PromptTooLong if the context cannot hold the prompt.
        """
        params = params or SamplingParams()
        tokens = check_token_ids(prompt, self.config.vocab_size)
        context = self.limits.max_model_len
        if len(tokens) > context - min_new_tokens:
            raise PromptTooLong(
                f"prompt has {len(tokens)} tokens; expected at most {context - min_new_tokens}: "
                f"the context of {context} holds prompt and answer"
            )
        if params.stop and self.tokenizer is None:
            raise ValueError(f"stop is {params.stop!r}; expected none: the model has no tokenizer (use stop_token_ids)")
        for token in params.stop_token_ids:
            if token >= self.config.vocab_size:
                raise ValueError(
                    f"stop_token_ids holds {token}; expected ids of the vocabulary, 0 to {self.config.vocab_size - 1}"
                )
        remaining = context - len(tokens)
        max_tokens = remaining if params.max_tokens is None else min(params.max_tokens, remaining)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        return Request(next(self._ids), tokens, params, max_tokens, seed, inspect)

    def add_request(
        self, prompt: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> Request:
        """Make and queue a request; the deltas of the next steps carry its id. Errors as `make_request`."""
        request = self.make_request(prompt, params, inspect)
        self.queue(request)
        return request

    def queue(self, request: Request) -> None:
        """Queue a request that `make_request` has made."""
        self._states[request.id] = RequestState(request, self.tokenizer, self.eos_ids, self.config.index_topk)
        self.scheduler.add(request)

    def abort(self, request_id: int) -> None:
        """Cancel a request before the next step. The id of a request that has finished, or never was, is ignored."""
        self._aborted.append(request_id)

    def step(self) -> list[Delta]:
        """Advance every running request: schedule, run, postprocess. Returns what the step added, request by request.

        An exception of the model ends the requests of its step. KeyboardInterrupt ends this call alone: the next one continues
        with the same step, and no token is lost or sampled twice.
        """
        self._end_aborted()
        if step := self._schedule():
            self._run(step)
            self._postprocess(step)
        return self._take_deltas()

    def drain(self) -> None:
        """Drain the in-flight step so that the caller may use the KV cache between steps.

        Its deltas are returned by the next `step` or `apply_aborts`.
        """
        while self._in_flight is not None:
            self._in_flight.sample(self.runner)
            self._postprocess(self._in_flight)

    def apply_aborts(self) -> list[Delta]:
        """End the requests that were cancelled; their pages are free afterwards. Returns their deltas, after those of `drain`."""
        self._end_aborted()
        return self._take_deltas()

    def report_mismatches(self) -> dict[int, str]:
        """End the requests for which the checks of the caches have found a mismatch. Returns all errors, by request id."""
        errors: dict[int, str] = {}
        if self._cache_check is None or self._reports is None:
            return errors
        for mismatch in self._cache_check.mismatches():
            request = mismatch.request
            if request.id not in errors:
                errors[request.id] = self._reports.write(mismatch, [*self.scheduler.running, *self.scheduler.waiting])
        for id, error in errors.items():
            if id in self._states:
                self._deltas.append(self._end(self._states[id], "error", error))
        return errors

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

    def _end_aborted(self) -> None:
        while self._aborted:
            state = self._states.get(self._aborted.popleft())
            if state is not None:
                self._deltas.append(self._end(state, "abort"))

    def _take_deltas(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _schedule(self) -> InFlightStep | None:
        """The step that is in flight already, else a new one; None if there is no work."""
        if self._in_flight is not None:
            return self._in_flight
        batch = self.scheduler.schedule()
        return InFlightStep(batch) if batch.requests else None

    def _run(self, step: InFlightStep) -> None:
        """Launch the step, unless it is in flight already, and sample it; then launch the next step if it can be known by now."""
        if self._in_flight is None:
            self._launch(step)
            self._in_flight = step
        step.sample(self.runner)
        if not self.runner.supports_async_scheduling or step.error is not None or step.following is not None:
            return
        batch = self.scheduler.schedule_ahead(step.batch)
        if batch is not None:
            following = InFlightStep(batch)
            self._launch(following)
            step.following = following
            following.sample(self.runner)

    def _launch(self, step: InFlightStep) -> None:
        step.launch(self.runner)
        if step.error is None:
            self.scheduler.start(step.batch)

    def _postprocess(self, step: InFlightStep) -> None:
        """Wait for the step's tokens and add them to their requests."""
        try:
            samples = step.read()
        except Exception as error:  # whatever the model raised ends the requests of the step, not the engine
            log.exception("a step failed")
            self._in_flight = None  # a following step has only requests that end here
            self._fail(step, error)
            return
        self.report_mismatches()
        self._in_flight = step.following
        self.scheduler.commit(step.batch)
        self._stats.steps += 1
        self._stats.computed_tokens += step.batch.tokens
        for request, sample in zip(step.batch.sampling, samples, strict=True):
            state = self._states.get(request.id)
            if state is None:  # the request ended while this step was in flight
                continue
            delta = state.push(sample, step.recorder.of(request))
            self._stats.generated_tokens += len(delta.token_ids)
            if delta.finish_reason is not None:
                self._remove(state)
            self._deltas.append(delta)
        if not self._states:
            self._in_flight = None  # all of its requests have ended

    def _fail(self, step: InFlightStep, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        states = [self._states[request.id] for request in step.batch.requests if request.id in self._states]
        self._deltas += [self._end(state, "error", message) for state in states]

    def _end(self, state: RequestState, reason: FinishReason, error: str | None = None) -> Delta:
        delta = state.finish(reason, error)
        self._remove(state)
        return delta

    def _remove(self, state: RequestState) -> None:
        """Free a finished request's pages. After an error their contents are not reused, because they may be the cause."""
        del self._states[state.request.id]
        self.scheduler.remove(state.request, discard=state.finish_reason == "error")
        reason = str(state.finish_reason)
        self._stats.finished[reason] = self._stats.finished.get(reason, 0) + 1
