"""The `deepseek-v32` command."""

import importlib.metadata
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .commands.batch import batch
from .commands.bench import bench
from .commands.chat import chat
from .commands.convert import convert
from .commands.doctor import doctor
from .commands.generate import generate
from .commands.manifest import manifest
from .commands.serve import serve
from .text.errors import describe_error

USER_ERROR = 2

app = typer.Typer(
    name="deepseek-v32",
    help="DeepSeek-V3.2 reference inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(generate)
app.command()(chat)
app.command()(serve)
app.command()(batch)
app.command()(convert)
app.command()(manifest)
app.command()(doctor)
app.command()(bench)


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"deepseek-v32 {importlib.metadata.version('deepseek-v32')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command line."""
    run(app)


def run(command: Callable[[], object]) -> None:
    """Run a command. Errors that the user can correct end in one line and exit code 2. Under torchrun only rank 0 runs it."""
    job = None
    try:
        if os.environ.get("WORLD_SIZE", "1") != "1":
            from .distributed.worker import lead_or_follow

            job = lead_or_follow()  # never returns on the other ranks: they work for rank 0 until it ends
        command()
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _end_without_reader()  # typer has turned it into an exit
    except BrokenPipeError:
        _end_without_reader()
    except (ValueError, OSError) as error:
        if job is not None:
            job.failed = True
        print(f"deepseek-v32: {describe_error(error)}", file=sys.stderr)
        sys.exit(USER_ERROR)


def _end_without_reader() -> None:
    """Exit silently when the reader of our output has left, as in `… | head`; the output that is still buffered is dropped."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
