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
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.limits import Limits
from deepseek_v32.inference.engine.scoring import ScoreJob
from deepseek_v32.inference.service.engine_thread import STOPPED, TIMED_OUT
from deepseek_v32.inference.service.service import Busy, Service
from deepseek_v32.inference.service.streams import AsyncInbox, AsyncStream
from simulation.checks import check_engine, is_writable
from simulation.client import Client, sampling
from simulation.fate import Fate
from simulation.model import EOS, VOCABULARY, log_probability
from simulation.ranks import SimulatedFollower, SimulatedLeadingRunner
from simulation.runner import SimulatedRunner
from simulation.stand_ins import Loop, Turns, Watcher
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
    queue: int = 2  # requests that may be open beside those that run
    pause: float = 0.0  # seconds between deliveries
    text: bool = False  # the model has a tokenizer


class World:
    """A server with its clients and its other ranks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.clients: list[Client] = []
        self.scores: list[tuple[tuple[int, ...], ScoreJob]] = []
        self.stopped = False
        self.fate = Fate(lambda operation, arguments: getattr(self, operation)(**arguments))
        self._retired = False  # the turn before advanced nobody, it only retired a step in flight
        self._loop = Loop(self.fate.point)
        s = settings
        sizes = (s.pages, s.page_size, s.sequences, s.ahead)
        self.runner = SimulatedRunner(*sizes, hooks=self.fate)
        self.fate.corrupt = not s.followers  # else the ranks' caches would differ
        self.followers = [SimulatedFollower(SimulatedRunner(*sizes)) for _ in range(s.followers)]
        limits = Limits(s.context, s.budget, s.sequences, s.pages, s.reuse)
        runner: Any = SimulatedLeadingRunner(self.runner, self.followers, limits) if s.followers else self.runner
        tokenizer: Any = self.fate if s.text else None
        self.engine = Engine(runner, CONFIG, limits, tokenizer, s.page_size)
        self.runner.writable = partial(is_writable, self.engine.pool)
        self._recover, recovery = self.engine.recover, self._count_recovery
        self.engine.recover = recovery  # type: ignore[method-assign]
        llm: Any = SimpleNamespace(engine=self.engine, limits=limits)
        thread: Any = Turns
        self.service = Service(
            llm, max_queue=s.queue, deadline=DEADLINE, delivery=s.pause, clock=self._clock, thread=thread
        )
        self._watcher = Watcher(self.fate.point)
        self.service.observe(self._watcher)

    # What clients, threads, ranks and fate may do. An index counts modulo what there is, so that a shrunk schedule stays one.

    def submit(
        self, prompt: tuple[int, ...], max_tokens: int, kind: str = "greedy", asynchronous: bool = False
    ) -> None:
        """A client's request. kind: see `client.sampling`."""
        ahead = [client for client in self.clients if client.stream.request_id in self.service._thread._entries]
        params = sampling(kind, max_tokens, self.settings.text)
        stream: Any
        try:
            if asynchronous:
                request = self.service.make_request(prompt, params)
                inbox = AsyncInbox(self._loop)  # type: ignore[arg-type]
                self.service._queue([self.service._entry(request, inbox)])
                stream = AsyncStream(request.id, self.service.cancel, inbox)
            else:
                stream = self.service.stream(prompt, params)
        except Busy:
            assert self.stopped or self.service.stats().open == self.service.capacity, "refused without a reason"
            return
        count = min(max_tokens, self.settings.context - len(prompt))
        self.clients.append(Client(stream, prompt, count, params, ahead))

    def score(self, prompt: tuple[int, ...]) -> None:
        """A prompt to be scored, which takes its pages from the latest requests."""
        request = self.service.make_request(prompt)
        job = ScoreJob(request, 0, float("inf"))
        try:
            self.service.check_capacity(1)
        except Busy:
            return
        self.service._thread.queue_job(job)
        self.scores.append((prompt, job))

    def cancel(self, client: int) -> None:
        """A client cancels its request, and reads on."""
        if self.clients:
            chosen = self.clients[client % len(self.clients)]
            chosen.cancelled = True
            self.service.cancel(chosen.stream.request_id)

    def abort(self, client: int) -> None:
        """As `cancel`, but in the middle of the engine, whose `abort` any thread may call at any time."""
        if self.clients:
            chosen = self.clients[client % len(self.clients)]
            chosen.cancelled = True
            self.engine.abort(chosen.stream.request_id)

    def close(self, client: int) -> None:
        """A client goes away."""
        if self.clients:
            chosen = self.clients[client % len(self.clients)]
            chosen.cancelled = chosen.gone = True
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

    def follow(self, rank: int) -> None:
        """A follower handles one message, if it has one."""
        if self.followers and (follower := self.followers[rank % len(self.followers)]).behind:
            follower.follow()
            self._check_follower(follower)

    def fail(self, where: str, row: int = 0) -> None:
        """The next time that it is possible, something fails.

        where: "forward", "sample", "row" of logits, "stage", "text", "observer" or "delivery" to the event loop.
        """
        if where != "forward" or not self.followers:  # with several ranks it ends the job
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
        if not thread.open and not thread._undelivered:
            return
        queue = [*scheduler.running, *scheduler.waiting]
        before = [(each.computed, len(each.tokens)) for each in queue[:1]]
        in_flight, jobs = self.engine._in_flight, thread._open_jobs
        self.fate.in_turn = True
        thread.turn()
        self.fate.in_turn = False
        check_engine(self.engine, self.runner)
        scored = jobs - thread._open_jobs
        open_ids = {request.id for request in (*scheduler.running, *scheduler.waiting)}
        after = [(each.computed, len(each.tokens)) for each in queue[:1] if each.id in open_ids]
        stuck = bool(queue) and before == after
        assert not stuck or scored or (in_flight is not None and not self._retired), "a turn advanced nobody"
        self._retired = stuck
        for client in self.clients:
            if client.stream.request_id in thread._entries:
                client.count_turn(scored)

    def finish(self) -> None:
        """Let everything end, and check what came out."""
        self.fate.clear()
        while self.service.stats().open or self.service._thread._undelivered:  # `count_turn` bounds it
            self.turn()
        self._loop.run()
        for follower in self.followers:
            while follower.behind:
                follower.follow()
                self._check_follower(follower)
            assert (follower.runner.latent, follower.runner.index) == (self.runner.latent, self.runner.index)
        for client in self.clients:
            client.read()
            if not client.gone:
                self._check_end(client)
        seen = [self._watcher.ended[client.stream.request_id] for client in self.clients]
        assert max(seen, default=0) <= 1 and seen.count(0) <= self.fate.unseen, "an observer saw another number of ends"
        for fault, requests in enumerate(self.fate.struck):
            ended = [c for c in self.clients if c.error is not None and f"fault {fault};" in c.error]
            assert requests is not None or len(ended) <= 1, "one request's fault ended others"
        for prompt, job in self.scores:
            self._check_score(prompt, job)
        assert not self.engine.has_work and not self.engine.scheduler.has_work and not self.engine.pool.used
        if not self.stopped:
            self.service.stop()

    def _clock(self) -> float:
        self.fate.others_run()
        return self.now

    def _count_recovery(self) -> None:
        """The engine repairs its books after a fault of its own. No fault that is injected here makes that necessary."""
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

    def _check_score(self, prompt: tuple[int, ...], job: ScoreJob) -> None:
        assert job.future.done(), "a prompt was not scored"
        if (error := job.future.exception()) is not None:
            assert "fault" in str(error) or "finite" in str(error) or self.stopped, error
            return
        for i, entry in enumerate(job.future.result(), 1):
            assert entry.token_id == prompt[i]
            assert abs(entry.logprob - log_probability(prompt[:i], prompt[i])) < 1e-3, "a prompt was scored wrongly"
