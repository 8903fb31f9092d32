"""`deepseek-v32 chat`: the chat in the browser, on the same server as `serve`."""

import threading
import webbrowser
from typing import Annotated

import typer

from .options import ServingOptions, with_options
from .serve import serve

# Loading takes longer than this only for large checkpoints; a page that opens too early can be reloaded.
BROWSER_DELAY = 4.0  # seconds


@with_options
def chat(
    options: ServingOptions,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. One that other machines reach needs --api-key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 7860,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="DEEPSEEK_V32_API_KEY", help="The password that the browser asks for."),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Chat in the browser, and see what the model reads."""
    from ..chat_app.mount import need_gradio

    try:
        need_gradio()
    except ImportError as error:
        raise ValueError(str(error)) from error
    if browser:
        timer = threading.Timer(BROWSER_DELAY, webbrowser.open, [f"http://localhost:{port}/"])
        timer.daemon = True
        timer.start()
    serve(**vars(options), host=host, port=port, api_key=api_key)
