"""Captures the graphs that `auto` lacks for its trials while nobody waits, so that they cost no answer's time."""

import logging
from itertools import count

from ...params import Request, SamplingParams
from ..engine import Engine
from ..fault import log_fault
from ..limits import AUTO, MAX_DRAFT_TOKENS
from ..scheduling.batch import Batch
from ..step import InFlightStep

log = logging.getLogger(__name__)

_MOST_STEPS = 30  # after each answer; 15 capture both graphs of every number of drafts


class WarmUp:
    """Steps of one request with each number of drafts. It is as long as that of the latest decode and lies on the scratch page.

    A step captures one graph at most, so a request that arrives meanwhile waits for no more than that. Graphs of several requests
    are left to the budget: there are many, and there drafts gain less.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ids = count(-1, -1)  # no other request has them
        self._latest: Batch | None = None  # the step of decodes whose graphs are being captured
        self._left = 0  # so many steps, at most

    @property
    def is_due(self) -> bool:
        """Whether graphs may be missing: `step` has not yet looked, or has found some."""
        engine = self._engine
        if engine.limits.speculative_tokens != AUTO or engine.has_work:
            return False
        return self._left > 0 or engine.scheduler.speculation.latest_decodes is not self._latest

    def step(self) -> bool:
        """Run one step, if a graph is missing, in the thread that steps the engine. To be called when it is due.

        False if it has failed.
        """
        engine = self._engine
        latest = engine.scheduler.speculation.latest_decodes
        assert latest is not None
        if latest is not self._latest:
            self._latest, self._left = latest, _MOST_STEPS
        missing = [drafts for drafts in range(MAX_DRAFT_TOKENS + 1) if engine.runner.must_capture(1, drafts)]
        self._left = self._left - 1 if missing else 0
        if not missing:
            return True
        engine.drain()
        step = InFlightStep(self._batch(latest, missing[0]))
        try:
            step.launch(engine.runner)
            step.sample(engine.runner)
            step.read()
        except Exception:  # as of any other step
            log_fault(log, "a step that captures graphs failed")
            self._left = 0
            return False
        return True

    def _batch(self, latest: Batch, drafts: int) -> Batch:
        """A step like the latest one's first request, which has ended, would have with so many drafts to verify and to make."""
        start, rows = max(latest.starts[0] - drafts, 0), 1 + drafts
        params = SamplingParams(temperature=latest.requests[0].params.temperature)
        request = Request(next(self._ids), (0,) * (start + 1), params, max_tokens=rows, seed=0)
        request.pages = [self._engine.limits.page_count] * self._engine.pool.pages_for(start + rows)  # the scratch page
        return Batch(
            requests=(request,),
            starts=(start,),
            counts=(rows,),
            decodes=1,
            logit_counts=(rows,),
            draft_counts=(drafts,) if drafts else (),
            draft_rows=(0,) if drafts else (),
            draft_tokens=drafts,
        )
