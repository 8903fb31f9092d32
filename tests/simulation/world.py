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
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.limits import Limits
from deepseek_v32.inference.engine.scheduler import Batch
from deepseek_v32.inference.engine.scoring import ScoreJob
from deepseek_v32.inference.params import Delta
from deepseek_v32.inference.service.engine_thread import STOPPED, TIMED_OUT
from deepseek_v32.inference.service.service import Busy, Service
from deepseek_v32.inference.service.streams import AsyncInbox, AsyncStream
from simulation.checks import check_engine
from simulation.client import Client, sampling
from simulation.model import EOS, TEXT, VOCABULARY, log_probability
from simulation.ranks import SimulatedFollower, SimulatedLeadingRunner
from simulation.runner import UNWRITTEN, SimulatedRunner
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


class Fault(RuntimeError):
    """An injected failure; its text has its number."""


class Unsampled:
    """Logits of which one row cannot be sampled, alone or with others."""

    def __init__(self, logits: torch.Tensor, row: int, fault: Fault) -> None:
        self._logits, self._row, self._fault = logits, row, fault

    def __getitem__(self, rows: slice) -> Any:
        some = range(len(self._logits))[rows]
        return Unsampled(self._logits, self._row, self._fault) if self._row in some else self._logits[rows]

    def amax(self, dim: int) -> torch.Tensor:
        raise self._fault


class Turns:
    """Takes the place of threading.Thread: the schedule says when the engine's thread runs; `join` lets it run to its end."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self.join = target

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return True


class Loop:
    """Takes the place of clients' event loop: callbacks wait until the schedule lets it run."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self._point = point
        self._callbacks: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        self._point("delivery")
        self._callbacks.append((callback, args))

    def is_closed(self) -> bool:
        return False

    def run(self) -> None:
        while self._callbacks:
            callback, args = self._callbacks.popleft()
            callback(*args)


