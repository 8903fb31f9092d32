"""/health, /ready, /version and /metrics: whether the server lives, whether it works, and its load in Prometheus's format."""

from collections.abc import Iterator
from importlib import metadata
from itertools import accumulate
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ....model.transformer import is_deterministic
from ..service.service import Service
from .context import ApiContext
from .errors import declared
from .metrics import Latencies
from .responses import Health, Version

# The first step of a large model may compile kernels.
STALLED_SECONDS = 120.0

PREFIX = "deepseek_v32_"  # of measurements
METRICS = {"text/plain": {"schema": {"type": "string"}}}


def package_version() -> str:
    try:
        return metadata.version("deepseek-v32")
    except metadata.PackageNotFoundError:  # only the sources, not installed
        return "unknown"


class Measurements:
    """A collector of one server's counts, state and latencies."""

    def __init__(self, service: Service, latencies: Latencies) -> None:
        self._service, self._latencies = service, latencies
        self._registry = CollectorRegistry()
        self._registry.register(self)

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
            ("failed_requests", "Answers that ended in an error", self._latencies.failures),
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
        for name, what, histogram in (
            ("time_to_first_token_seconds", "From arrival to first token", self._latencies.first),
            ("inter_token_seconds", "Between tokens of an answer", self._latencies.next),
            ("request_seconds", "From arrival to the end of the answer", self._latencies.request),
        ):
            bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            yield HistogramMetricFamily(PREFIX + name, what, buckets, histogram.sum)


def health_router(context: ApiContext, measurements: Measurements) -> APIRouter:
    router = APIRouter(tags=["state"])

    def state(status: str) -> dict[str, Any]:
        stats = context.service.stats()
        return {
            "status": status,
            "running": stats.engine.running,
            "waiting": stats.waiting,
            "seconds_since_step": stats.seconds_since_step,
        }

    @router.get(
        "/health",
        response_model=Health,
        responses={
            **declared(),
            503: {"model": Health, "description": "The engine's thread has died: restart the server"},
        },
    )
    async def health() -> JSONResponse:
        """The process answers, and its engine can."""
        failed = context.service.stats().failed
        return JSONResponse(state("failed" if failed else "alive"), 503 if failed else 200)

    @router.get("/version", response_model=Version, responses=declared())
    async def version() -> JSONResponse:
        """Of this package."""
        return JSONResponse({"version": package_version()})

    @router.get(
        "/ready",
        response_model=Health,
        responses={**declared(), 503: {"model": Health, "description": "No step for too long, or stopping"}},
    )
    async def ready() -> JSONResponse:
        """The engine has made a step recently, or has nothing to do, and new requests are taken."""
        stats = context.service.stats()
        is_ready = context.service.accepting and not stats.failed and stats.seconds_since_step < STALLED_SECONDS
        return JSONResponse(state("ready" if is_ready else "not ready"), 200 if is_ready else 503)

    @router.get("/metrics", response_class=Response, responses={200: {"content": METRICS}, **declared()})
    async def prometheus_metrics() -> Response:
        """For Prometheus."""
        return Response(measurements.text(), media_type=CONTENT_TYPE_LATEST)

    return router
