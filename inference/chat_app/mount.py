"""The chat in the browser, with the inspector, mounted into an HTTP application."""

from typing import TYPE_CHECKING

from ..server.service.service import Service
from . import DEMO_NAME

if TYPE_CHECKING:
    import fastapi
    import gradio

PAGE_TITLE = "DeepSeek-V3.2"
DEMO = "demo model, 19 M parameters"


def build_chat(service: Service, *, model: str = DEMO_NAME) -> "gradio.Blocks":
    """Build the page; `model` is the name that it shows. Without gradio, ImportError says what to install."""
    need_gradio()
    from .handlers import Handlers
    from .page import build_page

    llm = service.llm
    handlers, where = Handlers(service, model), f"{model} · {llm.device.type} · {llm.precision}"
    return build_page(handlers, PAGE_TITLE, f"{DEMO} · {where}" if handlers.is_demo else where)


def mount_chat(app: "fastapi.FastAPI", service: Service, model: str = DEMO_NAME) -> None:
    """Serve the chat under / of an application that has declared its other routes already.

    Only the chat's page and its events are served: no upload, no file, none of gradio's other routes. Errors: see `build_chat`.
    """
    need_gradio()
    import gradio as gr
    from starlette.routing import Mount

    from .page import head, theme
    from .routes import ChatRoute, Policy

    blocks = build_chat(service, model=model)
    gr.mount_gradio_app(
        app, blocks, path="/", footer_links=[], run_history=False, show_error=False, max_file_size=1, ssr_mode=False,
        enable_monitoring=False, theme=theme(), head=head(),
    )  # fmt: skip
    mount = app.router.routes[-1]
    assert isinstance(mount, Mount)
    mount.app = Policy(mount.app)
    app.router.routes[-1] = ChatRoute(mount)


def need_gradio() -> None:
    """Raise ImportError, which says what to install, without gradio."""
    try:
        import gradio  # noqa: F401
        import markdown_it  # noqa: F401
    except ImportError as error:
        raise ImportError(f"the chat needs gradio; run make chat or pip install -e .[web] ({error})") from error
