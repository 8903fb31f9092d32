"""What a server's answer says, whichever of OpenAI's forms it has."""

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Byte-level BPE (GPT-2): the bytes of printable Latin-1 are their own characters, the others those from U+0100 on, in order.
PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
OTHERS = (byte for byte in range(256) if byte not in PRINTABLE)
BYTES = {chr(byte): byte for byte in PRINTABLE} | {chr(256 + place): byte for place, byte in enumerate(OTHERS)}
SPACE = "Ġ"  # the character of a space


@dataclass(frozen=True)
class Reply:
    """One answer. Its lists are empty, and the rest None, where the server says nothing."""

    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()  # one for each token; NaN for one that has none
    top: tuple[Mapping[str, float], ...] = ()  # by token: log-probabilities of the likeliest ones
    text: str | None = None  # this and the next without spaces at either end, which some servers cut
    reasoning: str | None = None
    calls: str | None = None  # the calls of functions as JSON text, each a name and an object of arguments
    prompt_tokens: int | None = None


def prompt_tokens_of(reply: dict[str, Any]) -> int | None:
    usage = reply.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


_Lists = tuple[tuple[str, ...], tuple[float, ...], tuple[Mapping[str, float], ...]]


def logprobs_of(block: Any) -> _Lists:
    """Tokens, their log-probabilities and the likeliest ones of a choice's `logprobs`. Lists that do not fit together are none.

    A chat completion has one list, plain completions have several; llama.cpp gives the former for both.
    """
    if not isinstance(block, dict):
        return (), (), ()
    return _several_lists(block) if isinstance(block.get("tokens"), list) else _one_list(block.get("content"))


def _several_lists(block: dict[str, Any]) -> _Lists:
    tokens = tuple(str(token) for token in block["tokens"])
    logprobs = tuple(_number(value) for value in block.get("token_logprobs") or ())
    tops = block.get("top_logprobs") or [None] * len(tokens)
    top = tuple({str(t): _number(p) for t, p in each.items()} if isinstance(each, dict) else {} for each in tops)
    return (tokens, logprobs, top) if len(tokens) == len(logprobs) == len(top) else ((), (), ())


def _one_list(entries: Any) -> _Lists:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return (), (), ()
    tokens = [str(entry.get("token")) for entry in entries]
    logprobs = tuple(_number(entry.get("logprob")) for entry in entries)
    tops = [[each for each in entry.get("top_logprobs") or () if isinstance(each, dict)] for entry in entries]
    top = [{str(t.get("token")): _number(t.get("logprob")) for t in each} for each in tops]
    if any(token.startswith(SPACE) for token in (*tokens, *(name for each in top for name in each))):
        # mlx-lm gives the tokenizer's own spelling of tokens, and calls any of the likeliest the answer's.
        top = [{_from_bytes(name): value for name, value in each.items()} for each in top]
        tokens = [
            max(each, key=each.__getitem__, default=_from_bytes(token)) for token, each in zip(tokens, top, strict=True)
        ]
        logprobs = tuple(max(each.values(), default=logprob) for logprob, each in zip(logprobs, top, strict=True))
    return tuple(tokens), logprobs, tuple(top)


def _from_bytes(token: str) -> str:
    """The text of a token in the spelling of byte-level tokenizers, which have a printable character for each byte."""
    with contextlib.suppress(KeyError, UnicodeDecodeError):
        return bytes(BYTES[character] for character in token).decode()
    return token


def calls_of(calls: Any) -> str:
    """Calls as text that is equal for equal calls, whatever their ids and the spacing of their arguments."""
    found = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        found.append([function.get("name"), arguments])
    return json.dumps(found, sort_keys=True) if found else ""
