"""The page: gradio's components, their layout, and the handler of each event."""

import logging
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from ..report.page import inspector_style, script
from .examples import examples
from .handlers import Handlers
from .tools import TOOLS

ABOUT_DEMO = """<p>This small demo knows what you tell it here, and nothing else. Tell it facts in plain English sentences; \
change them; paste a list, a table, a log. Then ask. A fact and a question are ready below: press <b>Send</b>. For a question \
that needs two facts, such as the phone number of a person's landlord, tick <b>Think first</b>.</p>"""
STATIC = Path(__file__).resolve().parent / "static"
SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
MONOSPACE_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")


def theme() -> gr.themes.Base:
    """Use system fonts, so that nothing is downloaded. The colours come from chat.css."""
    return gr.themes.Base(
        primary_hue="indigo",
        neutral_hue="slate",
        radius_size="lg",
        spacing_size="md",
        font=list(SYSTEM_FONTS),
        font_mono=list(MONOSPACE_FONTS),
    )


def head() -> str:
    """Return the style sheets for the page's head, because gradio confines a `css` argument to its own container."""
    return f"<style>{inspector_style()}{_read('chat.css')}</style>"


def build_page(handlers: Handlers, title: str, model: str) -> gr.Blocks:
    """Build the page of one model; `model` is the text in its corner."""
    records, trials = handlers.recordings, handlers.experiments
    limit = handlers.llm.limits.max_model_len
    first_text, first_temperature, first_top_p, first_length = handlers.defaults()
    private: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    unqueued: dict[str, Any] = {**private, "queue": False}
    with Page(title=title, analytics_enabled=False, fill_width=True, fill_height=True) as blocks:
        with gr.Row(elem_id="dsa-app", equal_height=False):
            with gr.Column(elem_id="dsa-side", min_width=0):
                gr.HTML(_read("side.html").replace("MODEL", escape(model)), js_on_load=None, apply_default_css=False)
                with gr.Accordion("Settings", open=False, elem_id="dsa-settings"):
                    system = gr.Textbox("", label="System prompt", lines=2, max_lines=6, elem_id="dsa-system")
                    temperature = gr.Slider(
                        0, 2, first_temperature, step=0.05, label="Temperature", info="0 takes the most probable token"
                    )
                    top_p = gr.Slider(0.05, 1, first_top_p, step=0.01, label="Top p")
                    max_tokens = gr.Slider(1, max(2, limit // 2), first_length, step=1, label="Maximum length, tokens")
                    seed = gr.Textbox("", label="Seed", placeholder="a new one each time", max_lines=1)
                    tools = gr.CheckboxGroup(
                        [tool.title for tool in TOOLS], label="Functions", elem_id="dsa-tools",
                        info="The model may call: the weather in a few cities; one operation, as in “What is 17 * 23?”",
                    )  # fmt: skip
            with gr.Column(elem_id="dsa-main", min_width=0):
                gr.HTML(_read("bar.html"), js_on_load=None, apply_default_css=False)
                log = gr.HTML(
                    handlers.empty(),
                    html_template=_read("log.html").replace("ABOUT", ABOUT_DEMO if handlers.is_demo else ""),
                    js_on_load=_script("store.js", "log.js", "turns.js", "shell.js", library=script("dom.js")),
                    apply_default_css=False,
                    elem_id="dsa-log",
                    examples=[example.summary() for example in examples(limit)],
                )
                with gr.Column(elem_id="dsa-composer", min_width=0):
                    files = gr.HTML(
                        [],
                        html_template='<div class="files"></div>',
                        js_on_load=_script("files.js", library=script("dom.js")),
                        apply_default_css=False,
                        elem_id="dsa-files",
                        server_functions=[_function(handlers.count_tokens)],
                    )
                    text = gr.Textbox(
                        first_text, lines=1, max_lines=8, placeholder="Ask something, or add a text file",
                        label="Message", show_label=False, container=False, elem_id="dsa-text",
                    )  # fmt: skip
                    with gr.Row(elem_id="dsa-actions"):
                        thinking = gr.Checkbox(False, label="Think first", elem_id="dsa-thinking", container=False)
                        gr.HTML(_read("attach.html"), js_on_load=None, apply_default_css=False)
                        send = gr.Button("Send", variant="primary", elem_id="dsa-send", min_width=0)
                        gr.Button("Stop", elem_id="dsa-stop", min_width=0)
                gr.HTML(_read("meter.html"), js_on_load=None, apply_default_css=False)
            with gr.Column(elem_id="dsa-inspector", min_width=0):
                gr.HTML(
                    html_template=_read("inspector.html"),
                    js_on_load=_script("shade.js", "panel.js", library=script()),
                    apply_default_css=False,
                    server_functions=[
                        _function(method)
                        for method in (
                            *(records.header, records.totals, records.selection, records.report),
                            *(trials.mass, trials.replay, trials.progress),
                        )
                    ],
                )
        settings = [thinking, temperature, top_p, max_tokens, seed, tools]
        # "multiple": while an answer is written in one conversation, another one can ask.
        private["trigger_mode"] = unqueued["trigger_mode"] = "multiple"
        queued: dict[str, Any] = {"concurrency_limit": None, **private}
        # The server writes only the log. A value for the text box could overwrite what was typed since.
        sent: list[Any] = [log, text, files, system, *settings]
        events = [
            *(trigger(handlers.send, sent, log, js=_tell("sent"), **queued) for trigger in (text.submit, send.click)),
            log.retry(handlers.retry, [log, system, *settings], log, **queued),
            log.example(handlers.example, settings, log, **queued),
            log.resume(handlers.resume, None, log, **queued),
            log.restore(handlers.restore, None, log, **unqueued),
        ]
        for event in events:
            event.failure(None, js=_tell("failed"), **unqueued)
        log.stop(handlers.stop, None, None, **unqueued)
        # The browser keeps the draft and the settings, and gives them back after a reload.
        kept: list[Any] = [text, system, *settings]
        log.controls(None, kept, kept, js=_tell("controls"), **unqueued)
        gr.on([component.change for component in kept], None, kept, None, js=_tell("settings"), **unqueued)
        blocks.unload(handlers.leave)
    # An answer holds a thread until it ends. With gradio's default, 40, all would be waiting, and the API's routes with them.
    blocks.max_threads = handlers.service.stats().capacity + 40
    blocks.queue(default_concurrency_limit=None, api_open=False)
    return blocks


def _function(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a method in a function that gradio can mark as callable from the page."""

    def call(data: Any) -> Any:
        return method(data)

    call.__name__ = method.__name__
    return call


def _tell(name: str) -> str:
    """JavaScript that tells the page's parts of an event, with its inputs' values, which they may change in place."""
    return f'(...values) => {{ document.dispatchEvent(new CustomEvent("dsa:{name}", {{ detail: values }})); return values; }}'


def _script(*names: str, library: str = "") -> str:
    """Join a script for js_on_load, which waits for the page's parts and then runs `library` and the files in one scope."""
    parts = [_read("ready.js"), library, *(_read(name) for name in names)]
    return "(async () => {\n" + "\n".join(parts) + "\n})();"


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


log = logging.getLogger(__name__)


class Page(gr.Blocks):
    """gradio's page without the tracebacks that it prints for events whose values do not fit its components."""

    async def process_api(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        try:
            return await super().process_api(*arguments, **named)
        except gr.Error:
            raise
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0][:200]
            log.warning("the chat cannot serve an event: %s: %s", type(error).__name__, reason)
            log.debug("the event's traceback", exc_info=error)
            raise gr.Error("The server could not read this.", print_exception=False) from error
