"""Memory that large temporary values took, given back to the system."""

import ctypes
from functools import cache
from typing import Any


def return_memory() -> None:
    """Give freed memory back. The C library keeps it otherwise: 700 MB after a text of 8 MB. Takes up to 30 ms, in which other
    threads run; does nothing where the C library is not GNU's.
    """
    if (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS; TypeError: Windows has no handle of the program itself
        return None
