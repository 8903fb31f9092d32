"""`deepseek-v32 serve`: the HTTP server, on this machine alone unless a key protects it."""

import errno
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ServingOptions, with_options

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..llm import LLM

# h11 reads this much before it gives up on a header; the guard's own limit answers in the API's shape well below it.
HEADER_BYTES = 64 * 2**10
KEEP_ALIVE_SECONDS = 30
# Below the 1024 open files that most systems allow: those who open connections and say nothing must not use them up.
MAX_CONNECTIONS = 900


@with_options
def serve(
    options: ServingOptions,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; beyond this machine only with a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535)] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            envvar="DEEPSEEK_V32_API_KEY",
            show_envvar=True,
            help="Wanted on every route: as a bearer token, or as the password that a browser asks for.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option("--allowed-host", help="A name that clients may call this server. Repeatable.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat/--no-chat", help="The chat in the browser beside the API.")] = True,
    model_name: Annotated[str | None, typer.Option("--model-name", help="What the API calls the model.")] = None,
    max_queue: Annotated[int, typer.Option("--max-queue", min=0, help="Requests that may wait; more get a 503.")] = 128,
    deadline: Annotated[float, typer.Option("--deadline", min=1, help="Seconds that a request may take.")] = 600.0,
    drain: Annotated[int, typer.Option("--drain", min=0, help="Seconds that open requests get at the end.")] = 30,
) -> None:
    """Serve OpenAI's API and the chat."""
    uvicorn = _import_uvicorn()
    from ..api.guard import is_loopback
    from ..server import create_app, host_names
    from ..service.server_log import configure_logging
    from ..service.service import Service

    if api_key is not None and not (api_key.isascii() and len(api_key) >= 8 and api_key.isprintable()):
        raise ValueError("--api-key: 8 or more printable ASCII characters are wanted")
    if not is_loopback(host) and api_key is None:
        raise ValueError(f"--host {host}: other machines can reach this address; that needs --api-key")
    configure_logging("info")
    check_port(host, port)
    llm = options.load()
    leave_a_core(llm)
    app = create_app(
        Service(llm, max_queue=max_queue, deadline=deadline),
        model_name=model_name or default_name(options.model),
        api_key=api_key,
        hosts=host_names(host, allowed_host or []),
        chat=chat,
    )
    print(_announcement(host, port, chat, api_key is not None), file=sys.stderr)
    uvicorn.Server(server_config(app, host, port, drain)).run()


def server_config(app: "FastAPI", host: str, port: int, drain: int = 30) -> Any:
    """uvicorn.Config as this server wants it."""
    import uvicorn

    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http="h11",
        ws="none",
        h11_max_incomplete_event_size=HEADER_BYTES,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain,
        server_header=False,
        proxy_headers=False,  # nothing here trusts an address, and headers from outside can claim any
        access_log=False,
        log_config=None,
    )


def _announcement(host: str, port: int, chat: bool, has_key: bool) -> str:
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    places = f"chat: {address}/  API: {address}/v1" if chat else f"API: {address}/v1"
    if has_key:
        places += "  Every route wants the key."
    return places


def default_name(model: Path | None) -> str:
    return "deepseek-v3.2-demo" if model is None else model.resolve().name or "deepseek-v3.2"


def leave_a_core(llm: "LLM") -> None:
    """On a CPU the engine's threads leave one core to HTTP, unless OMP_NUM_THREADS says otherwise.

    Idle OpenMP threads spin: on two cores, streaming ran at 67 % of the engine's own speed beside two of them, at 98 % beside one.
    """
    import torch

    if llm.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def check_port(host: str, port: int) -> None:
    """ValueError if nobody can listen there: better now than after the weights are loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"--port {port}: another program listens there on {host}; name another port") from error
        raise ValueError(f"--host {host} --port {port}: {error.strerror}") from error


def _import_uvicorn() -> Any:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ValueError(f"the server needs pip install -e .[web], which make chat does as well ({error})") from error
    return uvicorn
