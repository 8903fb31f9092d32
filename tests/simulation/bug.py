"""A bug that can be seeded in the product: one of its functions, replaced by a wrong one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch


class Bug(NamedTuple):
    name: str  # of a historic bug: its public thread, repository#number
    owner: Any  # a class of the product, or the module that looks the function up
    attribute: str
    mistake: Callable[[Any], Any]  # from the right function to the wrong one
    instead: str = ""  # what stands for a feature that this engine lacks

    @property
    def what(self) -> str:
        return self.mistake.__doc__ or ""

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """The product has the bug inside this context."""
        is_of_class = isinstance(vars(self.owner)[self.attribute], classmethod)
        wrong = self.mistake(getattr(self.owner, self.attribute))
        with patch.object(self.owner, self.attribute, staticmethod(wrong) if is_of_class else wrong):
            yield


def bug(name: str, owner: Any, attribute: str, instead: str = "") -> Callable[[Callable[[Any], Any]], Bug]:
    """Decorates the mistake, whose docstring says what goes wrong."""
    return lambda mistake: Bug(name, owner, attribute, mistake, instead)
