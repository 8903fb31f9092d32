"""A bug that other implementations of DeepSeek-V3.2 had, which can be seeded in ours."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

ALL = frozenset({"exact", "bf16", "fp8"})
FP8 = frozenset({"fp8"})
EXACT = frozenset({"exact"})  # smaller than the rounding of the others
TRACE, SCENARIO, HTTP = "trace", "scenario", "http"


@dataclass(frozen=True)
class Bug:
    name: str  # also that of its diagnosis, and of its public issue in REFERENCES
    shows: frozenset[str]  # where: in a "trace" of one pass, in a "scenario" of the engine's steps, over "http"
    precisions: frozenset[str]  # of "exact", "bf16", "fp8": in which it can show
    stage: str | None  # the first stage of a trace that differs, without its layer
    # While the context is open, our model or engine on a CPU has the bug, whenever it was loaded.
    seed: Callable[[], AbstractContextManager[None]]
