"""`deepseek-v32 generate`: one prompt, a file of prompts, or a chat in the terminal."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...model.demo import NAME
from ..text.answer import parse_assistant
from .answer_file import answer_file, record
from .files import check_place
from .options import SamplingOptions, TerminalOptions, option, with_options
from .prompts import Prompt, PromptEncoder, read_prompts, read_text, read_tools
from .terminal import show_stream, statistics, stream

if TYPE_CHECKING:
    from ..llm import LLM

DEMO_HINT = "Tell the demo something and ask for it: The van comes at 8:30. When does the van come?"


@with_options
def generate(
    sampling: SamplingOptions,
    options: TerminalOptions,
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt. Without one: standard input, or a chat in a terminal.")
    ] = None,
    input_file: Annotated[
        Path | None,
        option(
            'File of prompts. A .jsonl file has one object in each line: {"prompt": "…"}, or messages or token_ids '
            "instead, and optionally id, temperature, …. Any other file has texts separated by blank lines."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option("JSONL file for the answers to --input-file. Prompts that already have an answer there are skipped."),
    ] = None,
    interactive: Annotated[
        bool, option("Chat, even if the input does not come from a terminal.", "--interactive")
    ] = False,
    system: Annotated[str | None, option("A system message.")] = None,
    tools: Annotated[Path | None, option("JSON file with a list of functions in the shape of OpenAI's API.")] = None,
    thinking: Annotated[bool, option("Let the model reason before it answers.", "--thinking")] = False,
    raw: Annotated[bool, option("Continue the prompt as it is, without the chat format.", "--raw")] = False,
    as_json: Annotated[bool, option("Print each answer as one line of JSON.", "--json")] = False,
    history: Annotated[
        bool,
        option(
            "Remember what is typed in the chat, for the arrow keys.", envvar="DEEPSEEK_V32_HISTORY", show_envvar=True
        ),
    ] = True,
    inspect: Annotated[
        Path | None, option("Write what DSA selected for the answer: a .json file or a .html page.")
    ] = None,
) -> None:
    """Answer a prompt or a file of prompts, or chat."""
    sampling.params()  # refuses a wrong value before the weights are loaded
    sources = [name for name, given in (("a prompt", prompt), ("--input-file", input_file)) if given is not None]
    sources += ["--interactive"] if interactive else []
    if len(sources) > 1:
        raise ValueError(f"the input is {' and '.join(sources)}; expected one of them")
    if output is not None and input_file is None:
        raise ValueError(f"--output is {output}; expected only together with --input-file")
    if inspect is not None:
        if inspect.suffix not in (".json", ".html"):
            raise ValueError(f"--inspect is {inspect}; expected a name that ends in .json or .html")
        check_place("--inspect", inspect)
    is_chat = interactive or (not sources and sys.stdin.isatty())
    if is_chat and (as_json or raw):
        raise ValueError(f"{'--json' if as_json else '--raw'} is given; expected only with a prompt or --input-file")
    if inspect is not None and (is_chat or input_file is not None):
        raise ValueError(f"--inspect is {inspect}; expected only with a single prompt")
    if raw and input_file is None:
        for name, given in (("--system", system), ("--tools", tools), ("--thinking", thinking or None)):
            if given is not None:
                raise ValueError(f"{name} is given; expected without --raw, which leaves the chat format out")
    functions = None if tools is None else read_tools(tools)
    prompts = read_prompts(input_file) if input_file else []
    if not prompts and not is_chat:
        prompts = [Prompt(1, "prompt", read_text(prompt))]
    if not is_chat and input_file is None and not prompts[0].content.strip():
        raise ValueError("the prompt is empty; expected a text")

    def load() -> "LLM":
        return options.load(needs_text=is_chat or any(item.source != "token_ids" for item in prompts))

    if is_chat:
        from .chat_loop import ChatLoop, make_input  # prompt_toolkit takes a tenth of a second to import
        from .chat_session import ChatSession

        llm = load()
        params = sampling.params(llm)
        session = ChatSession(llm, params, thinking, system, functions)
        ChatLoop(session, make_input(history), DEMO_HINT if llm.checkpoint == NAME else "").run()
        return
    encoder = PromptEncoder(sampling.params, thinking, system, raw, functions)
    if input_file is None:
        answer_one(load(), prompts[0], encoder, as_json, inspect)
    elif answer_file(load, prompts, encoder, output, as_json or input_file.suffix == ".jsonl"):
        raise typer.Exit(1)


def answer_one(llm: "LLM", prompt: Prompt, encoder: PromptEncoder, as_json: bool, inspect: Path | None) -> None:
    """Stream one answer to standard output and everything else to standard error. `inspect`: file for what DSA selected."""
    token_ids, params = encoder.encode(llm, prompt)
    thinking = encoder.is_thinking(prompt)
    if as_json:
        *_, last = stream(llm, token_ids, params, inspect is not None)
        completion = last.completion
        assert completion is not None
        answer = parse_assistant(completion.text, thinking, encoder.tools(prompt), completion.is_cut)
        print(json.dumps(record(completion, answer), ensure_ascii=False))
    else:
        recorded, functions = inspect is not None, encoder.tools(prompt)
        _, completion = show_stream(llm, token_ids, params, thinking, sys.stderr, recorded, functions)
    print(statistics(completion), file=sys.stderr)
    if inspect is not None and completion.finish_reason in ("stop", "length"):
        from ..report.page import write_report

        completion = llm.recorder.with_recording(token_ids, completion, params)
        llm.measure(completion)
        assert completion.recording is not None
        write_report(inspect, completion.recording)
        print(f"what DSA selected is in {inspect}", file=sys.stderr)
    if completion.finish_reason in ("abort", "error"):
        raise typer.Exit(130 if completion.finish_reason == "abort" else 1)
