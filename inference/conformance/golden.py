"""Golden answers to the probe's questions, the distances between right implementations, and the answers of known bugs."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

FOLDER = Path(__file__).resolve().parent / "golden"
FLOOR = 0.01  # nats: the least noise of any log-probability
TEN_TIMES = 10.0  # the noise: what a bug has to change in order to count
SAME_ROUNDING = 3.0  # implementations that round alike have the same usual distance, up to this factor

# score: log-probabilities of a given text. decode: greedy answers to prompts that were not asked before. reuse: prompts that begin
# as an earlier one. batch: answers that are decoded together. chat: what the chat format and its parsers make of a conversation.
Group = Literal["score", "decode", "reuse", "batch", "chat"]
ARRAYS = ("logprobs", "rounded", "held_out", "changes")  # of a file
FIELDS = ("text", "reasoning", "calls", "prompt_tokens")  # of a reply, compared as they are


@dataclass(frozen=True)
class Reply:
    """One answer. Where the server says nothing, lists are empty and other fields None."""

    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()  # one for each token; NaN for one that has none
    top: tuple[Mapping[str, float], ...] = ()  # by token: log-probabilities of the likeliest ones
    text: str | None = None  # this and the next without spaces at either end, which some servers cut
    reasoning: str | None = None
    calls: str | None = None  # the calls of functions as JSON text, each a name and an object of arguments
    prompt_tokens: int | None = None


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
    # Other tokens at each place of the answer. They tell more, because a certain right token has log-probability 0.
    others: tuple[tuple[str, ...], ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)  # FIELDS of the answer that all right engines give

    @property
    def size(self) -> int:
        """The number of log-probabilities that are compared."""
        return len(self.answer) + sum(map(len, self.others))


@dataclass(frozen=True)
class KnownBug:
    """A seeded bug as the probe saw it."""

    name: str
    change: np.ndarray  # fp32 [F], change of every log-probability; NaN where the answer had left the right one
    fields: Mapping[str, Mapping[str, Any]]  # by item: those that are not the right answer's
    groups: tuple[str, ...]  # in which its answers are known; other items are not compared


@dataclass(frozen=True)
class Golden:
    """All golden values of the probe. The F log-probabilities are the items', one item after the other."""

    checkpoint: str
    items: tuple[Item, ...]
    logprobs: np.ndarray  # fp32 [F]
    rounded: np.ndarray  # fp32 [3, F], from this engine in bf16, in bf16 with an indexer in FP8, and in fp8
    held_out: np.ndarray  # fp32 [M, F], from M more implementations, which chose no bound of the verdict
    bugs: tuple[KnownBug, ...]
    # Of seeded bugs that change too little to be known: times_the_noise of each.
    left_out: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def noises(self) -> list[np.ndarray]:
        """Largest distances in bf16, and in all precisions, fp32 [F] each: at least an item's usual distance and FLOOR."""
        return [self._noise(self.rounded[:2]), self._noise(self.rounded)]

    def times_the_noise(self, bug: KnownBug) -> float:
        """Return the largest change of a log-probability, in units of the difference between right implementations there."""
        noise = self._noise(np.concatenate([self.rounded, self.held_out]))
        known = np.isfinite(bug.change)
        return float(np.max(np.abs(bug.change[known]) / noise[known], initial=0))

    def counts(self, bug: KnownBug) -> bool:
        """Tell whether a bug changes a golden answer, or a log-probability by more than TEN_TIMES the noise."""
        return bool(bug.fields) or self.times_the_noise(bug) > TEN_TIMES

    def _noise(self, others: np.ndarray) -> np.ndarray:
        """Return the largest distance of others [N, F], fp32 [F]: at least an item's usual distance and FLOOR."""
        distances = np.nan_to_num(np.abs(others - self.logprobs))
        noise = np.maximum(distances.max(0), FLOOR)
        for own in self.slices.values():
            if own.stop > own.start:
                noise[own] = np.maximum(noise[own], np.sqrt(np.mean(distances[:, own] ** 2, 1)).max())
        return noise

    def noise_of(self, logprobs: np.ndarray) -> np.ndarray:
        """fp32 [F]: the least of `noises` that explains the lower quarter of all distances, which few bugs change."""

        def quarter(values: np.ndarray) -> float:
            return float(np.nanquantile(np.abs(values - self.logprobs), 0.25))

        own = quarter(logprobs) if np.isfinite(logprobs).any() else 0.0
        return self.noises[own > SAME_ROUNDING * quarter(self.rounded[0])]

    @property
    def slices(self) -> dict[str, slice]:
        """Each item's place among the F log-probabilities."""
        found, start = {}, 0
        for item in self.items:
            found[item.name] = slice(start, start + item.size)
            start += item.size
        return found


def aligned(item: Item, reply: Reply | None) -> np.ndarray:
    """fp32 [item.size]: a reply's log-probabilities, NaN where it lacks them and after its first wrong token."""
    found = np.full(item.size, np.nan, np.float32)
    if reply is None:
        return found
    place, all_others = 0, item.others or ((),) * len(item.answer)
    for right, others, token, logprob, top in zip(
        item.answer, all_others, reply.tokens, reply.logprobs, reply.top, strict=False
    ):
        is_given = item.group == "score"  # whatever its text is called, the token is the prompt's
        values = [logprob if token == right or is_given else top.get(right, math.nan)]
        values += [top.get(other, math.nan) for other in others]
        found[place : place + len(values)] = values
        place += len(values)
        if token != right and not is_given:
            break
    return found


def fields_of(item: Item, reply: Reply | None) -> dict[str, Any]:
    """Return a reply's values of the item's FIELDS."""
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
        logprobs, rounded, held_out, changes = (stored[key].astype(np.float32) for key in ARRAYS)
    items = tuple(_item(entry) for entry in content["items"])
    size, count = sum(item.size for item in items), len(content["bugs"])
    if logprobs.shape != (size,) or changes.shape != (count, size):
        raise ValueError(f"{arrays} has {logprobs.shape} and {changes.shape} numbers; expected as many as {source} has")
    bugs = tuple(
        KnownBug(entry["name"], change, entry["fields"], tuple(entry["groups"]))
        for entry, change in zip(content["bugs"], changes, strict=True)
    )
    return Golden(content["checkpoint"], items, logprobs, rounded, held_out, bugs, content["left_out"])


def _item(entry: Mapping[str, Any]) -> Item:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    values["others"] = tuple(map(tuple, values["others"]))
    return Item(**values)
