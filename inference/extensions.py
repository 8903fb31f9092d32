"""Functions of the packages that stand on the core, which LLM and Completion offer as methods. Imported on first use."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

_modules = {
    "trace_prompts": "conformance.tracer",  # LLM.trace
    "write_report": "report.page",  # Completion.save_html
    "notebook_frame": "report.page",  # a Completion in a notebook
    "CacheCheck": "cache_check.check",  # an observer of the runner, with LLM(check_cache=True)
}


def attached(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f".{_modules[name]}", __package__), name)
    return found
