"""Prompts of the command line: read from files, and turned into token ids and sampling parameters."""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...model.checkpoint.files import parse_object
from ..params import SamplingParams
from .files import read_utf8

if TYPE_CHECKING:
    from ..llm import LLM


SOURCES = ("prompt", "messages", "token_ids")
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


def read_prompts(path: Path) -> list[Prompt]:
    """Read prompts: one JSON object on each line of a .jsonl file, or texts separated by blank lines in any other file.

    The whole file is checked; ValueError names the file and the line.
    """
    text = read_utf8(path)
    if path.suffix == ".jsonl":
        prompts = [
            _from_json(line, number, f"{path}, line {number}")
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    else:
        blocks = "\n".join(line.rstrip() for line in text.splitlines()).split("\n\n")
        texts = [block.strip() for block in blocks if block.strip()]
        prompts = [Prompt(i, f"{path}, prompt {i}", text) for i, text in enumerate(texts, 1)]
    if not prompts:
        raise ValueError(f"{path} has no prompts; expected at least 1")
    seen: dict[str, str] = {}
    for prompt in prompts:
        other = seen.setdefault(json.dumps(prompt.id), prompt.place)
        if other != prompt.place:
            raise ValueError(
                f"{prompt.place}: id is {prompt.id!r}; expected an id of its own, and {other} has this one"
            )
    return prompts


def read_tools(path: Path) -> list[dict[str, Any]]:
    """Read a JSON file with a list of functions. ValueError for a file that holds anything else."""
    try:
        tools = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--tools is {path}, which is not JSON ({error}); expected a list of functions") from None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError(f"--tools is {path}, which holds {tools!r:.50}; expected a list of functions")
    return tools


def _from_json(line: str, number: int, place: str) -> Prompt:
    try:
        values = parse_object(line.encode())
    except ValueError as error:
        raise ValueError(f"{place}: {error}; expected a JSON object") from None
    unknown = set(values) - {"id", *SOURCES, *OPTIONS, *SAMPLING}
    if unknown:
        raise ValueError(
            f"{place}: key is {min(unknown)!r}; expected one of id, {', '.join(SOURCES + OPTIONS + SAMPLING)}"
        )
    given = [source for source in SOURCES if source in values]
    if len(given) != 1:
        raise ValueError(f"{place} has {' and '.join(given) or 'no prompt'}; expected one of {', '.join(SOURCES)}")
    [source] = given
    kind = str if source == "prompt" else list
    if not isinstance(values[source], kind):
        raise ValueError(f"{place}: {source} is {values[source]!r:.50}; expected a {kind.__name__}")
    own = values.get("id", number)
    if isinstance(own, bool) or not isinstance(own, str | int):
        raise ValueError(f"{place}: id is {own!r:.50}; expected text or an integer")
    sampling = {name: values[name] for name in SAMPLING if name in values}
    try:
        SamplingParams(**sampling)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {error}") from None
    return Prompt(own, place, values[source], source, values.get("thinking"), values.get("tools"), sampling)


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
        self._params = params
        self._thinking = thinking
        self._system = system
        self._raw = raw
        self._tools = tools

    def is_thinking(self, prompt: Prompt) -> bool:
        """Tell whether the answer begins with the model's reasoning."""
        if self._raw or prompt.source == "token_ids":
            return False
        return self._thinking if prompt.thinking is None else bool(prompt.thinking)

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
