"""Measurements of each answer: the time until its tokens and its end."""

from bisect import bisect_left

from ...completion import Delta

# Bounds from a decode step of a small model to the prefill of a full context.
FIRST_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120)
NEXT_TOKEN_SECONDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 5)
REQUEST_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)


class Histogram:
    """Counts values by size. prometheus_client's own class takes ten times as long per value, and there is one value per token."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Not thread-safe."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Latencies:
    """An observer of the service."""

    def __init__(self) -> None:
        self.first = Histogram(FIRST_TOKEN_SECONDS)
        self.next = Histogram(NEXT_TOKEN_SECONDS)
        self.request = Histogram(REQUEST_SECONDS)
        self.failures = 0

    def delivers(self, delta: Delta, seconds: float, since_token: float | None) -> None:
        if since_token is not None and delta.token_ids:
            self.next.observe(since_token)
        elif delta.token_ids:
            self.first.observe(seconds)
        if delta.finish_reason is not None:
            self.request.observe(seconds)
            self.failures += delta.finish_reason == "error"
