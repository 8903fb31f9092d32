"""The state of an engine with a few requests, for an exhaustive search: it can be saved, restored, and compared.

A state is a whole Engine with its caches. From each, every action is taken: a request arrives, a step runs (with and without each
fault that can strike in it), an open request is cancelled, and the latest one, two or three requests are preempted, as scoring a
prompt does. A cancellation during a step is one after it, because the engine looks at cancellations only before a step. Two states
are the same if they differ only in page numbers, prefix ids, the contents of slots that no request may read, and statistics.
"""

import io
import itertools
import pickle
from collections import Counter
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import torch

from deepseek_v32.inference.completion import Delta
from deepseek_v32.inference.config import Limits
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.scheduling.scheduler import PATIENCE
from deepseek_v32.inference.engine.step import InFlightStep
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.inference.text.grammar import GrammarCompiler
from simulation.checks import check_engine, findable, is_writable
from simulation.fate import Fault, Unsampled
from simulation.model import EOS, answer
from simulation.runner import UNWRITTEN, SimulatedRunner
from simulation.world import CONFIG

GREEDY = SamplingParams(temperature=0)


class Space(NamedTuple):
    """The space to search: the requests' prompts and answer lengths, in the order of their arrival, and the engine's sizes."""

    requests: tuple[tuple[tuple[int, ...], int], ...]
    pages: int = 6
    page_size: int = 2
    budget: int = 3
    sequences: int = 3
    ahead: bool = True
    reuse: bool = True
    faults: bool = True
    drafts: int = 0  # speculative tokens


class Action(NamedTuple):
    """arrive; step; cancel (request); preempt (count); or a step with a fault at its `number`th place of the kind."""

    name: str
    number: int = 0


# What all states share is not saved with each.
CONSTANTS = {
    "config": CONFIG,
    "parameters": GREEDY,
    "nothing": UNWRITTEN,
    "grammars": GrammarCompiler(None, CONFIG.vocab_size, [EOS]),
}
NAMES = {id(constant): name for name, constant in CONSTANTS.items()}
OF_TYPES = {itertools.count: "ids", GrammarCompiler: "grammars"}


def constant(name: str) -> object:
    return CONSTANTS.get(name)


