"""Faults and their reports: one line to the caller of the request that ends, and a traceback to the log."""

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line's --help does not wait for torch
    import torch


class Fault(Exception):
    """One request's own work has failed; its text is the one line that the caller gets."""

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(f"{what} failed: {first_line(error)}")


def first_line(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    except Exception:  # its __str__ raises
        return type(error).__name__


def log_fault(log: logging.Logger, message: str, *arguments: object) -> None:
    """Log the exception that is being handled, as Logger.exception does. A log handler that raises is ignored."""
    try:
        log.exception(message, *arguments)
    except Exception:  # there is nowhere left to report it
        return


def device_fault(device: "torch.device") -> str | None:
    """Return in one line the error that every call to a GPU now gives; None if the GPU works. Waits for the GPU.

    A kernel that reads a wrong address or fails an assertion ends the process's use of it (CUDA: cudaErrorIllegalAddress).
    """
    if device.type == "cuda":
        import torch

        try:
            torch.cuda.synchronize(device)
        except Exception as error:  # of a type that depends on the version of torch
            return first_line(error)
    return None


def check_process(process: int) -> None:
    """RuntimeError in a forked copy of `process`: the threads that compute and those that run an engine are not copied."""
    if os.getpid() != process:
        raise RuntimeError(
            f"LLM is used in process {os.getpid()}, a fork of {process}, which made it; expected the process that made it: "
            "make another in the child, and start the child by spawn"
        )
