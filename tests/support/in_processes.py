"""Functions that tests call in other processes, which find them by their module's name."""

import os
import signal


def pid_of(_: int) -> int:
    return os.getpid()


def end_at_three(number: int) -> None:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
