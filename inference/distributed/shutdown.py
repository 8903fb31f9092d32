"""Ends a rank's process: in order, within a time limit, or at once."""

import gc
import os
import signal
import sys
from typing import NoReturn

import torch.distributed as dist

END_SECONDS = 20  # the time that an orderly end may take


def leave_group(single: bool) -> None:
    """Leave the collectives in order. single: the other ranks do not take part, so NCCL must not wait for them.

    CUDA graphs that contain collectives must be freed before: NCCL would wait for them for ever.
    """
    if dist.is_initialized():
        gc.collect()
        if single and dist.get_backend() == "nccl":
            dist.distributed_c10d._abort_process_group()
        else:
            dist.destroy_process_group()


def start_watchdog() -> int:
    """End this process after END_SECONDS even if a collective hangs. Returns the seconds left of an earlier alarm, or 0.

    SIGALRM does this because no thread can start while the interpreter shuts down.
    """
    return signal.alarm(END_SECONDS)


def exit_now(code: int, text: str | None = None) -> NoReturn:
    """End this process without any clean-up: a thread that hangs in a collective cannot be asked to end.

    text: one line for standard error.
    """
    if text is not None:
        print(f"deepseek-v32: {text}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
