"""Progress bars on standard error: for work that counts bytes, and for files of prompts."""

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


AnswerProgress = Callable[[int, int, int], None]  # (answers, prompt tokens that were read, tokens that were written)


@contextmanager
def answer_bar(total: int, shown: bool = True) -> Iterator[AnswerProgress]:
    """Show how many of `total` prompts are answered, if `shown` and standard error is a terminal; yields the function to call."""
    if not (shown and sys.stderr.isatty()):
        yield lambda answers, read, written: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Answering"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"))
    # Redirected, what is printed to a file on standard output would land in the terminal.
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("", total=total, speed="")

        def show(answers: int, read: int, written: int) -> None:
            seconds = bar.tasks[0].elapsed or 0
            speed = f"{read / seconds:,.0f} tokens/s read, {written / seconds:,.0f} written" if seconds else ""
            bar.update(task, completed=answers, speed=speed)

        yield show
