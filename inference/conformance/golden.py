"""Golden answers: what a right implementation says to the probe's questions, how far right ones differ, and what known bugs say."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .probe_client import Reply

FOLDER = Path(__file__).resolve().parent / "golden"

# score: log-probabilities of a given text. decode: greedy answers to prompts that were not asked before. reuse: prompts that begin
# as an earlier one. batch: answers that are decoded together. chat: what the chat format and its parsers make of a conversation.
Group = Literal["score", "decode", "reuse", "batch", "chat"]
FIELDS = ("text", "reasoning", "calls", "prompt_tokens")  # of a reply, compared as they are


@dataclass(frozen=True)
class Item:
    """One question and its right answer."""

    name: str
    group: Group
    tokens: tuple[int, ...]  # the prompt; of a chat item, what the chat format makes of its messages
    messages: tuple[Mapping[str, Any], ...] = ()  # the same prompt as a conversation; none for `score`
    tools: tuple[Mapping[str, Any], ...] = ()
    thinking: bool = False
    max_tokens: int = 1
    answer: tuple[str, ...] = ()  # the answer's tokens; for `score`, the texts of the prompt's tokens after the first
    fields: Mapping[str, Any] = field(default_factory=dict)  # FIELDS of the answer that all right engines give


@dataclass(frozen=True)
class KnownBug:
    """A seeded bug as the probe saw it."""

    name: str
    reference: str
    change: np.ndarray  # fp32 [F], change of every log-probability; NaN where the answer had left the right one
    fields: Mapping[str, Mapping[str, Any]]  # by item: those that are not the right answer's
    groups: tuple[str, ...]  # in which its answers are known; other items are not compared


@dataclass(frozen=True)
class Golden:
    """All that the probe compares with. The F log-probabilities are those of the items, one after the other."""

    checkpoint: str
    items: tuple[Item, ...]
    logprobs: np.ndarray  # fp32 [F]
    noise: np.ndarray  # fp32 [F], how far right implementations differ from `logprobs`
    bugs: tuple[KnownBug, ...]

    @property
    def slices(self) -> dict[str, slice]:
        """By item, its place among the F log-probabilities."""
        found, start = {}, 0
        for item in self.items:
            found[item.name] = slice(start, start + len(item.answer))
            start += len(item.answer)
        return found


def aligned(item: Item, reply: Reply | None) -> np.ndarray:
    """fp32 [len(item.answer)]: the log-probabilities that a reply gives the right answer's tokens.

    They are NaN after the first token that is another one: what follows it answers another prompt.
    """
    found = np.full(len(item.answer), np.nan, np.float32)
    if reply is None:
        return found
    for place, (right, token, logprob, top) in enumerate(
        zip(item.answer, reply.tokens, reply.logprobs, reply.top, strict=False)
    ):
        found[place] = logprob if token == right or item.group == "score" else top.get(right, math.nan)
        if token != right and item.group != "score":
            break
    return found


def fields_of(item: Item, reply: Reply | None) -> dict[str, Any]:
    """What a reply says in the item's FIELDS."""
    values = {} if reply is None else {name: getattr(reply, name) for name in FIELDS}
    return {name: value for name, value in values.items() if value is not None and name in item.fields}


def load(name: str, folder: Path = FOLDER) -> Golden:
    """The golden answers of the checkpoint `name`. ValueError if there are none, or if their two files do not belong together."""
    source, arrays = folder / f"{name}.json", folder / f"{name}.npz"
    if not source.exists():
        names = ", ".join(sorted(path.stem for path in folder.glob("*.json")))
        raise ValueError(f"--checkpoint is {name!r:.100}; expected one of {names}")
    content = json.loads(source.read_text(encoding="utf-8"))
    with np.load(arrays, allow_pickle=False) as stored:
        logprobs, noise, changes = (stored[key].astype(np.float32) for key in ("logprobs", "noise", "changes"))
    items = tuple(_item(entry) for entry in content["items"])
    bugs = tuple(
        KnownBug(entry["name"], entry["reference"], change, entry["fields"], tuple(entry["groups"]))
        for entry, change in zip(content["bugs"], changes, strict=True)
    )
    if len(logprobs) != sum(len(item.answer) for item in items):
        raise ValueError(f"{arrays} has {len(logprobs)} log-probabilities; expected as many as {source} has tokens")
    return Golden(content["checkpoint"], items, logprobs, noise, bugs)


def save(golden: Golden, folder: Path, name: str) -> None:
    """Write golden answers to `folder`. Changes are stored in half precision."""
    content = {
        "checkpoint": golden.checkpoint,
        "items": [_entry(item) for item in golden.items],
        "bugs": [{name: value for name, value in vars(bug).items() if name != "change"} for bug in golden.bugs],
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    changes = np.array([bug.change for bug in golden.bugs], np.float16).reshape(len(golden.bugs), len(golden.logprobs))
    np.savez_compressed(
        folder / f"{name}.npz", logprobs=golden.logprobs, noise=golden.noise.astype(np.float16), changes=changes
    )


def _entry(item: Item) -> dict[str, Any]:
    values = dict(vars(item))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _item(entry: Mapping[str, Any]) -> Item:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return Item(**values)
