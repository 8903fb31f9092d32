"""Requests in, text out: the engine that serves the model."""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .async_llm import AsyncLLM
    from .chat import ChatCompletion, ChatDelta
    from .llm import LLM
    from .params import Completion, Delta, SamplingParams
    from .text.structured_outputs import StructuredOutputsParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "ChatCompletion",
    "ChatDelta",
    "Completion",
    "Delta",
    "SamplingParams",
    "StructuredOutputsParams",
]

# The library is silent until a program configures logging.
logging.getLogger("deepseek_v32").addHandler(logging.NullHandler())


if not TYPE_CHECKING:  # a type checker knows the names above, and should report others

    def __getattr__(name: str) -> Any:
        """Import on first use, so that `deepseek-v32 --help` does not wait for torch."""
        if name == "LLM":
            from .llm import LLM

            return LLM
        if name == "AsyncLLM":
            from .async_llm import AsyncLLM

            return AsyncLLM
        if name in ("ChatCompletion", "ChatDelta"):
            from . import chat

            return getattr(chat, name)
        if name == "StructuredOutputsParams":
            from .text.structured_outputs import StructuredOutputsParams

            return StructuredOutputsParams
        if name in __all__:
            from . import params

            return getattr(params, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
