"""`deepseek-v32 serve`: the HTTP server. Without a key it listens to this machine alone."""

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

# h11 reads this many bytes before it gives up on a header. The guard's own limit is far below it and is answered as an API error.
HEADER_BYTES = 64 * 2**10
KEEP_ALIVE_SECONDS = 30
# Below the 1024 open files that most systems allow, so that clients which connect and stay silent cannot use them up.
MAX_CONNECTIONS = 900


@with_options
def serve(
    options: ServingOptions,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. One that other machines reach needs --api-key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            envvar="DEEPSEEK_V32_API_KEY",
            show_envvar=True,
            help="Key that every route requires: as a bearer token, or as the password that a browser asks for.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="Host name under which clients may address this server. Repeatable."),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat/--no-chat", help="Serve the chat in the browser beside the API.")
    ] = True,
    model_name: Annotated[str | None, typer.Option("--model-name", help="The model's name in the API.")] = None,
    max_queue: Annotated[
        int, typer.Option("--max-queue", min=0, help="Maximum number of waiting requests; further ones get status 503.")
    ] = 128,
    deadline: Annotated[
        float, typer.Option("--deadline", min=1, help="Seconds that a request may take, waiting included.")
    ] = 600.0,
    drain: Annotated[
        int, typer.Option("--drain", min=0, help="Seconds that open requests get to finish when the server stops.")
    ] = 30,
) -> None:
    """Serve OpenAI's API and the chat in the browser."""
    uvicorn = _import_uvicorn()
    from ..api.guard import is_loopback
    from ..server import create_app, host_names
    from ..service.service import Service

    if api_key is not None and not (api_key.isascii() and len(api_key) >= 8 and api_key.isprintable()):
        raise ValueError(f"--api-key has {len(api_key)} characters; expected 8 or more, all of them printable ASCII")
    if not is_loopback(host) and api_key is None:
        raise ValueError(f"--host is {host}, which other machines can reach; expected --api-key with it")
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
    """The uvicorn.Config of this server."""
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
        # Nothing here relies on a client's address, and a proxy header can claim any.
        proxy_headers=False,
        access_log=False,
        log_config=None,
    )


def _announcement(host: str, port: int, chat: bool, has_key: bool) -> str:
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    places = f"chat: {address}/  API: {address}/v1" if chat else f"API: {address}/v1"
    if has_key:
        places += "  Every route requires the key."
    return places


def default_name(model: Path | None) -> str:
    return "deepseek-v3.2-demo" if model is None else model.resolve().name or "deepseek-v3.2"


def leave_a_core(llm: "LLM") -> None:
    """On a CPU, leave one core to HTTP by using one OpenMP thread fewer, unless OMP_NUM_THREADS is set.

    Idle OpenMP threads spin. On two cores, streaming ran at 67 % of the engine's own speed beside two such threads, at 98 % beside
    one.
    """
    import torch

    if llm.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def check_port(host: str, port: int) -> None:
    """ValueError if the port cannot be listened on, so that it is known before the weights are loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"--port is {port}; expected a free one, and another program listens there on {host}"
            ) from error
        raise ValueError(
            f"--host is {host}, --port is {port}; expected an address to listen on: {error.strerror}"
        ) from error


def _import_uvicorn() -> Any:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ValueError(f"the server needs the web extra; run make chat or pip install -e .[web] ({error})") from error
    return uvicorn
