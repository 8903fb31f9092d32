"""The engine: requests in, deltas out, one step at a time."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ...model.config import ModelConfig
from ...model.metadata import PAGE_SIZE
from ..completion import Delta, FinishReason
from ..config import MAX_DRAFT_TOKENS, Limits
from ..params import SamplingParams
from ..text.tokenizer import Tokenizer
from .drafting.policy import make_policy
from .fault import first_line, log_fault
from .request import Request
from .request_maker import RequestMaker
from .request_state import RequestState
from .running.selection import SelectionRecorder
from .sampling.sampler import Sample
from .scheduling.pace import Pace, StepTimes, fixed_cost
from .scheduling.pages import PagePool
from .scheduling.scheduler import Scheduler
from .step import InFlightStep, ModelRunner

log = logging.getLogger(__name__)

_MOST_FAILURES = 3  # of the engine itself, in a row, before it ends all requests


@dataclass
class EngineStats:
    """Counts since the engine was made; running, waiting and pages are the state between two steps."""

    steps: int = 0
    computed_tokens: int = 0  # tokens that went through the model, including recomputed ones
    prompt_tokens: int = 0  # of admitted requests
    cached_tokens: int = 0  # prompt tokens that were found in reused pages
    generated_tokens: int = 0
    # By place among a request's drafts of one step: how many were verified, and how many were right together with all earlier ones.
    drafted_tokens: list[int] = field(default_factory=lambda: [0] * MAX_DRAFT_TOKENS)
    accepted_tokens: list[int] = field(default_factory=lambda: [0] * MAX_DRAFT_TOKENS)
    preemptions: int = 0
    finished: dict[str, int] = field(default_factory=dict)  # finished requests by finish_reason
    running: int = 0
    waiting: int = 0
    pages_free: int = 0
    pages_used: int = 0
    pages_cached: int = 0


class Engine:
    """Continuous batching over one model runner. One thread at a time may call its methods; any thread may call `abort`.

    Where the runner supports asynchronous scheduling, the next step of decodes is launched before the tokens of the present one
    are read. The device takes those tokens from its own memory and goes on while the host turns them into text.

    A fault in one request's sampling or output ends that request, a fault of a forward pass the requests of its step. A fault in
    scheduler, pages or bookkeeping ends none: the engine recovers, and computes again what it has not delivered.
    """

    def __init__(
        self,
        runner: ModelRunner,
        config: ModelConfig,
        limits: Limits,
        tokenizer: Tokenizer | None = None,
        page_size: int = PAGE_SIZE,
        requests: RequestMaker | None = None,
    ) -> None:
        """page_size: another only for a simulated runner. requests: by default without defaults of a checkpoint."""
        self.runner = runner
        self.config = config
        self.limits = limits
        self.tokenizer = tokenizer
        self.requests = requests or RequestMaker(config, limits, tokenizer)
        drafting = None
        if runner.max_draft_tokens:
            on_cpu, graphs = runner.drafts.device.type == "cpu", runner.supports_async_scheduling
            drafting = make_policy(limits, config.num_hidden_layers, on_cpu, graphs)
        sizes = (limits.page_count, page_size, limits.reuse_pages, drafting is not None)
        self.pool, *others = [PagePool(*sizes) for _ in range(limits.data_ranks)]
        most = (limits.max_batch_tokens, limits.max_sequences)
        self.scheduler = Scheduler(self.pool, *most, drafting, more_pools=others)
        self._states: dict[int, RequestState] = {}  # by request id: those that have not finished
        self._in_flight: InFlightStep | None = None  # the oldest step whose tokens have not been read
        self._deltas: list[Delta] = []  # for `step` to return; if Ctrl-C cuts it short, the next one returns them
        self._aborted: deque[int] = deque()  # appended by any thread, emptied between steps
        self._stats = EngineStats()
        self._unsettled = False  # true during a call, and after one that no Exception has cut short
        self._failures = 0  # in a row

    @property
    def has_work(self) -> bool:
        return bool(self._states or self._deltas)

    def add_request(
        self, prompt: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> Request:
        """Make and queue a request; the deltas of the next steps carry its id. Raises what `RequestMaker` raises."""
        request = self.requests.from_tokens(prompt, params, inspect)
        self.queue(request)
        return request

    def queue(self, request: Request) -> None:
        """Queue a request of `requests`."""
        state = RequestState(request, self.tokenizer, self.requests.eos_ids, self.config.index_topk)
        try:
            self.scheduler.add(request)
            self._states[request.id] = state
        except BaseException:
            self._unsettled = True
            raise

    def abort(self, request_id: int) -> None:
        """Cancel a request before the next step. The id of a request that has finished, or never was, is ignored."""
        self._aborted.append(request_id)

    def step(self) -> list[Delta]:
        """Advance every running request: schedule, run, postprocess. Returns what the step added, request by request.

        No Exception gets out of here. KeyboardInterrupt ends only this call: the next one continues, and no token is lost or
        added twice.
        """
        with self._recovering():
            self._end_aborted()
            if step := self._in_flight or self._schedule():
                self._run(step)
                self._postprocess(step)
            self._failures = 0
        return self._take_deltas()

    def drain(self) -> None:
        """Drain the in-flight step, so that the caller may use the KV cache. Later calls return its deltas."""
        with self._recovering():
            while self._in_flight is not None:
                self._in_flight.sample()
                self._postprocess(self._in_flight)

    def recover(self) -> None:
        """Make scheduler and pool agree with the requests' page lists, wherever an exception has struck; forget the steps."""
        self._in_flight = None
        self.scheduler.recover(state.request for state in self._states.values())
        ended = {delta.request_id for delta in self._deltas if delta.finish_reason is not None}
        for state in [state for state in self._states.values() if state.finish_reason is not None]:
            assert state.finish_reason is not None
            if state.request.id not in ended:
                self._deltas.append(state.finish(state.finish_reason, state.error))
            self._remove(state)

    def apply_aborts(self) -> list[Delta]:
        """End the cancelled requests and free their pages. Returns their deltas, after the deltas of `drain`."""
        with self._recovering():
            self._end_aborted()
        return self._take_deltas()

    def end_observed(self) -> dict[int, str]:
        """End the requests in whose steps an observer of the runner has found a fault. Returns the errors by request id."""
        errors = self.runner.errors(self.scheduler.running)
        self._fail(errors)
        return errors

    def keep_pace(self, times: StepTimes, clock: Callable[[], float] = time.monotonic) -> None:
        """Bound how long steps with prompt tokens last, while answers wait and while none do."""
        self.scheduler.pace = Pace(times, fixed_cost(self.config), clock)

    def stats(self) -> EngineStats:
        """A snapshot, for metrics."""
        scheduler, pools, speculation = self.scheduler, self.scheduler.pools, self.scheduler.speculation
        return replace(
            self._stats,
            finished=dict(self._stats.finished),
            drafted_tokens=list(speculation.drafted_tokens),
            accepted_tokens=list(speculation.accepted_tokens),
            prompt_tokens=scheduler.prompt_tokens,
            cached_tokens=scheduler.cached_tokens,
            preemptions=scheduler.preemptions,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            pages_free=sum(pool.free for pool in pools),
            pages_used=sum(pool.used for pool in pools),
            pages_cached=sum(pool.cached for pool in pools),
        )

    def _end_aborted(self) -> None:
        while self._aborted:
            if (state := self._states.get(self._aborted[0])) is not None:
                self._end(state, "abort")
            self._aborted.popleft()

    def _take_deltas(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _schedule(self) -> InFlightStep | None:
        batch = self.scheduler.schedule()
        return InFlightStep(batch) if batch.requests else None

    def _run(self, step: InFlightStep) -> None:
        """Launch the step, unless it is in flight already, and sample it; then launch the next one if that can be done by now."""
        if self._in_flight is None:
            self._launch(step)
            self._in_flight = step
        step.sample()
        if not step.staged or step.following is not None:
            return
        if (batch := self.scheduler.schedule_ahead(step.batch, self.runner.is_quick)) is not None:
            following = InFlightStep(batch)
            self._launch(following)
            step.following = following
            following.sample()

    def _launch(self, step: InFlightStep) -> None:
        step.launch(self.runner)
        if step.error is None:
            self.scheduler.start(step.batch)

    def _postprocess(self, step: InFlightStep) -> None:
        try:
            samples = step.read()
        except Exception as error:  # whatever the model raised ends the requests of the step, not the engine
            log_fault(log, "a step failed")
            self._in_flight = None  # a following step has only requests that end here
            self._fail(dict.fromkeys([request.id for request in step.batch.requests], first_line(error)))
            return
        self.end_observed()
        finished = []
        drafted = [sum(sample.drafted for sample in own) for own in samples] if step.batch.draft_counts else ()
        for request, own in zip(step.batch.sampling, samples, strict=True):
            if (state := self._states.get(request.id)) is not None:  # else it ended while this step was in flight
                self._push(state, own, step.recorder)
                if state.finish_reason is not None:
                    finished.append(state)
        self._in_flight = step.following
        self.scheduler.commit(step.batch, step.drafted, drafted)
        for state in finished:
            self._remove(state)
        self._stats.steps += 1
        self._stats.computed_tokens += step.batch.tokens
        if not self._states:
            self._in_flight = None  # all of its requests have ended

    def _push(self, state: RequestState, samples: Sequence[Sample], recorder: SelectionRecorder | None) -> None:
        """Add a step's tokens to their request. Tokens that were sampled after its end are dropped."""
        for offset, sample in enumerate(samples):
            self._deltas.append(state.push(sample, recorder, offset))
            if sample.error is None:
                self._stats.generated_tokens += 1
            if state.finish_reason is not None:
                return

    def _fail(self, errors: dict[int, str]) -> None:
        for id, error in errors.items():
            if (state := self._states.get(id)) is not None:
                self._end(state, "error", error)

    def _end(self, state: RequestState, reason: FinishReason, error: str | None = None) -> None:
        self._deltas.append(state.finish(reason, error))
        self._remove(state)

    def _remove(self, state: RequestState) -> None:
        """Free a finished request's pages. After an error their contents are not reused, because they may be the cause."""
        if self._states.pop(state.request.id, None) is None:
            return
        reason = str(state.finish_reason)
        self._stats.finished[reason] = self._stats.finished.get(reason, 0) + 1
        try:
            self.scheduler.remove(state.request, discard=state.finish_reason == "error")
        except Exception:
            log_fault(log, "freeing the pages of request %d failed", state.request.id)
            self.recover()

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """Wrap work that must not stay half done: recover after an Exception, or first if the latest call was cut short."""
        if self._unsettled:
            self.recover()
        self._unsettled = True
        try:
            yield
        except Exception as error:
            log_fault(log, "the engine failed and recovers")
            self.recover()
            self._failures += 1
            if self._failures == _MOST_FAILURES:
                self._failures = 0
                text = f"the engine failed {_MOST_FAILURES} times in a row: {first_line(error)}"
                self._fail(dict.fromkeys(self._states, text))
        self._unsettled = False
