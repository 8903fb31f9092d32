"""The server's measurements in Prometheus's format."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ....model.transformer import is_deterministic
from ...completion import Delta
from ..service.service import Service

PREFIX = "deepseek_v32_"

# Bounds from a decode step of a small model to the prefill of a full context.
FIRST_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120)
NEXT_TOKEN_SECONDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 5)
REQUEST_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)


class Histogram:
    """Counts values by size. The library's own class takes ten times as long per value, and there is one value per token."""

    def __init__(self, name: str, what: str, bounds: tuple[float, ...]) -> None:
        self._name = PREFIX + name
        self._what = what
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Not thread-safe."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self) -> HistogramMetricFamily:
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        return HistogramMetricFamily(self._name, self._what, buckets, self._sum)


class Metrics:
    """One server's metrics: an observer of the service and a collector of its state."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, service: Service) -> None:
        self._service = service
        self._first = Histogram("time_to_first_token_seconds", "From arrival to first token", FIRST_TOKEN_SECONDS)
        self._next = Histogram("inter_token_seconds", "Between tokens of an answer", NEXT_TOKEN_SECONDS)
        self._request = Histogram("request_seconds", "From arrival to the end of the answer", REQUEST_SECONDS)
        self._failures = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def first_token(self, seconds: float) -> None:
        self._first.observe(seconds)

    def next_token(self, seconds: float) -> None:
        self._next.observe(seconds)

    def finished(self, delta: Delta, seconds: float) -> None:
        self._request.observe(seconds)
        if delta.finish_reason == "error":
            self._failures += 1

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        stats = self._service.stats()
        engine = stats.engine
        for name, what, value in (
            ("queue_requests", "Requests that wait for pages or a place in the batch", stats.waiting),
            ("running_requests", "Requests that the steps advance", engine.running),
            ("capacity_requests", "Requests that may be open at a time", stats.capacity),
            ("deterministic", "1 with batch-invariant kernels, else 0", int(is_deterministic(self._service.llm.model))),
            ("seconds_since_step", "Seconds since a step ended; 0 when idle", stats.seconds_since_step),
        ):
            yield GaugeMetricFamily(PREFIX + name, what, value)
        pages = GaugeMetricFamily(PREFIX + "pages", "Pages of the caches, by state", labels=["state"])
        for state, count in (("free", engine.pages_free), ("used", engine.pages_used), ("cached", engine.pages_cached)):
            pages.add_metric([state], count)
        yield pages
        for name, what, value in (
            ("steps", "Steps made", engine.steps),
            ("prompt_tokens", "Prompt tokens of admitted requests", engine.prompt_tokens),
            ("cached_prompt_tokens", "Prompt tokens found in reused pages", engine.cached_tokens),
            ("generated_tokens", "Tokens generated", engine.generated_tokens),
            ("computed_tokens", "Tokens that went through the model", engine.computed_tokens),
            ("preemptions", "Requests sent back to the queue for lack of pages", engine.preemptions),
            ("refused_requests", "Requests refused because the queue was full", stats.refused),
            ("failed_requests", "Answers that ended in an error", self._failures),
        ):
            yield CounterMetricFamily(PREFIX + name, what, value)
        for name, what, counts in (
            ("drafted_tokens", "Guessed tokens that were verified, by place in the step", engine.drafted_tokens),
            ("accepted_tokens", "Guessed tokens that were right, with all before them", engine.accepted_tokens),
        ):
            family = CounterMetricFamily(PREFIX + name, what, labels=["place"])
            for place, count in enumerate(counts, 1):
                family.add_metric([str(place)], count)
            yield family
        finished = CounterMetricFamily(PREFIX + "finished_requests", "Answers by their end", labels=["reason"])
        for reason, count in engine.finished.items():
            finished.add_metric([reason], count)
        yield finished
        for histogram in (self._first, self._next, self._request):
            yield histogram.family()