class Pickler(pickle.Pickler):
    """Replaces constants by their names. It is asked only about instances of classes, which are few in a state."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.tensor, (value.tolist(),)
        name = OF_TYPES.get(type(value)) or NAMES.get(id(value))
        return (constant, (name,)) if name else NotImplemented


def restore(saved: bytes) -> "State":
    state = pickle.loads(saved)
    assert isinstance(state, State)
    state.engine.requests.ids = itertools.count(state.arrived)
    return state


class State:
    """An engine in the middle of its work, and what its requests have been given so far."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.fault: Action | None = None  # what strikes in this step
        self.places = Counter[str]()  # of this step so far, where a fault of each kind can strike
        self.struck: set[int] = set()  # the requests that a fault may end
        self.given: dict[int, int] = {}  # by id of an open request: its tokens so far
        self.arrived = 0
        sizes = (space.pages, space.page_size, space.sequences, space.ahead)
        self.runner = SimulatedRunner(*sizes, hooks=self, drafts=space.drafts > 0)
        context = max(len(prompt) + count for prompt, count in space.requests)
        limits = Limits(
            context, space.budget, space.sequences, space.pages, space.reuse, speculative_tokens=space.drafts
        )
        self.engine = Engine(self.runner, CONFIG, limits, page_size=space.page_size)
        self.runner.writable = partial(is_writable, self.engine.pool)

    def actions(self) -> Iterator[Action]:
        """All actions except steps with faults."""
        if self.arrived < len(self.space.requests):
            yield Action("arrive")
        if self.engine.has_work:
            yield Action("step")
        yield from (Action("cancel", id) for id in self.given if id not in self.engine._aborted)
        yield from (Action("preempt", count + 1) for count in range(len(self.engine.scheduler.running)))

    def faults(self) -> list[Action]:
        """After a step: the faults that could have struck in it."""
        return [Action(name, number) for name, count in self.places.items() for number in range(count)]

    def take(self, action: Action) -> None:
        if action.name == "arrive":
            prompt, count = self.space.requests[self.arrived]
            request = self.engine.requests.from_tokens(prompt, GREEDY)
            request.max_tokens = count
            self.engine.queue(request)
            self.given[request.id] = 0
            self.arrived += 1
        elif action.name == "cancel":
            self.engine.abort(action.number)
        elif action.name == "preempt":
            self.engine.drain()
            for _ in range(min(action.number, len(self.engine.scheduler.running))):
                self.engine.scheduler.preempt_latest()
        else:
            self._step(action)
        check_engine(self.engine, self.runner)

    def _step(self, action: Action) -> None:
        scheduler, in_flight = self.engine.scheduler, self.engine._in_flight
        requests = [*scheduler.running, *scheduler.waiting]
        before = [(request.cache.computed, len(request.tokens)) for request in requests]
        self.fault = action
        self.places.clear()
        for delta in self.engine.step():
            self._check_delta(delta)
        self.fault = None
        self.runner.ill.clear()
        assert not self.engine._failures, "the engine has failed"
        after = [(request.cache.computed, len(request.tokens)) for request in requests if request.id in self.given]
        assert before != after or not requests or in_flight is not None, "a step advanced no request"
        assert all(request.queue.skipped <= PATIENCE + self.space.sequences for request in scheduler.running)

    def _check_delta(self, delta: Delta) -> None:
        id = delta.request_id
        assert id in self.given, "a request goes on after its end"
        prompt, count = self.space.requests[id]
        expected = answer(prompt, count, GREEDY)
        for token in delta.token_ids:
            assert token == expected[self.given[id]], f"request {id}: a wrong token"
            self.given[id] += 1
        reason = delta.finish_reason
        if reason is not None:
            assert reason not in ("stop", "length") or self.given[id] == len(expected), f"request {id} ends too early"
            assert reason != "error" or id in self.struck, f"request {id} ends by a fault of others"
            self.struck.discard(id)
            del self.given[id]

    # Where faults strike.

    def forward(self, batch: Batch) -> None:
        if self._strikes("forward"):
            self.struck |= {request.id for request in batch.requests}
            raise Fault

    def spoil(self, batch: Batch, logits: torch.Tensor, runner: SimulatedRunner) -> torch.Tensor:
        counts = zip(batch.requests, batch.logit_counts, strict=True)
        for row, request in enumerate(request for request, count in counts for _ in range(count)):
            if self._strikes("row"):
                self.struck.add(request.id)
                logits[row, 1] = torch.nan
                runner.ill.add(request.id)  # in this step, drafts may be rejected for it
            if self._strikes("sample"):
                self.struck.add(request.id)
                broken: Any = Unsampled(logits, row, Fault())
                return broken
        return logits

    def stage(self) -> None:
        if self._strikes("stage"):
            raise Fault

    def draft(self) -> None:
        if self._strikes("draft"):
            raise Fault

    def _strikes(self, name: str) -> bool:
        place = Action(name, self.places[name])
        self.places[name] += 1
        return self.fault == place

    # Saving, restoring and comparing.

    def save(self) -> bytes:
        self._forget()
        buffer = io.BytesIO()
        Pickler(buffer, protocol=5).dump(self)
        return buffer.getvalue()

    def _forget(self) -> None:
        """Overwrite the slots that no request may read, so that a read of them is noticed."""
        size, requests = self.space.page_size, [*self.engine.scheduler.running, *self.engine.scheduler.waiting]
        readable = {page * size + offset for page in findable(self.engine.pool).values() for offset in range(size)}
        for request in requests:
            slots = [page * size + offset for page in request.cache.pages for offset in range(size)]
            readable.update(slots[: request.cache.computed])
        for slot in range(len(self.runner.latent)):
            if slot not in readable:
                self.runner.latent[slot] = self.runner.index[slot] = UNWRITTEN
                self.runner.layer[slot] = 0
        self.runner.steps.clear()

    def digest(self) -> bytes:
        """Equal for equal states."""
        engine, pool = self.engine, self.engine.pool
        scheduler = engine.scheduler
        queue = [*scheduler.running, *scheduler.waiting]
        # Pages and prefixes are named by the order in which they come up.
        order = [page for request in queue for page in request.cache.pages] + list(pool._cached) + pool._free[::-1]
        pages = {page: name for name, page in enumerate(dict.fromkeys(order))}
        ids = sorted(
            {request.cache.prefix_id for request in queue}
            | {id for key, (_, id) in pool._entries.items() for id in (key[0], id)}
        )
        prefixes = {id: name for name, id in enumerate(ids)}
        key = (
            self.arrived,
            [
                (
                    r.id,
                    len(r.tokens),
                    r.cache.pending,
                    r.cache.computed,
                    r.cache.drafted,
                    r.cache.cached_pages,
                    r.queue.reusable,
                    r.queue.skipped,
                    prefixes[r.cache.prefix_id],
                    [pages[p] for p in r.cache.pages],
                )
                for r in queue
            ],
            len(scheduler.running),
            [
                (request.id, count, self.runner._made[row], self.runner.drafts[row, :count].tolist())
                for request, (row, count) in scheduler.speculation.made.items()
                if request.id in self.given
            ],
            [pages[page] for page in pool._cached],
            sorted((prefixes[key[0]], key[1], pages[page], prefixes[id]) for key, (page, id) in pool._entries.items()),
            self._describe(engine._in_flight),
            list(engine._aborted),
            [(delta.request_id, delta.token_ids, delta.finish_reason) for delta in engine._deltas],
            self.given,
            self.struck,
        )
        return blake2b(repr(key).encode(), digest_size=12).digest()

    def _describe(self, step: InFlightStep | None) -> object:
        if step is None:
            return None
        batch = step.batch
        ids = [request.id for request in batch.requests]
        sampled = step.read() if step._sampled is not None and step.error is None else None
        whole = (ids, batch.starts, batch.counts, batch.logit_counts, batch.sampled_rows)
        drafts = (batch.draft_counts, batch.draft_rows, batch.draft_tokens, batch.draft_entries, step.drafted)
        return (whole, drafts, step.staged, sampled, step.error is not None, self._describe(step.following))
