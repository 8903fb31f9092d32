"""Events that reach the engine's thread from outside, where they can: other threads run, and faults strike."""

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from deepseek_v32.inference.engine.scheduling.batch import Batch
from simulation.model import EOS, TEXT
from simulation.runner import UNWRITTEN, SimulatedRunner


class Fault(RuntimeError):
    """An injected failure; its text has its number."""


class Unsampled:
    """Logits with one row that cannot be sampled, on its own or with others."""

    def __init__(self, logits: torch.Tensor, row: int, fault: Fault) -> None:
        self._logits, self._row, self._fault = logits, row, fault

    def __getitem__(self, rows: slice) -> Any:
        some = range(len(self._logits))[rows]
        return Unsampled(self._logits, self._row, self._fault) if self._row in some else self._logits[rows]

    def __len__(self) -> int:
        return len(self._logits)

    def amax(self, dim: int) -> torch.Tensor:
        raise self._fault

    log_softmax = amax


class Fate:
    """The hooks of rank 0's runner, and a tokenizer. Each event waits until the thread reaches the right place."""

    def __init__(self, perform: Callable[[str, dict[str, Any]], None], compute: Callable[[int], None]) -> None:
        """perform: does one of the schedule's operations. compute: lets the time pass that this many tokens take."""
        self.in_turn = False  # whether the engine's thread runs: outside of its turns nothing happens
        # By number of the fault: the requests that it may end. None: any one request.
        self.struck: list[set[int] | None] = []
        self.unseen = 0  # ends that an observer may have missed, because it failed
        self.corrupt = True  # whether a step with a NaN leaves garbage in rank 0's caches
        self._perform = perform
        self._compute = compute
        self._armed: list[tuple[str, int]] = []
        self._meanwhile: deque[tuple[int, str, dict[str, Any]]] = deque()
        self._points = 0  # since the last of those

    def arm(self, where: str, row: int) -> None:
        self._armed.append((where, row))

    def interleave(self, points: int, operation: str, arguments: dict[str, Any]) -> None:
        self._meanwhile.append((points, operation, arguments))

    def clear(self) -> None:
        """Nothing more happens."""
        self._armed.clear()
        self._meanwhile.clear()

    # The runner's hooks.

    def forward(self, batch: Batch) -> tuple[int, Fault] | None:
        """Returns an entry of the batch, and the fault that ends the pass in the middle of it: its experts cannot be read."""
        self.others_run()
        if self._strikes("forward") is not None:
            raise self._fault({request.id for request in batch.requests})
        self._compute(batch.tokens)
        if (row := self._strikes("stall")) is not None:  # a read that takes its time
            self._perform("advance", {"seconds": (0.02, 0.5, 20.0, 150.0)[row]})
        row = self._strikes("experts")
        return None if row is None else (row % len(batch.requests), self._fault({each.id for each in batch.requests}))

    def spoil(self, batch: Batch, logits: torch.Tensor, runner: SimulatedRunner) -> torch.Tensor:
        self.others_run()
        entries = [i for i, count in enumerate(batch.logit_counts) for _ in range(count)]  # by row
        if entries and (row := self._strikes("row")) is not None:
            logits[row % len(logits), 1] = torch.nan
            self._spoil_cache(batch, entries[row % len(logits)], runner)
        if entries and (row := self._strikes("sample")) is not None:
            fault = self._fault({batch.requests[entries[row % len(logits)]].id})
            broken: Any = Unsampled(logits, row % len(logits), fault)
            return broken
        return logits

    def stage(self) -> None:
        self.point("stage")  # the next step takes its tokens from the host

    def draft(self) -> None:
        self.point("draft")  # the step's requests go on without drafts

    def _spoil_cache(self, batch: Batch, chosen: int, runner: SimulatedRunner) -> None:
        """Make the last entry that the step has written garbage, the cause of the NaN. No other request may ever read it."""
        request, last = batch.requests[chosen], batch.starts[chosen] + batch.counts[chosen] - 1
        runner.ill.add(request.id)
        if self.corrupt:
            slot = request.cache.pages[last // runner.page_size] * runner.page_size + last % runner.page_size
            runner.latent[slot] = runner.index[slot] = UNWRITTEN

    # The tokenizer.

    eos_ids = (EOS,)
    is_byte_level = True
    special_ids: ClassVar[dict[str, int]] = {}

    def token_bytes(self, token: int) -> bytes:
        self.others_run()
        if self._strikes("text") is not None:
            raise self._fault(None)
        return TEXT[token].encode()

    # Everywhere.

    def point(self, where: str) -> None:
        """A fault here ends no request."""
        self.others_run()
        if self._strikes(where) is not None:
            self.unseen += where == "observer"
            raise self._fault(set())

    def others_run(self) -> None:
        """Other threads may run here."""
        if not self.in_turn or not self._meanwhile:
            return
        self._points += 1
        points, operation, arguments = self._meanwhile[0]
        if self._points >= points:
            self._meanwhile.popleft()
            self._points = 0
            self.in_turn = False  # no further threads run inside
            self._perform(operation, arguments)
            self.in_turn = True

    def _strikes(self, where: str) -> int | None:
        """The row in which a fault strikes, or None."""
        row = next((row for place, row in self._armed if place == where), None) if self.in_turn else None
        if row is not None:
            self._armed.remove((where, row))
        return row

    def _fault(self, requests: set[int] | None) -> Fault:
        self.struck.append(requests)
        return Fault(f"fault {len(self.struck) - 1};")
