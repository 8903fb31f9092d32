"""Functions of other packages that LLM and Completion offer as methods. `inference/__init__` says where each of them is.

So the core calls them without importing the packages that stand on it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

_modules: dict[str, str] = {}


def attach(**modules: str) -> None:
    """Say which module of the package `inference` has each function. It is imported when the function is first called."""
    _modules.update(modules)


def attached(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f".{_modules[name]}", __package__), name)
    return found
