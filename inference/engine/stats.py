"""Counts and state of an engine, for metrics."""

from dataclasses import dataclass, field, replace

from .limits import MAX_DRAFT_TOKENS
from .scheduling.scheduler import Scheduler


@dataclass
class EngineStats:
    """Counts since the engine was made; running, waiting and pages are the state between two steps."""

    steps: int = 0
    computed_tokens: int = 0  # tokens that went through the model, recomputation included
    prompt_tokens: int = 0  # of admitted requests
    cached_tokens: int = 0  # of those, found in reused pages
    generated_tokens: int = 0
    # By place among a request's drafts of one step: how many were verified, and how many of those were right, with all before them.
    drafted_tokens: list[int] = field(default_factory=lambda: [0] * MAX_DRAFT_TOKENS)
    accepted_tokens: list[int] = field(default_factory=lambda: [0] * MAX_DRAFT_TOKENS)
    preemptions: int = 0
    finished: dict[str, int] = field(default_factory=dict)  # finished requests by finish_reason
    running: int = 0
    waiting: int = 0
    pages_free: int = 0
    pages_used: int = 0
    pages_cached: int = 0

    def snapshot(self, scheduler: Scheduler) -> "EngineStats":
        """A copy, with what the scheduler and its pool count."""
        pool, speculation = scheduler.pool, scheduler.speculation
        return replace(
            self,
            finished=dict(self.finished),
            drafted_tokens=list(speculation.drafted_tokens),
            accepted_tokens=list(speculation.accepted_tokens),
            prompt_tokens=scheduler.prompt_tokens,
            cached_tokens=scheduler.cached_tokens,
            preemptions=scheduler.preemptions,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            pages_free=pool.free,
            pages_used=pool.used,
            pages_cached=pool.cached,
        )
