"""`deepseek-v32 serve` and `chat`: the HTTP server, and the same server with its page opened in a browser."""

import errno
import gc
import os
import resource
import signal
import socket
import sys
import threading
import webbrowser
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ...model.demo import NAME
from .options import ServingOptions, option, with_options

# Loading takes longer than this only for large checkpoints; a page that opens too early can be reloaded.
BROWSER_DELAY = 4.0  # seconds


HostOption = Annotated[str, option("Address to listen on. An address that other machines can reach needs --api-key.")]


@with_options
def serve(
    options: ServingOptions,
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Checkpoint directory, the same as --model.")
    ] = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    api_key: Annotated[
        str | None,
        option(
            "Key that every route requires: as a bearer token, or as the password that a browser asks for.",
            envvar="DEEPSEEK_V32_API_KEY",
            show_envvar=True,
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, option("Host name under which clients may address this server. Repeatable.")
    ] = None,
    chat: Annotated[bool, option("Serve the chat in the browser, too.")] = True,
    served_model_name: Annotated[
        list[str] | None,
        option(
            "The model's name in the API. Repeatable: further ones are aliases.", "--served-model-name", "--model-name"
        ),
    ] = None,
    allowed_origins: Annotated[
        list[str] | None,
        option("Site whose pages may use the API, such as https://example.org; * for any. Repeatable."),
    ] = None,
    max_queue: Annotated[int, option("Maximum number of waiting requests. More get status 503.", min=0)] = 128,
    deadline: Annotated[float, option("Longest time of a request in seconds, with waiting.", min=1)] = 600.0,
    drain: Annotated[int, option("Seconds that open requests get to finish when the server stops.", min=0)] = 30,
    connections_per_peer: Annotated[
        int, option("Maximum number of connections from one address. 0: no limit, for a server behind a proxy.", min=0)
    ] = 256,
) -> None:
    """Serve OpenAI's API and the chat in the browser."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ValueError(f"the server needs the web extra; run make chat or pip install -e .[web] ({error})") from error
    if checkpoint is not None:
        if options.model is not None:
            raise ValueError(f"the model is {checkpoint} and --model {options.model}; expected one of them")
        options = replace(options, model=checkpoint)
    from ..chat_app.mount import mount_chat
    from ..server.api.connections import ConnectionLimits
    from ..server.api.guard import is_loopback
    from ..server.api.http_server import make_server
    from ..server.app import create_app, host_names
    from ..server.service.service import Service

    if api_key is not None and not (api_key.isascii() and len(api_key) >= 8 and api_key.isprintable()):
        raise ValueError(f"--api-key has {len(api_key)} characters; expected 8 or more, all of them printable ASCII")
    if not is_loopback(host) and api_key is None:
        raise ValueError(f"--host is {host}, which other machines can reach; expected --api-key with it")
    for flag, values, is_right, expected in (
        ("--served-model-name", served_model_name, bool, "a name"),
        ("--allowed-host", allowed_host, lambda text: text and "/" not in text, "a host's name, without https://"),
        ("--allowed-origins", allowed_origins, lambda text: text == "*" or "://" in text, "https://example.org, or *"),
    ):
        for value in values or ():
            if not is_right(value):
                raise ValueError(f"{flag} is {value!r}; expected {expected}")
    check_port(host, port)
    chat = chat and find_spec("gradio") is not None
    # HTTP needs a core of a CPU while answers are decoded.
    llm = options.load(spare_core="OMP_NUM_THREADS" not in os.environ)
    name, *aliases = served_model_name or [default_name(options.model)]
    app = create_app(
        Service(llm, max_queue=max_queue, deadline=deadline),
        model_name=name,
        aliases=aliases,
        api_key=api_key,
        hosts=host_names(host, allowed_host or []),
        origins=allowed_origins or [],
        mount_page=mount_chat if chat else None,
    )
    # Loaded objects stay. Otherwise each full garbage collection would visit them and stop all streams for 0.1 s.
    gc.collect()
    gc.freeze()
    port = port or check_port(host, port)
    address = _address(host, port)
    places = f"{f'chat: {address}/  ' if chat else ''}API: {address}/v1"
    needed = "  Every route but /health and /ready requires the key." if api_key is not None else ""
    print(places + needed, file=sys.stderr)
    # Several times the limit, because the system accepts many connections before the first can be refused.
    allow_files(4 * ConnectionLimits.total)
    in_main_thread = threading.current_thread() is threading.main_thread()
    # uvicorn raises SIGTERM again once open requests have ended. Under torchrun rank 0 has a handler, which tells the other ranks.
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    make_server(app, host, port, drain=drain, limits=ConnectionLimits(per_peer=connections_per_peer)).run()


@with_options
def chat(
    options: ServingOptions,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, option("Port to listen on.", min=1, max=65535)] = 7860,
    api_key: Annotated[
        str | None, option("The password that the browser asks for.", envvar="DEEPSEEK_V32_API_KEY")
    ] = None,
    browser: Annotated[bool, option("Open the page in a browser.")] = True,
) -> None:
    """Chat in the browser, and see what the model reads."""
    from ..chat_app.mount import need_gradio

    try:
        need_gradio()
    except ImportError as error:
        raise ValueError(str(error)) from error
    if browser:
        name = "localhost" if host in ("127.0.0.1", "::1", "0.0.0.0", "::", "") else host
        timer = threading.Timer(BROWSER_DELAY, webbrowser.open, [f"{_address(name, port)}/"])
        timer.daemon = True
        timer.start()
    serve(**vars(options), host=host, port=port, api_key=api_key)


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def default_name(model: Path | None) -> str:
    return NAME if model is None else model.resolve().name or "deepseek-v3.2"


def check_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0. ValueError, before the weights are loaded, if the port cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listening:
            return int(listening.getsockname()[1])
    except OSError as error:
        problem = f"--host is {host}, --port is {port}; expected an address to listen on: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            problem = f"--port is {port}; expected a free one, and another program listens there on {host}"
        raise ValueError(problem) from error


def allow_files(count: int) -> None:
    """Let this process have up to `count` open files and connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else min(count, hard), hard)
        )
