"""Options that commands share."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..text.messages import ChatFormat
from . import loading

if TYPE_CHECKING:
    from ..llm import LLM

Precision = Literal["exact", "bf16", "fp8"]
Backend = Literal["auto", "reference", "tile", "cuda"]

DeviceOption = Annotated[str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one.")]
BackendOption = Annotated[
    Backend, typer.Option("--backend", help="Which kernels: the fastest here, or one kind wherever it exists.")
]


@dataclass(frozen=True)
class ModelOptions:
    """The options that name a model and how to run it, on every command that has one."""

    model: Annotated[
        Path | None,
        typer.Option(
            "--model", "--ckpt-path", help="Checkpoint directory in the Hugging Face layout; the demo without it."
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A configuration file to use instead of the checkpoint's config.json."),
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
        typer.Option("--precision", help="exact (fp32) on a CPU; on a GPU as the checkpoint is stored: fp8 or bf16."),
    ] = None
    backend: BackendOption = "auto"
    decode_graphs: Annotated[
        bool, typer.Option("--decode-graphs/--no-decode-graphs", help="Decode as CUDA graphs, on a GPU in fp8.")
    ] = True

    def load(self, *, needs_text: bool = False, **limits: Any) -> "LLM":
        """The model; `limits` are those of `LLM`. ValueError for what cannot be."""
        return loading.load_llm(
            self.model,
            device=self.device,
            precision=self.precision,
            backend=self.backend,
            config=self.config,
            overrides=self.config_override,
            needs_text=needs_text,
            decode_graphs=self.decode_graphs,
            **limits,
        )


@dataclass(frozen=True)
class ServingOptions(ModelOptions):
    """Those, and how much the engine may hold and do, for the commands that answer many requests."""

    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", help="Tokens of prompt and answer together.")
    ] = None
    max_sequences: Annotated[int | None, typer.Option("--max-sequences", help="Requests that run at a time.")] = None
    max_batch_tokens: Annotated[int | None, typer.Option("--max-batch-tokens", help="Tokens a step.")] = None
    memory_fraction: Annotated[
        float | None, typer.Option("--memory-fraction", help="Of the memory, for the model.")
    ] = None
    chat_format: Annotated[
        ChatFormat | None, typer.Option("--chat-format", help="How conversations are written; the checkpoint decides.")
    ] = None

    def load(self, *, needs_text: bool = False, **limits: Any) -> "LLM":
        """As above, with these limits and this chat format."""
        names = ("max_model_len", "max_sequences", "max_batch_tokens", "memory_fraction", "chat_format")
        return super().load(needs_text=needs_text, **{name: getattr(self, name) for name in names}, **limits)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer shall see it: its first parameter, a class of options, becomes one parameter for each of them."""
    signature = inspect.signature(command, eval_str=True)
    first, *rest = signature.parameters.values()
    shared = inspect.signature(first.annotation, eval_str=True).parameters.values()
    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*shared, *rest)]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        chosen = first.annotation(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        command(chosen, **values)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped
