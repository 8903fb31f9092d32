"""Requests in, text out: the engine that serves the model."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .chat import ChatCompletion, ChatDelta
    from .completion import Completion, Delta
    from .llm import LLM
    from .params import SamplingParams
    from .server.async_llm import AsyncLLM
    from .text.grammar import StructuredOutputsParams

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
    _MODULES = {
        "LLM": "llm",
        "AsyncLLM": "server.async_llm",
        "ChatCompletion": "chat",
        "ChatDelta": "chat",
        "Completion": "completion",
        "Delta": "completion",
        "SamplingParams": "params",
        "StructuredOutputsParams": "text.grammar",
    }

    def __getattr__(name: str) -> Any:
        """Import on first use, so that `deepseek-v32 --help` does not wait for torch."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
