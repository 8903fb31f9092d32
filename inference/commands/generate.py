"""`deepseek-v32 generate`: one prompt, a file of prompts, or a chat in the terminal."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..text.answer import parse_assistant
from .answer_file import answer_file
from .asking import Asking
from .chat_loop import ChatLoop
from .files import check_place
from .options import ModelOptions, with_options
from .prompt_file import Prompt, read_prompts
from .terminal import record, show_stream, statistics, stream

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import Completion
    from ..report.recording import Recording


@with_options
def generate(
    options: ModelOptions,
    prompt: Annotated[str | None, typer.Argument(help="A question; without one, standard input or a chat.")] = None,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input-file",
            help='Prompts: .jsonl, a line each such as {"prompt": "…"}, or with messages or token_ids, and if need be id, '
            "temperature, …; else texts with blank lines between.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="JSONL for the answers to --input-file. Those already in it are not asked again."
        ),
    ] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Chat, wherever the input comes from.")] = False,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", help="At most so many tokens an answer.")] = 1024,
    temperature: Annotated[float, typer.Option("--temperature", help="0 takes the likeliest token always.")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw from the likeliest tokens with this mass.")] = 0.95,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed draws the same answer.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="End before this text. Repeatable.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="A system message.")] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Let the model reason before it answers.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it stands, without the chat format.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answers as JSON, one object a line.")] = False,
    inspect: Annotated[
        Path | None,
        typer.Option("--inspect", help="Write what DSA selected for the one answer: a .json file, or a .html page."),
    ] = None,
) -> None:
    """Answer a prompt, a file of prompts, or chat."""
    from ..params import SamplingParams

    params = SamplingParams(
        temperature=temperature, top_p=top_p, max_tokens=max_new_tokens, seed=seed, stop=tuple(stop or ())
    )
    sources = [name for name, given in (("a prompt", prompt), ("--input-file", input_file)) if given is not None]
    sources += ["--interactive"] if interactive else []
    if len(sources) > 1:
        raise ValueError(f"{' and '.join(sources)} do not go together")
    if output is not None and input_file is None:
        raise ValueError("--output goes with --input-file")
    if inspect is not None:
        if inspect.suffix not in (".json", ".html"):
            raise ValueError(f"--inspect {inspect}: a name that ends in .json or .html is wanted")
        check_place("--inspect", inspect)
    chats = interactive or (not sources and sys.stdin.isatty())
    if chats and (as_json or raw):
        raise ValueError(f"{'--json' if as_json else '--raw'} goes with a prompt or --input-file, not with a chat")
    if inspect is not None and (chats or input_file is not None):
        raise ValueError("--inspect goes with one prompt")
    prompts = read_prompts(input_file) if input_file else []
    if not prompts and not chats:
        prompts = [Prompt(1, "prompt", sys.stdin.read().strip() if prompt in (None, "-") else prompt)]

    def load() -> "LLM":
        return options.load(needs_text=chats or any(item.source != "token_ids" for item in prompts))

    if chats:
        ChatLoop(load(), params, thinking, system).run()
        return
    asking = Asking(params, thinking, system, raw)
    if input_file is None:
        answer_one(load(), prompts[0], asking, as_json, inspect)
    elif answer_file(load, prompts, asking, output, as_json or input_file.suffix == ".jsonl"):
        raise typer.Exit(1)


def answer_one(llm: "LLM", prompt: Prompt, asking: Asking, as_json: bool, inspect: Path | None) -> None:
    """Stream one answer to standard output, everything else to standard error; what DSA selected into a file."""
    if not prompt.content.strip():
        raise ValueError("the prompt is empty")
    token_ids, params = asking.request(llm, prompt)
    thinking = asking.thinks(prompt)
    if as_json:
        *_, last = stream(llm, token_ids, params, inspect is not None)
        completion = last.completion
        assert completion is not None
        print(json.dumps(record(completion, parse_assistant(completion.text, thinking)), ensure_ascii=False))
    else:
        _, completion = show_stream(llm, token_ids, params, thinking, sys.stderr, inspect is not None)
    print(statistics(completion), file=sys.stderr)
    if inspect is not None and completion.finish_reason in ("stop", "length"):
        from ..report.page import write_report

        write_report(inspect, [_recording(llm, token_ids, completion)])
        print(f"what DSA selected is in {inspect}", file=sys.stderr)
    if completion.finish_reason in ("abort", "error"):
        raise typer.Exit(130 if completion.finish_reason == "abort" else 1)


def _recording(llm: "LLM", prompt: list[int], completion: "Completion") -> "Recording":
    """What DSA selected for a completion that was made with inspect=True."""
    from ..report.recording import Recording
    from ..text.token_texts import token_texts

    recording = Recording(prompt, llm.config.num_hidden_layers, llm.config.index_topk, budget=math.inf)
    for token, selection in zip(completion.token_ids, completion.selection or (), strict=True):
        recording.add(token, selection)
    if llm.tokenizer is not None:
        recording.label(token_texts(recording.token_ids, llm.tokenizer), llm.tokenizer.special_ids.values())
    return recording
