"""Checks `LLM`'s arguments: one prompt or conversation or several, and parameters for all of them or for each."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeGuard

import numpy as np
import torch

from ..kernels.errors import ArgumentError
from .params import SamplingParams
from .text.errors import check_text


class TextPrompt(TypedDict):
    """A text, as vLLM writes it."""

    prompt: str


class TokensPrompt(TypedDict):
    """Token ids, as vLLM writes them."""

    prompt_token_ids: Sequence[int]


Prompt = str | Sequence[int] | TextPrompt | TokensPrompt
Conversation = Sequence[Mapping[str, Any]]  # of {"role": …, "content": …} messages in OpenAI's shape

_A_PROMPT = 'a text, token ids, {"prompt": text} or {"prompt_token_ids": ids}'
_A_CONVERSATION = 'a list of {"role": …, "content": …} messages'


def each_prompt(prompts: Any) -> list[str | Sequence[int]]:
    """The text or the token ids of every prompt. Token ids are not looked at, but for the first. ValueError for another type."""
    if isinstance(prompts, str | Mapping):
        return [prompt_content("prompts", prompts)]
    if not _is_list(prompts):
        raise ArgumentError("prompts", f"{prompts!r:.100}", f"{_A_PROMPT}, or a list of prompts")
    if len(prompts) and not _is_list(prompts[0]) and not isinstance(prompts[0], str | Mapping):
        if prompts[0] is None:
            raise ArgumentError("prompts[0]", None, _A_PROMPT)
        return [prompts]  # token ids
    return [prompt_content(f"prompts[{i}]", prompt) for i, prompt in enumerate(prompts)]


def each_params(params: Any, default: SamplingParams, count: int) -> list[SamplingParams]:
    """The parameters of each of `count` prompts. ValueError for another type or number of them."""
    if params is None or isinstance(params, SamplingParams):
        return [default if params is None else params] * count
    if not isinstance(params, Sequence) or not all(isinstance(each, SamplingParams) for each in params):
        raise ArgumentError("params", f"{params!r:.100}", "SamplingParams, or a list of them")
    if len(params) != count:
        raise ArgumentError("params", f"{len(params)} entries", f"one, or one for each of the {count} prompts", "has")
    return list(params)


def is_conversation(messages: Any) -> TypeGuard[Conversation]:
    """True for one conversation, False for several. ValueError for another type."""
    if _is_list(messages) and all(isinstance(each, Mapping) for each in messages):
        return True
    if _is_list(messages) and all(_is_list(each) for each in messages):
        return False
    raise ArgumentError("messages", f"{messages!r:.100}", f"{_A_CONVERSATION}, or a list of such lists")


def prompt_content(name: str, prompt: Any) -> str | Sequence[int]:
    """The text or the token ids of a prompt. ValueError, which names it, for another type."""
    content = prompt
    if isinstance(prompt, Mapping):
        if set(prompt) not in ({"prompt"}, {"prompt_token_ids"}):
            keys = ", ".join(map(str, prompt)) or "no key"
            raise ArgumentError(name, f"{keys:.100}", "prompt or prompt_token_ids, and nothing else", "has")
        [(key, content)] = prompt.items()
        name = f"{name}[{key!r}]"
        if isinstance(content, str) != (key == "prompt"):
            raise ArgumentError(name, f"{content!r:.100}", "a text" if key == "prompt" else "token ids")
    if isinstance(content, str):
        check_text(name, content)
        return content
    if _is_list(content):
        return content
    raise ArgumentError(name, f"{content!r:.100}", _A_PROMPT)


def check_answer(answer: Any) -> None:
    """Raise ValueError if this is not a list with a token id or more."""
    if not _is_list(answer):
        raise ArgumentError("answer", f"{answer!r:.100}", "a list of token ids")
    if not len(answer):
        raise ArgumentError("answer", "empty", "at least 1 token")


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Tell whether this is a list of any kind; texts, and bytes, are none."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
