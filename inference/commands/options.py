"""Options that several commands share, and the arguments of `LLM` that they stand for."""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.models import ArgumentInfo, OptionInfo

from ...kernels.errors import ArgumentError
from ...model.config import Precision
from ..config import EngineConfig
from ..server.service.server_log import LogLevel, configure_logging
from ..text.messages import ChatFormat
from . import loading

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import SamplingParams


def option(help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option of typer's. names: the option's names, if they differ from the parameter's. panel: its group in --help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


sampling_option = partial(option, panel="Sampling")
model_option = partial(option, panel="Model")
hardware_option = partial(option, panel="Hardware")
engine_option = partial(option, panel="Limits of the engine")
diagnosis_option = partial(option, panel="Diagnosis")
# Options whose names differ from the field of SamplingParams that they set.
OTHER_NAMES = {"max_tokens": "max_new_tokens"}


@dataclass(frozen=True)
class SamplingOptions:
    """The command line's SamplingParams. None: the default of generation_config.json, or else of SamplingParams."""

    max_new_tokens: Annotated[
        int | None,
        sampling_option(
            "Maximum number of tokens of an answer. Default: as the checkpoint says, else 1024.",
            "--max-new-tokens",
            "--max-tokens",
        ),
    ] = None
    temperature: Annotated[
        float | None, sampling_option("0 always takes the likeliest token. Default: as the checkpoint says, else 1.")
    ] = None
    top_p: Annotated[
        float | None,
        sampling_option(
            "Sample from the likeliest tokens whose probabilities add up to this. Default: as the checkpoint says, "
            "else 1."
        ),
    ] = None
    top_k: Annotated[int | None, sampling_option("Sample only from the K likeliest tokens; 0: from all.")] = None
    min_p: Annotated[
        float | None,
        sampling_option("Leave out tokens whose probability is below this share of the likeliest token's."),
    ] = None
    presence_penalty: Annotated[
        float | None, sampling_option("Subtracted from the logits of tokens in the answer.")
    ] = None
    frequency_penalty: Annotated[
        float | None, sampling_option("Subtracted once for each occurrence in the answer.")
    ] = None
    repetition_penalty: Annotated[
        float | None, sampling_option("Divides the logits of tokens in prompt or answer; 1: none.")
    ] = None
    seed: Annotated[int | None, sampling_option("The same seed samples the same answer.")] = None
    stop: Annotated[
        list[str] | None, sampling_option("End the answer before this text. Repeatable.", metavar="TEXT")
    ] = None

    def params(self, llm: "LLM | None" = None) -> "SamplingParams":
        """The model's defaults with the values that are given here. ValueError names the value and the limit."""
        from ..params import SamplingParams

        given = {name: value for name, value in vars(self).items() if value is not None}
        default = 1024 if llm is None else llm.requests.max_new_tokens or 1024
        given["max_tokens"] = given.pop("max_new_tokens", default)
        return replace(SamplingParams() if llm is None else llm.default_params, **given)


# kernels.registry has the same type; importing that takes seconds, and --help should not.
Backend = Literal["auto", "reference", "tile", "cuda"]

DeviceOption = Annotated[str | None, hardware_option("cpu or cuda. Default: cuda if the machine has a GPU.")]
BackendOption = Annotated[
    Backend, hardware_option("Kernels to prefer. auto: the fastest implementation of each operation.")
]
PrecisionOption = Annotated[
    Precision | None,
    hardware_option("Default: exact (fp32) on a CPU; on a GPU as the checkpoint is stored, fp8 or bf16."),
]
TensorParallelOption = Annotated[
    int | None, hardware_option("Share the model among 2, 4 or 8 processes, each with a GPU.", metavar="N")
]
VerifyHashesOption = Annotated[
    bool, model_option("Compare the files with the checksums in the checkpoint's manifest, if it has one.")
]
LogLevelOption = Annotated[LogLevel, diagnosis_option("Log messages of this level and above, on standard error.")]


@dataclass(frozen=True)
class ModelOptions:
    """The options that name a model and say how to run it."""

    model: Annotated[
        Path | None,
        model_option(
            "Checkpoint directory in the Hugging Face layout. Default: the demo checkpoint of the package.",
            "--model",
            "--ckpt-path",
        ),
    ] = None
    config: Annotated[
        Path | None, model_option("Configuration file to use instead of the checkpoint's config.json.")
    ] = None
    config_override: Annotated[
        list[str] | None, model_option("One value of the configuration, in JSON. Repeatable.", metavar="KEY=VALUE")
    ] = None
    device: DeviceOption = None
    precision: PrecisionOption = None
    backend: BackendOption = "auto"
    tensor_parallel_size: TensorParallelOption = None
    decode_graphs: Annotated[bool, hardware_option("Run decode steps as CUDA graphs, on a GPU in fp8.")] = True
    check_cache: Annotated[
        bool,
        diagnosis_option(
            "Verify what the caches hold; a mismatch ends its request with an error and a report.", "--check-cache"
        ),
    ] = False
    speculative_tokens: Annotated[
        str,
        engine_option(
            "Tokens that the checkpoint's MTP layer drafts in a step, up to 4; auto chooses. The answers stay the same.",
            metavar="K|auto|0",
        ),
    ] = "auto"
    deterministic: Annotated[
        bool,
        hardware_option(
            "Give a request's logits the same bits whatever else runs and however it is chunked. doctor lists the precisions.",
            "--deterministic",
        ),
    ] = False
    offload: Annotated[
        Literal["experts"] | None,
        hardware_option(
            "experts: leave the routed experts in the checkpoint's files, and read those that a token needs. The answers stay "
            "the same."
        ),
    ] = None
    expert_slots: Annotated[
        int | None, hardware_option("With --offload: experts held in memory, of all layers. Default: what fits.")
    ] = None
    attention: Annotated[
        Literal["data"] | None,
        hardware_option(
            "data: divide sequences among several ranks, whose caches then hold that many times as many tokens. For many "
            "requests at a time. Default: divide heads and tokens."
        ),
    ] = None
    verify_hashes: VerifyHashesOption = True
    log_level: LogLevelOption = "warning"

    def engine_config(self, **more: Any) -> EngineConfig:
        """Build the EngineConfig of these options and of `more`. ValueError for an unusable configuration."""
        arguments = dict(vars(self)) | more
        del arguments["model"], arguments["log_level"]
        overrides = loading.read_overrides(arguments.pop("config"), arguments.pop("config_override"))
        drafts = arguments.pop("speculative_tokens")
        arguments["speculative_tokens"] = int(drafts) if drafts.isdecimal() else drafts
        return EngineConfig(**arguments, config_overrides=overrides)

    def load(self, *, needs_text: bool = False, layers: int | None = None, **more: Any) -> "LLM":
        """Load the model with `load_llm`. `more`: further fields of EngineConfig. ValueError says what is wrong with an option."""
        return loading.load_llm(self.model, self.engine_config(**more), needs_text=needs_text, layers=layers)


@dataclass(frozen=True)
class ServingOptions(ModelOptions):
    """The options of commands that answer many requests: these and the limits of the engine."""

    max_model_len: Annotated[
        int | None, engine_option("Maximum number of tokens of a prompt and its answer together.")
    ] = None
    max_sequences: Annotated[
        int | None, engine_option("Maximum number of requests that run at a time.", "--max-sequences", "--max-num-seqs")
    ] = None
    max_batch_tokens: Annotated[
        int | None,
        engine_option(
            "Maximum number of tokens that one step computes.", "--max-batch-tokens", "--max-num-batched-tokens"
        ),
    ] = None
    memory_fraction: Annotated[
        float | None,
        engine_option(
            "Fraction of the device's memory for weights, caches and working space.",
            "--memory-fraction",
            "--gpu-memory-utilization",
        ),
    ] = None
    chat_format: Annotated[
        ChatFormat | None, model_option("How conversations are written. Default: as the checkpoint says.")
    ] = None
    log_level: LogLevelOption = "info"


@dataclass(frozen=True)
class TerminalOptions(ServingOptions):
    """The options of a command that writes to a terminal. Its log is quiet."""

    log_level: LogLevelOption = "warning"


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn each parameter that is a class of options into one for each option. An ArgumentError names the option."""
    signature = inspect.signature(command, eval_str=True)
    own = signature.parameters.values()
    classes: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}
    fields = {name: inspect.signature(cls, eval_str=True).parameters for name, cls in classes.items()}
    shared = [field for each in fields.values() for field in each.values()]
    rest = [parameter for parameter in own if parameter.name not in classes]
    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*shared, *rest)]
    names: dict[str, tuple[str, ...]] = {}
    for parameter in parameters:
        [info] = [each for each in parameter.annotation.__metadata__ if isinstance(each, OptionInfo | ArgumentInfo)]
        if isinstance(
            info, OptionInfo
        ):  # typer keeps the first name in the field `default`; the real one is the parameter's
            derived = f"--{parameter.name.replace('_', '-')}"
            names[parameter.name] = (
                info.default if isinstance(info.default, str) else derived,
                *(info.param_decls or ()),
            )

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        groups = {name: cls(**{field: values.pop(field) for field in fields[name]}) for name, cls in classes.items()}
        levels = [group.log_level for group in groups.values() if isinstance(group, ModelOptions)]
        configure_logging(*levels[:1])
        try:
            command(**groups, **values)
        except ArgumentError as error:
            options = names.get(OTHER_NAMES.get(error.name, error.name))
            if options is None:
                raise
            given = {argument.partition("=")[0] for argument in sys.argv}
            raise error.renamed(next((each for each in options if each in given), options[0])) from error

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped
