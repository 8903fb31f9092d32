"""Counts and state of an engine, for metrics."""

from dataclasses import dataclass, field


@dataclass
class EngineStats:
    """Counts since the engine was made; running, waiting and pages are the state between two steps."""

    steps: int = 0
    computed_tokens: int = 0  # tokens that went through the model, recomputation included
    prompt_tokens: int = 0  # of admitted requests
    cached_tokens: int = 0  # of those, found in reused pages
    generated_tokens: int = 0
    preemptions: int = 0
    finished: dict[str, int] = field(default_factory=dict)  # finished requests by finish_reason
    running: int = 0
    waiting: int = 0
    pages_free: int = 0
    pages_used: int = 0
    pages_cached: int = 0
