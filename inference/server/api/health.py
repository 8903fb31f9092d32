"""/health, /ready and /metrics: whether the server lives, whether it works, and its load."""

from importlib import metadata
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from .context import ApiContext
from .errors import declared
from .metrics import Metrics
from .responses import Health, Version

# The first step of a large model may compile kernels.
STALLED_SECONDS = 120.0

METRICS = {"text/plain": {"schema": {"type": "string"}}}


def package_version() -> str:
    try:
        return metadata.version("deepseek-v32")
    except metadata.PackageNotFoundError:  # the sources alone
        return "unknown"


def health_router(context: ApiContext, metrics: Metrics) -> APIRouter:
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
        is_ready = stats.alive and context.service.accepting and stats.seconds_since_step < STALLED_SECONDS
        return JSONResponse(state("ready" if is_ready else "not ready"), 200 if is_ready else 503)

    @router.get("/metrics", response_class=Response, responses={200: {"content": METRICS}, **declared()})
    async def prometheus_metrics() -> Response:
        """For Prometheus."""
        return Response(metrics.text(), media_type=metrics.content_type)

    return router
