"""`deepseek-v32 chat`: the chat in the browser, by the same server as `serve`."""

import threading
import webbrowser
from typing import Annotated

import typer

from .options import ServingOptions, with_options
from .serve import serve


@with_options
def chat(
    options: ServingOptions,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; beyond this machine only with a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 7860,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="DEEPSEEK_V32_API_KEY", help="The password that the browser asks for."),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Chat in the browser, and look at what the model reads."""
    from ..chat_app.mount import need_gradio

    try:
        need_gradio()
    except ImportError as error:
        raise ValueError(str(error)) from error
    if browser:
        # Once the server is up, as a rule; the page that comes too early can be reloaded.
        timer = threading.Timer(4.0, webbrowser.open, [f"http://localhost:{port}/"])
        timer.daemon = True
        timer.start()
    serve(**vars(options), host=host, port=port, api_key=api_key)
