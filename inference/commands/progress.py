"""A progress bar for work that counts bytes: done, total, rate, time left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext


@contextmanager
def progress_bar(description: str = "Loading weights") -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error while the block runs; yields the function to call with (bytes done, total bytes)."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def optional_bar(description: str) -> AbstractContextManager[Callable[[int, int], None] | None]:
    """A progress bar if standard error is a terminal, else nothing."""
    return progress_bar(description) if sys.stderr.isatty() else nullcontext()
