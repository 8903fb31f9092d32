"""The HTTP server: OpenAI's API for a service, a page for browsers if the caller brings one, and the guard before both.

With several ranks, rank 0 is the only one that listens.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from .api.chat import chat_router
from .api.completions import completions_router
from .api.context import ApiContext
from .api.errors import install_handlers
from .api.guard import LOOPBACK, Guard
from .api.health import Measurements, health_router
from .api.messages_api.route import messages_router
from .api.metrics import Latencies
from .api.open_requests import OpenRequests
from .api.response_api.route import responses_router
from .api.tokens import tokens_router
from .service.server_log import ServerLog
from .service.service import Service

TITLE = "DeepSeek-V3.2 reference inference"


def create_app(
    service: Service,
    *,
    model_name: str = "deepseek-v3.2",
    aliases: Sequence[str] = (),
    api_key: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    origins: Sequence[str] = (),
    mount_page: Callable[[FastAPI, Service, str], None] | None = None,
) -> FastAPI:
    """The ASGI application for a service. Its shutdown stops the service.

    aliases: other names of the model. api_key: if given, every route but the probes' requires it. hosts: names that the Host
    header may have. origins: other sites whose pages may send requests ("*": all). mount_page: adds a page for
    browsers, such as `chat_app.mount.mount_chat`; it is given the application, the service and the model's name.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        reports = asyncio.create_task(server_log.run())
        yield
        reports.cancel()
        await _stop(service)

    # FastAPI's pages for the document would load scripts from other sites; /openapi.json is enough.
    app = FastAPI(title=TITLE, version="1", lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False)
    context = ApiContext(service, model_name, aliases)
    latencies = Latencies()
    server_log = ServerLog(service)
    service.observe(latencies)
    service.observe(server_log)
    install_handlers(app)
    for make_router in (chat_router, completions_router, responses_router, messages_router, tokens_router):
        app.include_router(make_router(context))
    app.include_router(health_router(context, Measurements(service, latencies)))
    app.openapi = lambda: _document(app, api_key is not None, (model_name, *aliases))  # type: ignore[method-assign]
    if mount_page is not None:
        mount_page(app, service, model_name)
    app.state.open_requests = OpenRequests()
    app.add_middleware(app.state.open_requests.middleware)
    app.add_middleware(Guard, hosts=hosts, origins=origins, api_key=api_key)
    if origins:
        methods = ["GET", "POST", "DELETE"]
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=methods,
            allow_headers=["*"],
            expose_headers=["x-request-id", "Retry-After", "Warning"],
        )
    return app


async def _stop(service: Service) -> None:
    """Stop in a daemon thread: the interpreter would wait for a thread of `asyncio.to_thread`, and a step may never end."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        try:
            service.stop()
        finally:
            with suppress(RuntimeError):  # the loop has been closed without waiting
                loop.call_soon_threadsafe(stopped.set)

    threading.Thread(target=stop, name="stop", daemon=True).start()
    await stopped.wait()


def host_names(address: str, allowed: Sequence[str]) -> list[str]:
    """The allowed values of the Host header for a server that listens on `address`: the given names, or else that address.

    On a wildcard address any name is allowed: such a server has a key, which a page that rebinds a name does not know.
    """
    if allowed:
        return [*LOOPBACK, *allowed]
    if address in ("0.0.0.0", "::", ""):
        return ["*"]
    return [*LOOPBACK, f"[{address}]" if ":" in address else address]


def _document(app: FastAPI, with_key: bool, models: Sequence[str]) -> dict[str, Any]:
    """FastAPI's OpenAPI document without the status 422, for which this server answers 400, with the API key and the model's
    names."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for schema in schemas.values():
            for kind in schema.get("properties", {}).get("model", {}).get("anyOf", ()):  # a request's: a text or null
                if kind["type"] == "string":
                    kind["enum"] = list(models)
        if with_key:
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": []}]
        app.openapi_schema = document
    return app.openapi_schema
