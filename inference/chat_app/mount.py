"""The chat in the browser, with the inspector; `mount_chat` puts it into an HTTP application."""

from typing import TYPE_CHECKING, Any

from ..llm import LLM

if TYPE_CHECKING:
    import fastapi
    import gradio

    from .answering import Backend

TITLE = "DeepSeek-V3.2"


def build_chat(llm: LLM, backend: "Backend | None" = None, *, model: str = "demo") -> "gradio.Blocks":
    """The page. `backend` answers: a Service that others share, or the LLM itself. ImportError says what to install."""
    need_gradio()
    from .handlers import Handlers
    from .page import build_page

    return build_page(Handlers(llm, backend or llm), TITLE, f"{model} · {llm.device.type} · {llm.precision}")


def mount_chat(
    app: "fastapi.FastAPI", service: Any, *, path: str = "/", llm: LLM | None = None, model: str = "demo"
) -> "fastapi.FastAPI":
    """Serve the chat under `path` of an application whose other routes are declared already.

    service: a Service, or an LLM. No upload, no file and nothing but the chat's own page and events is served.
    """
    need_gradio()
    import gradio as gr
    from starlette.routing import Mount

    from .page import head, theme
    from .policy import Policy

    llm = llm or (service if isinstance(service, LLM) else service.llm)
    blocks = build_chat(llm, service, model=model)
    gr.mount_gradio_app(
        app, blocks, path=path, footer_links=[], run_history=False, show_error=False, max_file_size=1, ssr_mode=False,
        enable_monitoring=False, theme=theme(), head=head(),
    )  # fmt: skip
    mount = next(route for route in reversed(app.router.routes) if isinstance(route, Mount))
    mount.app = Policy(mount.app)
    return app


def need_gradio() -> None:
    """ImportError that says what to install."""
    try:
        import gradio  # noqa: F401
        import markdown_it  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the chat needs gradio, which make chat or pip install -e .[web] brings ({error})"
        ) from error
