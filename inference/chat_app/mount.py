"""The chat in the browser, with the inspector, mounted into an HTTP application."""

from typing import TYPE_CHECKING

from ..server.service.service import Service

if TYPE_CHECKING:
    import fastapi

PAGE_TITLE = "DeepSeek-V3.2"
DEMO = "demo model, 19 M parameters"


def mount_chat(app: "fastapi.FastAPI", service: Service, model: str) -> None:
    """Serve the chat under / of an application that has declared its other routes already. `model` is the name that it shows.

    Only the chat's page and its events are served: no upload, no file, none of gradio's other routes. Without gradio, ImportError
    says what to install.
    """
    need_gradio()
    import gradio as gr

    from .handlers import Handlers
    from .page import build_page, head, theme
    from .routes import ChatRoute

    handlers, where = Handlers(service, model), f"{model} · {service.llm.device.type} · {service.llm.precision}"
    blocks = build_page(handlers, PAGE_TITLE, f"{DEMO} · {where}" if handlers.is_demo else where)
    gr.mount_gradio_app(
        app, blocks, path="/", footer_links=[], run_history=False, show_error=False, max_file_size=1, ssr_mode=False,
        enable_monitoring=False, theme=theme(), head=head(),
    )  # fmt: skip
    app.router.routes[-1] = ChatRoute(app.router.routes[-1])


def need_gradio() -> None:
    """Raise ImportError, which says what to install, without gradio."""
    try:
        import gradio  # noqa: F401
        import markdown_it  # noqa: F401
    except ImportError as error:
        raise ImportError(f"the chat needs gradio; run make chat or pip install -e .[web] ({error})") from error
