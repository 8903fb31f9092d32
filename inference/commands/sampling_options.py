"""Options of `generate` that say how tokens are sampled."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..params import SamplingParams

SAMPLING = "Sampling"
# Options that are spelt otherwise than the field of SamplingParams whose value they are.
OTHER_NAMES = {"max_tokens": "max_new_tokens"}


@dataclass(frozen=True)
class SamplingOptions:
    """The command line's SamplingParams. None: as the checkpoint's generation_config.json says, or SamplingParams without one."""

    max_new_tokens: Annotated[
        int,
        typer.Option("--max-new-tokens", help="Maximum number of tokens of an answer.", rich_help_panel=SAMPLING),
    ] = 1024
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            help="0 always takes the most probable token. Default: as the checkpoint says, else 1.",
            rich_help_panel=SAMPLING,
        ),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p",
            help="Sample from the most probable tokens that have this probability together. Default: as the checkpoint says, "
            "else 1.",
            rich_help_panel=SAMPLING,
        ),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k", help="Sample from so many of the most probable tokens; 0: from all.", rich_help_panel=SAMPLING
        ),
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(
            "--min-p",
            help="Leave out tokens less probable than this share of the most probable one's.",
            rich_help_panel=SAMPLING,
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        typer.Option(
            "--presence-penalty", help="Subtracted from the logits of tokens in the answer.", rich_help_panel=SAMPLING
        ),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        typer.Option(
            "--frequency-penalty",
            help="As --presence-penalty, for each time that they occur.",
            rich_help_panel=SAMPLING,
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            "--repetition-penalty",
            help="Divides the logits of tokens in prompt or answer; 1: none.",
            rich_help_panel=SAMPLING,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="The same seed samples the same answer.", rich_help_panel=SAMPLING),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop", metavar="TEXT", help="End the answer before this text. Repeatable.", rich_help_panel=SAMPLING
        ),
    ] = None

    def params(self, default: "SamplingParams | None" = None) -> "SamplingParams":
        """`default` with the values that are given here. ValueError names the value and the limit."""
        from ..params import SamplingParams

        given = {name: value for name, value in vars(self).items() if value is not None}
        given["max_tokens"] = given.pop("max_new_tokens")
        return replace(default or SamplingParams(), **given)
