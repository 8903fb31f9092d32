"""Compiling TileLang kernels: one library per static configuration, kept for the process and in TileLang's own cache on disk."""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import tilelang

TARGET = {
    "kind": "cuda",
    "arch": "sm_90a",
}  # said outright: compiles without a GPU, and WGMMA does not assemble for plain sm_90

# Every kernel, with configurations that it is used in: name -> (factory, arguments of each).
KERNELS: dict[str, tuple[Callable[..., Any], Sequence[tuple[Any, ...]]]] = {}


def tile_kernel(
    *configurations: tuple[Any, ...], pass_configs: dict[str, Any] | None = None, compile_flags: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a function from static sizes to a T.prim_func into a function from static sizes to the compiled kernel.

    The kernel takes all its tensors, outputs included, allocates nothing and runs on torch's current stream. `configurations`
    are argument tuples that the released model uses; the tests compile each of them without a GPU.
    """

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(build)
        @cache
        def compiled(*arguments: Any) -> Any:
            return tilelang.compile(
                build(*arguments), target=TARGET, pass_configs=pass_configs, compile_flags=list(compile_flags)
            )

        KERNELS[f"{build.__module__.rpartition('.')[2]}.{build.__name__}"] = (compiled, configurations)
        return compiled

    return decorate