class Watcher:
    """An observer of the service. It fails now and then, which must change nothing."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self._point = point
        self.ended: Counter[int] = Counter()  # by request id

    def first_token(self, seconds: float) -> None:
        self._point("observer")

    def next_token(self, seconds: float) -> None:
        self._point("observer")

    def finished(self, delta: Delta, seconds: float) -> None:
        self.ended[delta.request_id] += 1
        self._point("observer")


class World:
    """A server with its clients and its other ranks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.clients: list[Client] = []
        self.scores: list[tuple[tuple[int, ...], ScoreJob]] = []
        self.stopped = False
        # By number of the fault: the requests that it may end. None: any one request.
        self.struck: list[set[int] | None] = []
        self._armed: list[tuple[str, int]] = []
        self._meanwhile: deque[tuple[int, str, dict[str, Any]]] = deque()
        self._unseen = 0  # ends that the observer may have missed, because it failed
        self._points = 0  # until the next of those
        self._in_turn = False
        self._retired = False  # the turn before advanced nobody, it only retired a step in flight
        self._loop = Loop(self._harmless)
        s = settings
        sizes = (s.pages, s.page_size, s.sequences, s.ahead)
        self.runner = SimulatedRunner(*sizes, hooks=self)
        self.followers = [SimulatedFollower(SimulatedRunner(*sizes)) for _ in range(s.followers)]
        limits = Limits(s.context, s.budget, s.sequences, s.pages, s.reuse)
        runner: Any = SimulatedLeadingRunner(self.runner, self.followers, limits) if s.followers else self.runner
        tokenizer: Any = self if s.text else None
        self.engine = Engine(runner, CONFIG, limits, tokenizer, s.page_size)
        self._recover, recovery = self.engine.recover, self._count_recovery
        self.engine.recover = recovery  # type: ignore[method-assign]
        llm: Any = SimpleNamespace(engine=self.engine, limits=limits)
        thread: Any = Turns
        self.service = Service(
            llm, max_queue=s.queue, deadline=DEADLINE, delivery=s.pause, clock=self._clock, thread=thread
        )
        self._watcher = Watcher(self._harmless)
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
            self._armed.append((where, row))

    def meanwhile(self, points: int, operation: str, **arguments: Any) -> None:
        """During a coming turn, at the `points`th place from now where another thread may run: `operation`."""
        self._meanwhile.append((points, operation, arguments))

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
        self._in_turn = True
        thread.turn()
        self._in_turn = False
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
        self._armed.clear()
        self._meanwhile.clear()
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
        assert max(seen, default=0) <= 1 and seen.count(0) <= self._unseen, "an observer saw another number of ends"
        for fault, requests in enumerate(self.struck):
            ended = [c for c in self.clients if c.error is not None and f"fault {fault};" in c.error]
            assert requests is not None or len(ended) <= 1, "one request's fault ended others"
        for prompt, job in self.scores:
            self._check_score(prompt, job)
        assert not self.engine.has_work and not self.engine.scheduler.has_work and not self.engine.pool.used
        if not self.stopped:
            self.service.stop()

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
            fault = next((n for n in range(len(self.struck)) if f"fault {n};" in error), None)
            if fault is not None:
                may = self.struck[fault]
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

    # Places where other threads may run and faults may strike.

    def forward(self, batch: Batch) -> None:
        self._others_run()
        pool, size = self.engine.pool, self.settings.page_size
        for request, start, count in zip(batch.requests, batch.starts, batch.counts, strict=True):
            for page in request.pages[start // size : (start + count - 1) // size + 1]:
                if pool._references[page] != 1 or pool._keys[page] is not None:
                    self.runner.broken.append(f"request {request.id} overwrites page {page}, which others may read")
        if self._strikes("forward") is not None:
            raise self._strike({request.id for request in batch.requests})

    def spoil(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        self._others_run()
        entries = [i for i, count in enumerate(batch.logit_counts) for _ in range(count)]  # by row
        if entries and (row := self._strikes("row")) is not None:
            logits[row % len(logits), 1] = torch.nan
            self._spoil_cache(batch, entries[row % len(logits)])
        if entries and (row := self._strikes("sample")) is not None:
            fault = self._strike({batch.requests[entries[row % len(logits)]].id})
            broken: Any = Unsampled(logits, row % len(logits), fault)
            return broken
        return logits

    def _spoil_cache(self, batch: Batch, chosen: int) -> None:
        """Why the logits are not finite: entries that this step has written are garbage, which nobody else may ever read."""
        request, end, size = (
            batch.requests[chosen],
            batch.starts[chosen] + batch.counts[chosen],
            self.settings.page_size,
        )
        page = request.pages[(end - 1) // size]
        self.runner.ill.add(request.id)
        if self.engine.pool._references[page] == 1 and not self.followers:
            slot = page * size + (end - 1) % size
            self.runner.latent[slot] = self.runner.index[slot] = UNWRITTEN

    def stage(self) -> None:
        self._others_run()
        if self._strikes("stage") is not None:
            raise self._strike(set())  # the next step takes its tokens from the host

    def _harmless(self, where: str) -> None:
        self._others_run()
        if self._strikes(where) is not None:
            self._unseen += where == "observer"
            raise self._strike(set())

    def _clock(self) -> float:
        self._others_run()
        return self.now

    def _others_run(self) -> None:
        if not self._in_turn or not self._meanwhile:
            return
        self._points += 1
        points, operation, arguments = self._meanwhile[0]
        if self._points >= points:
            self._meanwhile.popleft()
            self._points = 0
            self._in_turn = False  # no further threads run inside
            getattr(self, operation)(**arguments)
            self._in_turn = True

    def _strikes(self, where: str) -> int | None:
        """Whether a fault strikes here, and in which row."""
        row = next((row for place, row in self._armed if place == where), None)
        if row is not None:
            self._armed.remove((where, row))
        return row

    def _strike(self, requests: set[int] | None) -> Fault:
        self.struck.append(requests)
        return Fault(f"fault {len(self.struck) - 1};")

    # The tokenizer.

    eos_ids = (EOS,)
    is_byte_level = True

    def decode(self, ids: list[int]) -> str:
        self._others_run()
        if self._in_turn and self._strikes("text") is not None:
            raise self._strike(None)
        return "".join(TEXT[id] for id in ids)
