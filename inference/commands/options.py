"""Options that several commands share, and the arguments of `LLM` that they stand for."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...model.config import Precision
from ..service.server_log import LogLevel, configure_logging
from ..text.messages import ChatFormat
from . import loading

if TYPE_CHECKING:
    from ..llm import LLM

# kernels.registry has the same type; importing that takes seconds, and --help should not.
Backend = Literal["auto", "reference", "tile", "cuda"]

DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda. Default: cuda if the machine has a GPU.")
]
BackendOption = Annotated[
    Backend,
    typer.Option("--backend", help="Kernels to prefer. auto: the fastest implementation of each operation."),
]
VerifyHashesOption = Annotated[
    bool,
    typer.Option(
        "--verify-hashes/--no-verify-hashes", help="Compare what is read with the checkpoint's manifest, if it has one."
    ),
]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", help="Least severe messages of the log, which goes to standard error.")
]


@dataclass(frozen=True)
class ModelOptions:
    """The options that name a model and say how to run it."""

    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "--ckpt-path",
            help="Checkpoint directory in the Hugging Face layout. Default: the demo checkpoint of the package.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Configuration file to use instead of the checkpoint's config.json."),
    ] = None
    config_override: Annotated[
        list[str] | None,
        typer.Option(
            "--config-override", metavar="KEY=VALUE", help="One value of the configuration, in JSON. Repeatable."
        ),
    ] = None
    device: DeviceOption = None
    precision: Annotated[
        Precision | None,
        typer.Option(
            "--precision", help="Default: exact (fp32) on a CPU; on a GPU as the checkpoint is stored, fp8 or bf16."
        ),
    ] = None
    backend: BackendOption = "auto"
    tensor_parallel_size: Annotated[
        int | None,
        typer.Option(
            "--tensor-parallel-size", metavar="N", help="Share the model among 2, 4 or 8 processes, each with a GPU."
        ),
    ] = None
    decode_graphs: Annotated[
        bool,
        typer.Option("--decode-graphs/--no-decode-graphs", help="Run decode steps as CUDA graphs, on a GPU in fp8."),
    ] = True
    check_cache: Annotated[
        bool,
        typer.Option(
            "--check-cache",
            help="Verify what the caches hold; a mismatch ends its request with an error and a report.",
        ),
    ] = False
    speculative_tokens: Annotated[
        str,
        typer.Option(
            "--speculative-tokens",
            metavar="K|auto|0",
            help="Tokens that the checkpoint's MTP layer guesses a step, up to 4. auto: as many as pay. The answers stay the same.",
        ),
    ] = "auto"
    verify_hashes: VerifyHashesOption = True
    log_level: LogLevelOption = "warning"

    def llm_arguments(self) -> dict[str, Any]:
        """The keyword arguments of `LLM` that these options stand for. ValueError for an unusable configuration."""
        arguments = dict(vars(self))
        del arguments["model"], arguments["log_level"]
        overrides = loading.read_overrides(arguments.pop("config"), arguments.pop("config_override"))
        drafts = arguments.pop("speculative_tokens")
        arguments["speculative_tokens"] = int(drafts) if drafts.isdecimal() else drafts
        return {**arguments, "config_overrides": overrides}

    def load(self, *, needs_text: bool = False, **more: Any) -> "LLM":
        """Load the model. `more`: further arguments of `load_llm`. ValueError says what is wrong with an option."""
        return loading.load_llm(self.model, needs_text=needs_text, **self.llm_arguments() | more)


@dataclass(frozen=True)
class ServingOptions(ModelOptions):
    """Further options of the commands that answer many requests: how much the engine may hold and do at a time."""

    max_model_len: Annotated[
        int | None,
        typer.Option("--max-model-len", help="Maximum number of tokens of a prompt and its answer together."),
    ] = None
    max_sequences: Annotated[
        int | None, typer.Option("--max-sequences", help="Maximum number of requests that run at a time.")
    ] = None
    max_batch_tokens: Annotated[
        int | None, typer.Option("--max-batch-tokens", help="Maximum number of tokens that one step computes.")
    ] = None
    memory_fraction: Annotated[
        float | None,
        typer.Option(
            "--memory-fraction", help="Fraction of the device's memory for weights, caches and working space."
        ),
    ] = None
    chat_format: Annotated[
        ChatFormat | None,
        typer.Option("--chat-format", help="How conversations are written. Default: as the checkpoint says."),
    ] = None
    log_level: LogLevelOption = "info"


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer needs it: its first parameter, a class of options, becomes one parameter for each option.

    Logging is configured before the command runs.
    """
    signature = inspect.signature(command, eval_str=True)
    first, *rest = signature.parameters.values()
    shared = inspect.signature(first.annotation, eval_str=True).parameters.values()
    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*shared, *rest)]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        options = first.annotation(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        configure_logging(options.log_level)
        command(options, **values)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped
