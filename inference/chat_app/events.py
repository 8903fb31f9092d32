"""How the page's events fail: with one line in the log, and the traceback at level DEBUG, since it may be a bug of ours."""

import logging
from typing import Any

import gradio as gr

log = logging.getLogger(__name__)


class Page(gr.Blocks):
    """gradio's, which would print a traceback for an event whose values do not fit its components."""

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
