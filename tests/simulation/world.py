"""The product's Service, EngineThread, Engine, Scheduler, PagePool and followers, in one thread, one operation at a time.

    world = World(Settings(pages=4, ahead=True))
    world.submit((0, 1, 1), max_tokens=3)
    world.meanwhile(2, "cancel", client=0)      # at the second place where another thread could run
    world.turn()
    world.finish()

Replaced are the model, the clock, the threads, and the socket and collectives between ranks. Every operation is a method that
takes plain numbers, so a schedule is a list of calls, which can be shrunk and printed. What must hold is checked after every turn
of the engine's thread, in `read` and in `finish`; AssertionError says what does not.
"""

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from deepseek_v32.inference.config import Limits
from deepseek_v32.inference.engine.drafting.policy import DraftPolicy
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running.scoring import AnswerScores, score, score_answer
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.scheduling.pace import UNBOUNDED, StepTimes
from deepseek_v32.inference.engine.scheduling.scheduler import PATIENCE
from deepseek_v32.inference.server.service.open_work import STOPPED, TIMED_OUT
from deepseek_v32.inference.server.service.score_job import ScoreJob
from deepseek_v32.inference.server.service.service import Busy, Service
from deepseek_v32.inference.server.service.streams import AsyncInbox, AsyncStream
from deepseek_v32.model.selection_policy import SelectionPolicy
from simulation.checks import check_engine, is_writable
from simulation.client import Client, sampling
from simulation.fate import Fate
from simulation.model import EOS, ORDINARY, VOCABULARY, log_probability
from simulation.ranks import SimulatedFollower, SimulatedLeadingRunner
from simulation.runner import SimulatedRunner
from simulation.stand_ins import Loop, SimulatedGrammars, Turns, Watcher
from support.fake_model import fake_config

CONFIG = fake_config(vocab_size=VOCABULARY, eos_token_ids=(EOS,))
DEADLINE = 100.0  # seconds of the simulated clock


@dataclass(frozen=True)
class Settings:
    """Sizes small enough that everything runs out all the time."""

    pages: int = 6
    page_size: int = 2
    budget: int = 3  # tokens a step
    sequences: int = 3  # requests running at a time
    context: int = 8  # tokens of a request, at most pages * page_size
    reuse: bool = True
    ahead: bool = True  # the runner supports asynchronous scheduling
    followers: int = 0
    queue: int = 2  # requests that may be open in addition to the running ones
    pause: float = 0.0  # seconds between deliveries
    text: bool = False  # the model has a tokenizer
    step: float = 0.0  # seconds that a step with prompt tokens should last, with one draft at most; 0: no bound
    token: float = 0.01  # seconds that a token takes, until `speed` changes it
    drafts: int = 0  # speculative tokens; VARIED: each step has its own number of them


VARIED = 5  # a value of Settings.drafts


class SelectiveDrafts(DraftPolicy):
    """A DraftPolicy that leaves out some chunks of prompts, whatever it has decided for earlier ones."""

    def pays(self, prompt: int, answer: int) -> bool:
        return prompt == 1 or (prompt + answer) % 3 > 0


class VariedDrafts(SelectiveDrafts):
    """A DraftPolicy that changes its mind at every step."""

    def __init__(self) -> None:
        self._steps = 0

    def choose(self, sequences: int, ready: Sequence[Request]) -> int | None:
        self._steps += 1
        return (2, 1, None, 0, 4, 3, 0, 0, 1)[hash((self._steps, sequences)) % 9]


