"""Calls of C functions that launch kernels, in a shared library given by its path."""

import ctypes
from typing import Any

import torch


class Library:
    """A shared library whose functions take device pointers, sizes and a stream, and return 0 or a CUDA error."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def run(self, name: str, *arguments: torch.Tensor | int | float | None) -> None:
        """Function `name` with these arguments, then the current stream.

        ValueError for a tensor that is not contiguous, RuntimeError for a code other than 0.
        """
        converted: list[Any] = []
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                if not argument.is_contiguous():
                    raise ValueError(f"a tensor of {name} has strides {argument.stride()}; expected a contiguous one")
                converted.append(ctypes.c_void_p(argument.data_ptr()))
            elif argument is None:
                converted.append(ctypes.c_void_p(0))
            else:
                converted.append(ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_int(argument))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = getattr(self._library, name)(*converted, stream)
        if code != 0:
            raise RuntimeError(f"code of {name} is {code}; expected 0")
