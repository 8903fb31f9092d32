"""The `deepseek-v32` command."""

import importlib.metadata
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ..text.errors import describe_error
from .batch import batch
from .bench import bench
from .convert import convert, manifest
from .doctor import doctor
from .generate import generate
from .probe import probe
from .score import score
from .serve import chat, serve
from .trace import compare, trace

NAMES = 28  # columns; a longer name has a line of its own
OWN = "Options"  # the group of options without a panel; it comes first


class HelpCommand(TyperCommand):
    """A command whose help has the groups of `rich_help_panel`. Its epilog is a list of examples, printed as it is."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, arguments, options by group, and examples."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        for title, rows in self._groups(ctx).items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=NAMES)
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.strip().splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")

    def _groups(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], OWN: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None)
                groups.setdefault("Arguments" if is_argument else panel or OWN, []).append(record)
        return {title: rows for title, rows in groups.items() if rows}


USER_ERROR = 2
# GNU OpenMP's threads spin for milliseconds at the end of each parallel loop. While other programs use the cores, they spin in the
# place of the thread that they wait for: on two busy cores the demo wrote 1.3 to 2.7 tokens/s, and 28 to 107 with it. On two
# idle cores both wrote 100; on 16 idle cores this count costs a third, because waking that many threads takes longer.
SPINS, FEW_CORES = "1000", 4

app = typer.Typer(
    name="deepseek-v32",
    help="DeepSeek-V3.2 reference inference. Every command has --help; without --model it uses the demo that ships inside.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# Each command's examples, in the order of the commands in --help, which shows the first sentence of their description.
EXAMPLES: dict[Callable[..., None], str] = {
    generate: """
    deepseek-v32 generate  # a chat
    deepseek-v32 generate "Where is Lisbon?" --temperature 0
    deepseek-v32 generate --input-file questions.jsonl --output answers.jsonl
    """,
    chat: """
    deepseek-v32 chat
    deepseek-v32 chat --model WEIGHTS --port 9000 --no-browser
    """,
    serve: """
    deepseek-v32 serve --model WEIGHTS --max-model-len 65536
    deepseek-v32 serve --host 0.0.0.0 --api-key "$KEY" --allowed-host gpu7
    curl 127.0.0.1:8000/v1/completions --json '{"prompt": "Hi"}'
    """,
    batch: """
    deepseek-v32 batch requests.jsonl answers.jsonl
    deepseek-v32 batch requests.jsonl answers.jsonl --model WEIGHTS
    echo '{"custom_id":"1","url":"/v1/completions","body":{"prompt":"Hi"}}' \\
      > requests.jsonl
    """,
    score: """
    deepseek-v32 score texts.jsonl --output scores.jsonl
    echo '{"text": "2 + 2 =", "answer": " 4"}' > texts.jsonl
    deepseek-v32 score texts.jsonl --model WEIGHTS --max-batch-tokens 65536
    """,
    convert: """
    deepseek-v32 convert --hf-ckpt-path WEIGHTS --save-path CONVERTED \\
      --n-experts 256 --model-parallel 8
    deepseek-v32 convert --save-path CONVERTED --verify
    """,
    manifest: """
    deepseek-v32 manifest WEIGHTS
    deepseek-v32 manifest WEIGHTS --verify
    """,
    doctor: """
    deepseek-v32 doctor
    deepseek-v32 doctor --model WEIGHTS --tensor-parallel-size 8
    """,
    bench: """
    deepseek-v32 bench --prompt-tokens 4096 --batch 1 --batch 16
    deepseek-v32 bench --synthetic --layers 4 --profile trace.json
    """,
    trace: """
    deepseek-v32 trace --prompt "The capital of France" --out right
    deepseek-v32 trace --model WEIGHTS --tokens ids.json --layers 0,3 --out right
    """,
    compare: """
    deepseek-v32 compare right mine
    deepseek-v32 compare right mine --json
    """,
    probe: """
    deepseek-v32 probe --base-url http://127.0.0.1:8000/v1
    deepseek-v32 probe --base-url http://127.0.0.1:8000/v1 --json
    """,
}
for command, examples in EXAMPLES.items():
    app.command(cls=HelpCommand, epilog=examples)(command)


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
    run(app)


def run(command: Callable[[], object]) -> None:
    """Run a command. Errors that the user can correct end in one line and exit code 2. Under torchrun only rank 0 runs it."""
    job = None
    cores = os.cpu_count() or 1
    is_busy = hasattr(os, "getloadavg") and (cores <= FEW_CORES or os.getloadavg()[0] > cores / 2)  # not on Windows
    if "OMP_WAIT_POLICY" not in os.environ and is_busy:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is imported
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller, as `<&-` does
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  it stays open as long as the program
    try:
        if os.environ.get("WORLD_SIZE", "1") != "1":
            from ..distributed.worker import lead_or_follow

            job = lead_or_follow()  # the other ranks never return: they work for rank 0 until it ends
        command()
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _end_without_reader()  # typer turns BrokenPipeError into an exit
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
