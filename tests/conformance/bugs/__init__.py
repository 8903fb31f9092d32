"""Bugs of other implementations, by name, each of which can be seeded in ours."""

from conformance.bugs import chat, engine, rope
from conformance.bugs.bug import Bug

BUGS: dict[str, Bug] = {bug.name: bug for bugs in (rope.BUGS, engine.BUGS, chat.BUGS) for bug in bugs}
