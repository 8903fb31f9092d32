"""`deepseek-v32 chat`: the chat in the browser, by the same server as `serve`."""

import threading
import webbrowser
from typing import Annotated

import typer

from .options import BackendOption, ConfigOption, DeviceOption, ModelOption, OverrideOption, PrecisionOption
from .serve import MaxModelLenOption, MemoryFractionOption, serve


def chat(
    model: ModelOption = None,
    config: ConfigOption = None,
    config_override: OverrideOption = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; beyond this machine only with a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 7860,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="DEEPSEEK_V32_API_KEY", help="The password that the browser asks for."),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    max_model_len: MaxModelLenOption = None,
    memory_fraction: MemoryFractionOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    backend: BackendOption = "auto",
) -> None:
    """Chat in the browser, and look at what the model reads."""
    from ..web import need_gradio

    try:
        need_gradio()
    except ImportError as error:
        raise ValueError(str(error)) from error
    if browser:
        # Once the server is up, as a rule; the page that comes too early can be reloaded.
        timer = threading.Timer(4.0, webbrowser.open, [f"http://localhost:{port}/"])
        timer.daemon = True
        timer.start()
    serve(
        model=model,
        config=config,
        config_override=config_override,
        host=host,
        port=port,
        api_key=api_key,
        max_model_len=max_model_len,
        memory_fraction=memory_fraction,
        device=device,
        precision=precision,
        backend=backend,
    )
