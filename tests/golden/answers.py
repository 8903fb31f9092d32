"""The contents of the golden files: the right answers, their noise, and what seeded bugs change."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trace_transformers import load as load_transformers

from deepseek_v32.inference.conformance.golden import FIELDS, Golden, Item, KnownBug, aligned, fields_of
from deepseek_v32.inference.conformance.probe import Observation
from deepseek_v32.inference.text.tokenizer import Tokenizer

from .bugs import BUGS
from .bugs.bug import Bug
from .right_engines import FP8_INDEXER, VARIANTS, transformers_logprobs
from .servers import observe

OTHERS = 3  # alternatives to each token of an answer
# The text of every token that is part of a character: no one can tell which one is meant. Completions give its number instead.
BROKEN, NUMBERED = "\ufffd", "token_id:"
CHAT = "chat-"  # how the names of those bugs begin that change nothing but the chat format and its parsers
TRANSFORMERS = "bf16, transformers"
# The most precise first. Engines that run a model in bf16 have an indexer in FP8 all the same.
ROUNDED = ("bf16", FP8_INDEXER, "fp8")
RIGHT = (*ROUNDED, *(name for name in VARIANTS if name not in ROUNDED), TRANSFORMERS)


def answered(item: Item, seen: Observation) -> Item:
    """The item with the right answer."""
    reply = seen.replies[item.name]
    fields = {name: getattr(reply, name) for name in FIELDS if getattr(reply, name) is not None}
    if item.group == "score":
        return replace(item, answer=reply.tokens)
    others = []
    for token, top in zip(reply.tokens, reply.top, strict=True):
        likeliest = sorted(top, key=lambda other: -top[other])
        beside = [other for other in likeliest if other != token][:OTHERS]
        others.append(tuple(other for other in beside if BROKEN not in other and not other.startswith(NUMBERED)))
    return replace(item, answer=reply.tokens, others=tuple(others), fields=fields)


def stable(item: Item, seen: Sequence[Observation]) -> Item:
    """The item without fields that rounding changes."""
    replies = [each.replies[item.name] for each in seen if item.name in each.replies]
    kept = {name: value for name, value in item.fields.items() if all(getattr(r, name) == value for r in replies)}
    return replace(item, fields=kept)


def logprobs_of(items: Sequence[Item], seen: Observation) -> np.ndarray:
    return np.concatenate([aligned(item, seen.replies.get(item.name)) for item in items])


def groups_of(bug: Bug, of_forward_passes: tuple[str, ...]) -> tuple[str, ...]:
    """The groups of questions that a bug is asked."""
    if bug.name.startswith(CHAT):
        return ("chat",)
    return of_forward_passes if bug.stage else ("score", "decode", "reuse", "batch")


def precision_of(bug: Bug) -> str:
    """The most exact precision in which a bug shows."""
    return next(each for each in ("exact", "bf16", "fp8") if each in bug.precisions)


def ask(model: Path, items: Sequence[Item], of_forward_passes: tuple[str, ...], who: str) -> Observation | np.ndarray:
    """The answers of one of RIGHT, or of this engine with one of BUGS. From transformers only log-probabilities."""
    if who == TRANSFORMERS:
        theirs = load_transformers(model, torch.bfloat16)
        tokenizer = Tokenizer.from_directory(model)
        assert tokenizer is not None
        return np.concatenate([transformers_logprobs(theirs, tokenizer, item) for item in items])
    change: AbstractContextManager[None] = nullcontext()
    precision = who
    if who in BUGS:
        bug = BUGS[who]
        change, precision = bug.seed(), precision_of(bug)
        items = [item for item in items if item.group in groups_of(bug, of_forward_passes)]
    elif who in VARIANTS:
        change, precision = VARIANTS[who].change(), VARIANTS[who].precision
    with change:
        return observe(model, items, precision)


def golden_of(title: str, items: tuple[Item, ...], right: Observation, said: Mapping[str, Any]) -> Golden:
    """Golden answers without bugs. said: what each of RIGHT says."""
    items = tuple(stable(item, [each for each in said.values() if isinstance(each, Observation)]) for item in items)
    rows = {name: logprobs_of(items, each) if isinstance(each, Observation) else each for name, each in said.items()}
    rounded = np.array([rows[name] for name in ROUNDED])
    held_out = np.array([row for name, row in rows.items() if name not in ROUNDED])
    return Golden(title, items, logprobs_of(items, right), rounded, held_out, ())


def known_bug(golden: Golden, bug: Bug, of_forward_passes: tuple[str, ...], seen: Observation) -> KnownBug:
    """The changes of a bug: of log-probabilities, and of fields."""
    items, groups = golden.items, groups_of(bug, of_forward_passes)
    change = logprobs_of(items, seen) - golden.logprobs
    if bug.name.startswith(CHAT):  # the rest is as it should be
        change[np.repeat([item.group not in groups for item in items], [item.size for item in items])] = 0
        groups = tuple(dict.fromkeys(item.group for item in items))
    fields = {}
    for item in items:
        said = fields_of(item, seen.replies.get(item.name))
        if different := {name: value for name, value in said.items() if value != item.fields[name]}:
            fields[item.name] = different
    return KnownBug(bug.name, change, fields, groups)