class World:
    """A server with its clients and its other ranks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.clients: list[Client] = []
        self.scores: list[tuple[tuple[int, ...], ScoreJob, int]] = []
        self.stopped = False
        self.fate = Fate(lambda operation, arguments: getattr(self, operation)(**arguments), self._compute)
        self._token = settings.token
        self._retired = False  # the turn before advanced no request, it only retired a step in flight
        self._idle = Counter[int]()  # by id of an admitted request: the steps since it has advanced
        self._loop = Loop(self.fate.point)
        s = settings
        sizes = (s.pages, s.page_size, s.sequences, s.ahead)
        self.runner = SimulatedRunner(*sizes, hooks=self.fate, drafts=s.drafts > 0)
        self.fate.corrupt = not s.followers  # else the ranks' caches would differ
        self.followers = [SimulatedFollower(SimulatedRunner(*sizes, drafts=s.drafts > 0)) for _ in range(s.followers)]
        limits = Limits(s.context, s.budget, s.sequences, s.pages, s.reuse, speculative_tokens=s.drafts)
        runner: Any = SimulatedLeadingRunner(self.runner, self.followers, limits) if s.followers else self.runner
        tokenizer: Any = self.fate if s.text else None
        self.engine = Engine(runner, CONFIG, limits, tokenizer, s.page_size)
        grammars: Any = SimulatedGrammars()
        self.engine.requests.grammars = grammars
        if s.drafts:
            policy = VariedDrafts() if s.drafts == VARIED else SelectiveDrafts(s.drafts)
            self.engine.scheduler.speculation.policy = policy
        self.runner.writable = partial(is_writable, self.engine.pool)
        self._schedule, schedule = self.engine.scheduler.schedule, self._check_length
        self.engine.scheduler.schedule = schedule  # type: ignore[method-assign]
        self._recover, recovery = self.engine.recover, self._count_recovery
        self.engine.recover = recovery  # type: ignore[method-assign]
        llm: Any = SimpleNamespace(engine=self.engine, limits=limits, requests=self.engine.requests)
        thread: Any = Turns
        times = StepTimes(s.step, 2 * s.step, first_tokens=4, most_drafts=1) if s.step else UNBOUNDED
        self.service = Service(
            llm,
            max_queue=s.queue,
            deadline=DEADLINE,
            delivery=s.pause,
            step_times=times,
            clock=self._clock,
            thread=thread,
        )
        self._watcher = Watcher(self.fate.point)
        self.service.observe(self._watcher)

    # What clients, threads, ranks and fate may do. An index counts modulo what there is, so that a shrunk schedule stays one.

    def submit(
        self,
        prompt: tuple[int, ...],
        max_tokens: int,
        kind: str = "greedy",
        asynchronous: bool = False,
        start: int | None = None,
    ) -> None:
        """A client's request. kind: see `client.sampling`. start: of a SelectionPolicy."""
        policy = None if start is None else SelectionPolicy(start, "window")
        ahead = [client for client in self.clients if self.service._thread.work.find(client.stream.request_id)]
        params = sampling(kind, max_tokens, self.settings.text)
        stream: Any
        try:
            if asynchronous:
                request = self.service.requests.from_tokens(prompt, params, policy=policy)
                inbox = AsyncInbox(self._loop)  # type: ignore[arg-type]
                self.service._queue([request], [inbox])
                stream = AsyncStream(request.id, self.service.cancel, inbox)
            else:
                stream = self.service.stream(prompt, params, policy=policy)
        except Busy:
            held = sum(
                self.service._thread.work.find(c.stream.request_id) is not None and not c.left for c in self.clients
            )
            held += sum(not job.future.done() for _, job, _ in self.scores)
            assert self.stopped or held == self.service.capacity, "refused without a reason"
            return
        count = min(max_tokens, self.settings.context - len(prompt))
        # The oldest request advances within this many turns: it goes first after PATIENCE steps, unless others have waited for
        # longer or must be preempted for it one after the other.
        patience = PATIENCE + 2 * self.settings.sequences + 1
        begin = ORDINARY if start is None else start
        self.clients.append(Client(stream, prompt, count, params, ahead, patience, begin))

    def score(self, prompt: tuple[int, ...], known: int = 0, start: int | None = None) -> None:
        """A prompt to be scored, which takes its pages from the latest requests.

        known: its last tokens are an answer, before which pages are reused. start: of a SelectionPolicy.
        """
        if known:
            policy = None if start is None else SelectionPolicy(start, "window")
            request = self.service.requests.from_tokens(prompt, min_new_tokens=0, policy=policy)
            job = ScoreJob(lambda engine, is_over: score_answer(engine, request, known, 0, is_over), float("inf"))
        else:
            request = self.service.requests.from_tokens(prompt)
            job = ScoreJob(lambda engine, is_over: score(engine, request, 0, is_over), float("inf"))
        try:
            self.service.check_capacity(1)
        except Busy:
            return
        self.service._thread.queue([], [job])
        self.scores.append((prompt, job, ORDINARY if start is None or not known else start))

    def cancel(self, client: int) -> None:
        """A client cancels its request, and reads on."""
        if self.clients:
            chosen = self.clients[client % len(self.clients)]
            chosen.cancelled = chosen.left = True
            self.service.cancel(chosen.stream.request_id)

    def abort(self, client: int) -> None:
        """Cancel a client's request in the middle of the engine, whose `abort` any thread may call at any time."""
        if self.clients:
            chosen = self.clients[client % len(self.clients)]
            chosen.cancelled = True
            self.engine.abort(chosen.stream.request_id)

    def close(self, client: int) -> None:
        """A client goes away."""
        if self.clients:
            chosen = self.clients[client % len(self.clients)]
            chosen.cancelled = chosen.left = chosen.gone = True
            chosen.stream.close()

    def read(self, client: int) -> None:
        """A client takes what has arrived."""
        if self.clients:
            self.clients[client % len(self.clients)].read()

    def loop(self) -> None:
        """The clients' event loop runs."""
        self._loop.run()

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    def speed(self, token: float) -> None:
        """Let the machine take this many seconds for a token from now on."""
        self._token = token

    def follow(self, rank: int) -> None:
        """A follower handles one message, if it has one."""
        if self.followers and (follower := self.followers[rank % len(self.followers)]).has_messages:
            follower.follow()
            self._check_follower(follower)

    def fail(self, where: str, row: int = 0) -> None:
        """The next time that it is possible, something fails.

        where: "forward", "sample", "row" of logits, "stage", "draft", "text", "observer", "delivery" to the event loop; "experts"
        that cannot be read in the middle of a pass, or a "stall" until they are.
        """
        if where not in ("forward", "draft", "experts") or not self.followers:  # with several ranks it ends the job
            self.fate.arm(where, row)

    def meanwhile(self, points: int, operation: str, **arguments: Any) -> None:
        """During a coming turn, at the `points`th place from now where another thread may run: `operation`."""
        self.fate.interleave(points, operation, arguments)

    def stop(self) -> None:
        """The service stops without waiting for open requests."""
        self.stopped = True
        self.service.stop()

    def turn(self) -> None:
        """One turn of the engine's thread, if there is anything to do."""
        thread, scheduler = self.service._thread, self.engine.scheduler
        if not thread.work.count and not thread._delivery.is_due:
            return
        before = {each: progress(each) for each in (*scheduler.running, *scheduler.waiting)}
        in_flight, jobs, steps = self.engine._in_flight, len(thread.work._jobs), len(self.runner.steps)
        self.fate.in_turn = True
        thread.turn()
        self.fate.in_turn = False
        check_engine(self.engine, self.runner)
        scored = jobs - len(thread.work._jobs)
        after = {each: progress(each) for each in (*scheduler.running, *scheduler.waiting)}
        unchanged = all(after.get(each) == was for each, was in before.items())
        stuck = (
            bool(before) and unchanged and len(self.runner.steps) == steps
        )  # a step may advance one that has just arrived
        assert not stuck or scored or (in_flight is not None and not self._retired), "a turn advanced no request"
        self._retired = stuck
        if len(self.runner.steps) > steps:
            self._count_idle(before, 0 if scored else 1)
        for client in self.clients:
            if thread.work.find(client.stream.request_id):
                client.count_turn(scored)

    def finish(self) -> None:
        """Let everything end, and check what came out."""
        self.fate.clear()
        while self.service.stats().open or self.service._thread._delivery.is_due:  # `count_turn` bounds it
            self.turn()
        self._loop.run()
        for follower in self.followers:
            while follower.has_messages:
                follower.follow()
                self._check_follower(follower)
            assert (follower.runner.latent, follower.runner.index) == (self.runner.latent, self.runner.index)
            assert follower.runner.layer == self.runner.layer
        for client in self.clients:
            client.read()
            if not client.gone:
                self._check_end(client)
        seen = [self._watcher.ended[client.stream.request_id] for client in self.clients]
        assert max(seen, default=0) <= 1 and seen.count(0) <= self.fate.unseen, "an observer saw another number of ends"
        for fault, requests in enumerate(self.fate.struck):
            ended = [c for c in self.clients if c.error is not None and f"fault {fault};" in c.error]
            assert requests is not None or len(ended) <= 1, "one request's fault ended others"
        for prompt, job, start in self.scores:
            self._check_score(prompt, job, start)
        assert not self.engine.has_work and not self.engine.scheduler.has_work and not self.engine.pool.used
        if not self.stopped:
            self.service.stop()

    def _count_idle(self, before: dict[Request, tuple[int, ...]], steps: int) -> None:
        """Every admitted request advances within a bounded number of steps. before: the requests' progress before the step."""
        running = self.engine.scheduler.running
        waited = {each.id: self._idle[each.id] + steps for each in running if before.get(each) == progress(each)}
        self._idle = Counter(waited)
        most = PATIENCE + self.settings.sequences
        assert max(waited.values(), default=0) <= most, "an admitted request has not advanced for too many steps"

    def _check_length(self) -> Batch:
        """Schedule a step, and check that its expected cost is within its time, also if an answer begins in it."""
        scheduler = self.engine.scheduler
        answers = [request for request in scheduler.running if request.remaining == 1]
        batch = self._schedule()
        if not self.settings.step:
            return batch
        only_decodes = batch.decodes == len(batch.requests)
        assert only_decodes or (batch.draft_tokens or 0) <= 1, "a step with prompt tokens makes more drafts than it may"
        # A chunk of one token counts among the decodes, wherever it was chosen.
        entries = list(zip(batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True))
        chunks = [entry for entry in entries if entry[0] not in answers and entry[2] > 1]
        pace, step = scheduler.pace, self.settings.step
        costs = [pace.seconds(start, count) for _, start, count, _ in chunks]
        waits = any(request in answers for request in batch.requests) or any(logits for *_, logits in chunks[:-1])
        most = pace.for_tokens(step if waits else 2 * step)
        assert sum(costs) <= most * (1 + 1e-9), "a step was given more than its time"
        return batch

    def _compute(self, tokens: int) -> None:
        self.now += tokens * self._token

    def _clock(self) -> float:
        self.fate.others_run()
        return self.now

    def _count_recovery(self) -> None:
        """Note that the engine repairs its books. No fault that is injected here makes that necessary."""
        self.runner.broken.append(f"the engine has failed: {traceback.format_exc(limit=-1).splitlines()[-1]}")
        self._recover()

    def _check_follower(self, follower: SimulatedFollower) -> None:
        step = len(follower.runner.steps) - 1
        assert not follower.runner.broken, follower.runner.broken[0]
        assert follower.runner.steps[step] == self.runner.steps[step], f"in step {step} a follower writes other entries"

    def _check_end(self, client: Client) -> None:
        completion, id = client.completion, client.stream.request_id
        assert completion is not None, f"request {id} has not ended"
        reason = client.check()
        if reason == "abort":
            assert client.cancelled, f"request {id} ended as if cancelled"
        if reason == "error":
            error = str(completion.error)
            fault = next((n for n in range(len(self.fate.struck)) if f"fault {n};" in error), None)
            if fault is not None:
                may = self.fate.struck[fault]
                assert may is None or id in may, f"request {id} ended by a fault of others: {error}"
            elif "finite" in error:
                assert id in self.runner.ill, f"request {id}: {error}"
            else:
                assert (error == STOPPED and self.stopped) or (error == TIMED_OUT and self.now > DEADLINE), error

    def _check_score(self, prompt: tuple[int, ...], job: ScoreJob, start: int) -> None:
        assert job.future.done(), "a prompt was not scored"
        if (error := job.future.exception()) is not None:
            assert "fault" in str(error) or "finite" in str(error) or self.stopped, error
            return
        result = job.future.result()
        entries = result.logprobs if isinstance(result, AnswerScores) else result
        assert entries or len(prompt) == 1
        for i, entry in enumerate(entries, len(prompt) - len(entries)):
            assert entry.token_id == prompt[i]
            expected = log_probability(prompt[:i], prompt[i], start)
            assert abs(entry.logprob - expected) < 1e-3, "a prompt was scored wrongly"


def progress(request: Request) -> tuple[int, ...]:
    return request.cache.admission, request.cache.computed, len(request.tokens)
