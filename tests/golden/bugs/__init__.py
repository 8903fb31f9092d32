"""Bugs of other implementations, by name, each of which can be seeded in ours."""

from . import attention, caches, chat, engine, experts, indexer, mtp, rope, selection
from .bug import Bug

_MODULES = (rope, indexer, selection, attention, experts, mtp, caches, engine, chat)
BUGS: dict[str, Bug] = {bug.name: bug for module in _MODULES for bug in module.BUGS}
