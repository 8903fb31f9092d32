"""Compiles TileLang kernels, one library per static configuration, cached in the process and by TileLang on disk."""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import tilelang

# Its notes on each compilation go to the program's standard output, among the answers.
tilelang.set_log_level("WARNING")

# Explicit, so that kernels compile without a GPU. WGMMA does not assemble for plain sm_90.
TARGET = {"kind": "cuda", "arch": "sm_90a"}

# All kernels: name -> (factory, argument tuples of the configurations that the tests compile).
KERNELS: dict[str, tuple[Callable[..., Any], Sequence[tuple[Any, ...]]]] = {}


def tile_kernel(
    *configurations: tuple[Any, ...], pass_configs: dict[str, Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: from a function that returns a T.prim_func for static sizes to one that returns the compiled kernel.

    The kernel takes all its tensors, also the outputs, allocates nothing and runs on torch's current stream. `configurations` are
    argument tuples that the released model uses; the tests compile each of them without a GPU.
    """

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def compiled(*arguments: Any) -> Any:
            return tilelang.compile(build(*arguments), target=TARGET, pass_configs=pass_configs)

        @wraps(build)
        @cache
        def entry_point(*arguments: Any) -> Any:
            """Return the library's function: TileLang's Python around it takes longer than the launch."""
            return compiled(*arguments).adapter.get_exportable_executable()["main"]

        KERNELS[f"{build.__module__.rpartition('.')[2]}.{build.__name__}"] = (compiled, configurations)
        return entry_point

    return decorate
