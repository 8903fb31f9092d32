"""Prompts of the command line: read from files, and turned into token ids and sampling parameters."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.errors import ArgumentError
from ...model.checkpoint.files import parse_object
from ..params import SamplingParams
from ..text.errors import describe_error
from ..text.grammar import StructuredOutputsParams
from .files import read_lines, read_small, read_utf8

if TYPE_CHECKING:
    from ..llm import LLM


SOURCES = {name: name for name in ("prompt", "messages", "token_ids")} | {"text": "prompt", "tokens": "token_ids"}
OPTIONS = ("thinking", "tools")
SAMPLING = tuple(field.name for field in fields(SamplingParams))


@dataclass(frozen=True)
class Prompt:
    """One prompt of a file: a text, a conversation or token ids, with its own settings."""

    id: str | int  # as given in the file, or else the prompt's number, from 1
    place: str  # file and line, for error messages
    content: Any  # text, list of messages or list of token ids, as `source` says
    source: str = "prompt"
    thinking: bool | None = None
    tools: list[Any] | None = None
    sampling: dict[str, Any] | None = None  # fields of SamplingParams that replace the command line's
    answer: str | list[Any] | None = None  # to be scored: a text or token ids
    key: str = "prompt"  # that the content has in the file

    def refusal(self, error: BaseException) -> str:
        """Describe an error of this prompt, in one line with its place and its key."""
        # "has": its number of tokens, in which the answer counts, too.
        if isinstance(error, ArgumentError) and error.name == "prompt" and error.verb != "has":
            error = error.renamed(self.key)
        return f"{self.place}: {describe_error(error)}"


def read_prompts(path: Path, more: Sequence[str] = SAMPLING) -> list[Prompt]:
    """Read the objects of a .jsonl file, or the texts of another file. ValueError names the line. more: as in `parse_prompt`."""
    if path.suffix == ".jsonl":
        prompts = [parse_prompt(line, number, f"{path}, line {number}", more) for number, line in read_lines(path)]
    else:
        blocks = "\n".join(line.rstrip() for line in read_utf8(path).splitlines()).split("\n\n")
        texts = [block.strip() for block in blocks if block.strip()]
        prompts = [Prompt(i, f"{path}, prompt {i}", text) for i, text in enumerate(texts, 1)]
    if not prompts:
        raise ValueError(f"{path} has no prompts; expected at least 1")
    places: dict[str, str] = {}
    for prompt in prompts:
        check_id(prompt, places)
    return prompts


def check_id(prompt: Prompt, places: dict[str, str]) -> None:
    """ValueError if an earlier prompt has this id. places: of the earlier ones, by id."""
    other = places.setdefault(json.dumps(prompt.id), prompt.place)
    if other != prompt.place:
        raise ValueError(f"{prompt.place}: id is {prompt.id!r}; expected an id of its own, and {other} has this one")


def read_text(argument: str | None) -> str:
    """Return a command's text: its argument, or standard input for None or "-". Bytes that are not UTF-8 become �."""
    if argument not in (None, "-"):
        return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    return sys.stdin.read().strip()


def read_tools(path: Path) -> list[dict[str, Any]]:
    """Read a JSON file with a list of functions. ValueError for a file that holds anything else."""
    try:
        tools = json.loads(read_small(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--tools is {path}, which is not JSON ({error}); expected a list of functions") from None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError(f"--tools is {path}, which holds {tools!r:.50}; expected a list of functions")
    return tools


def parse_prompt(line: str, number: int, place: str, more: Sequence[str] = SAMPLING) -> Prompt:
    """Read a line of a .jsonl file. more: keys that it may have next to those of a prompt. ValueError, which names the place."""
    try:
        values = parse_object(line.encode())
    except ValueError as error:
        raise ValueError(f"{place}: {error}; expected a JSON object") from None
    known = ("id", *SOURCES, *OPTIONS, *more)
    if unknown := set(values) - set(known):
        raise ValueError(f"{place}: key is {min(unknown)!r}; expected one of {', '.join(known)}")
    given = [source for source in SOURCES if source in values]
    if len(given) != 1:
        raise ValueError(f"{place} has {' and '.join(given) or 'no prompt'}; expected one of {', '.join(SOURCES)}")
    [name] = given
    content, source, answer = values[name], SOURCES[name], values.get("answer")
    kind = str if source == "prompt" else list
    if not isinstance(content, kind):
        raise ValueError(f"{place}: {name} is {content!r:.50}; expected a {kind.__name__}")
    if not isinstance(answer, str | list | None):
        raise ValueError(f"{place}: answer is {answer!r:.50}; expected a str or a list")
    own = values.get("id", number)
    if isinstance(own, bool) or not isinstance(own, str | int):
        raise ValueError(f"{place}: id is {own!r:.50}; expected text or an integer")
    thinking = values.get("thinking")
    if not isinstance(thinking, bool | None):
        raise ValueError(f"{place}: thinking is {thinking!r:.50}; expected true or false")
    sampling = {name: values[name] for name in SAMPLING if name in values}
    try:
        if isinstance(biases := sampling.get("logit_bias"), dict):  # names in JSON are texts
            sampling["logit_bias"] = {
                int(token) if token.isdecimal() else token: bias for token, bias in biases.items()
            }
        if isinstance(form := sampling.get("structured_outputs"), dict):
            sampling["structured_outputs"] = StructuredOutputsParams(**form)
        SamplingParams(**sampling)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {error}") from None
    return Prompt(own, place, content, source, thinking, values.get("tools"), sampling, answer, name)


def plain_tokens(llm: "LLM", prompt: Prompt) -> Sequence[int]:
    """A prompt's token ids, without the chat format around a text. ValueError for a prompt that cannot be encoded."""
    if prompt.source == "messages":
        return llm.chat_token_ids(prompt.content, prompt.thinking or False, prompt.tools)
    return llm.requests.token_ids(prompt.content)


class PromptEncoder:
    """Applies the command line's settings to every prompt; a prompt from a file may replace some of them."""

    def __init__(
        self,
        params: "Callable[[LLM], SamplingParams]",
        thinking: bool,
        system: str | None,
        raw: bool,
        tools: list[dict[str, Any]] | None = None,
    ) -> None:
        self._params, self._thinking, self._system, self._raw, self._tools = params, thinking, system, raw, tools

    def is_thinking(self, prompt: Prompt) -> bool:
        """Tell whether the answer begins with the model's reasoning."""
        if self._raw or prompt.source == "token_ids":
            return False
        return self._thinking if prompt.thinking is None else prompt.thinking

    def tools(self, prompt: Prompt) -> list[dict[str, Any]] | None:
        """Return the functions that the answer may call."""
        return self._tools if prompt.tools is None else prompt.tools

    def encode(self, llm: "LLM", prompt: Prompt) -> "tuple[list[int], SamplingParams]":
        """Return token ids and sampling parameters of a prompt. ValueError for a prompt that cannot be encoded."""
        params = replace(self._params(llm), **(prompt.sampling or {}))
        if prompt.source == "token_ids":
            return prompt.content, params
        if self._raw and prompt.source == "prompt":
            assert llm.tokenizer is not None
            return llm.tokenizer.encode_prompt(prompt.content, parse_special=True), params
        messages = prompt.content
        if prompt.source == "prompt":
            messages = [{"role": "user", "content": prompt.content}]
        if self._system is not None and not any(message["role"] == "system" for message in messages):
            messages = [{"role": "system", "content": self._system}, *messages]
        thinking = self.is_thinking(prompt)
        return llm.chat_token_ids(messages, thinking, self.tools(prompt)), params.for_answer(thinking)
