"""Replaces functions of the model on a CPU: the places that look them up by name."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

PACKAGE = "deepseek_v32."


@contextmanager
def replaced(names: str | Sequence[str], make: Callable[[Any], Any]) -> Iterator[None]:
    """Each attribute of the package in `names` is make(what it was), inside the context."""
    with ExitStack() as stack:
        for name in [names] if isinstance(names, str) else names:
            module, _, attribute = (PACKAGE + name).rpartition(".")
            target = _resolve(module)
            stack.enter_context(patch.object(target, attribute, make(getattr(target, attribute))))
        yield


def _resolve(path: str) -> Any:
    """A module, or a class of one."""
    from importlib import import_module

    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)
