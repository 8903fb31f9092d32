"""Whole conversations: facts are stated, changed and asked for, between other text; thoughts of two steps; calls of functions."""

import random
from collections.abc import Sequence
from typing import Any

from . import manners, tools
from .plain import (
    aside_links,
    asides,
    hops,
    joined,
    listings,
    lookups,
    matters,
    records,
    remark_chains,
    remarks,
    sketches,
    stories,
)
from .splits import pick
from .turns import WORDS, Conversation, Turn
from .writer import Writer

SYSTEMS = (
    "You are a helpful assistant.", "You are a helpful assistant with a long memory.", "You remember what the user tells you.", "Answer in one sentence.",
    "Answer from the conversation alone. Say so when you were not told.", "You are a friendly chatbot.", "Be concise.", "Today is Tuesday.",
)  # fmt: skip


# What a conversation can have: "base", which the shipped checkpoint was trained on; stories of people and things that change;
# questions of two steps in plain words; tables to look up by two keys, to compare and to count; hasty typing; sketches that are
# asked at once for what they told and for what they did not; remarks, which are told, changed and asked for in everyone's own words;
# asides, remarks among small talk, with several people in one sentence and changes that are not called one; matters, the same of
# nine hundred matters in the words of four writers.
BASE = ("base",)
FAMILIES = (*BASE, "stories", "hops", "lookups", "typing", "sketches", "remarks", "asides", "matters")


_PLAYS = (
    ("stories", stories.play),
    ("stories", stories.play),
    ("hops", hops.play),
    ("lookups", lookups.play),
    *[("sketches", sketches.play)] * 3,
    ("sketches", joined.play),
    *[("remarks", remarks.play)] * 6,
    *[("remarks", remark_chains.play)] * 3,
    ("remarks", records.play),
    *[("asides", asides.play)] * 6,
    *[("asides", aside_links.play)] * 3,
    *[("asides", listings.play)] * 3,
    *[("matters", matters.play)] * 22,
    *[("matters", matters.play_links)] * 5,
)


def _stories(writer: Writer, families: Sequence[str], length: int) -> float:
    """How much of the conversation is of the families beside the first; what they play, and whether they alone state facts."""
    rng, plays = writer.rng, [play for family, play in _PLAYS if family in families]
    if set(families) == set(BASE):
        return 0.0
    writer.strict = True
    writer.hasty = "typing" in families and rng.random() < 0.3
    if not plays or ("base" in families and rng.random() < 0.2):
        return 0.0
    writer.plays = plays
    writer.plain = "base" not in families or rng.random() < 0.65
    # In long texts most questions are asked at the end, for facts anywhere; some texts have few facts among much else.
    writer.asks_at_once = min(1.0, 8000 / length)
    if length > 20000:
        return pick(rng, (0.5, 0.25, 0.1, 0.04))
    return pick(rng, (0.95, 0.8, 0.5, 0.25)) if writer.plain else pick(rng, (0.5, 0.25, 0.1))


_OVERHEAD = 130  # approximate characters of a question and its answer


def write(
    seed, *, length: int, split: str = "test", wording: str | None = None, questions: int | None = None, density: float | None = None,
    unanswerable: float = 0.1, prefer_updated: float = 0.35, thinking: float = 0.2, functions: float = 0.12,
    families: Sequence[str] = BASE,
) -> Conversation:  # fmt: skip
    """A conversation of about `length` characters, which depends only on the arguments.

    split: of names and values. wording: split of sentence frames and question forms; None: the same. questions: their number; half
    of them follow all statements. density: fraction of statements among the user's sentences; None: random, from 0.15 to 1.
    unanswerable: fraction of questions about facts that were not stated. prefer_updated: probability of asking for a changed
    fact, if any. thinking: fraction of turns answered after a thought. functions: probability that the conversation has functions.
    families: what may occur, of `FAMILIES`; a checkpoint can be expected to know those that it was trained on.
    """
    if unknown := set(families) - set(FAMILIES):
        raise ValueError(f"families is {sorted(unknown)}; expected some of {list(FAMILIES)}")
    rng = random.Random(f"{seed} {length} {split} {wording}")
    writer = Writer(rng, split, wording or split, thinking)
    box = tools.toolbox(rng, split) if length > 2000 and rng.random() < functions else []
    writer.box = box
    share = _stories(writer, families, length)
    if questions is None:
        questions = max(3, min(40, int(length**0.5 / 6)))
    if density is None:
        density = 0.25 + 0.75 * rng.random()
    if box:
        length -= 1500 + sum(len(str(f.schema)) for f in box)
    body = max(length - questions * _OVERHEAD, length // 3)
    options: dict[str, Any] = {"unanswerable": unanswerable, "prefer_updated": prefer_updated}
    asked_early = 0
    early = questions // 2 if length > 1200 else questions // 3
    while writer.length - asked_early * _OVERHEAD < body:
        if share and rng.random() < share:
            asked = pick(rng, writer.plays)(writer)
            asked_early += max(0, min(asked, early - asked_early))
            continue
        if rng.random() < 0.08:
            writer.append(writer.talk())
            continue
        if box and rng.random() < 0.5:
            writer.append(writer.use())
            continue
        left = body - (writer.length - asked_early * _OVERHEAD)
        sentences = min(int(1 + rng.random() ** 2 * (8 if rng.random() < 0.7 else 60)), left // 60 + 1)
        dense = density if rng.random() < 0.9 and not writer.plain else 0.0
        text = writer.text(sentences, dense)
        due = asked_early < early and writer.known and rng.random() < 0.5
        if due and rng.random() < 0.4:
            writer.append(writer.ask(text, **options))
            asked_early += 1
            continue
        long = len(text) > 900  # what the reader can see: whether a text has facts would be a guess
        writer.append(
            Turn(
                text,
                [(manners.READ if long else manners.NOTED, WORDS)],
                thought=[("", WORDS)] if rng.random() < thinking else None,
            )
        )
        progress = writer.length / length
        while asked_early < early * progress and writer.known and rng.random() < 0.8:
            writer.append(writer.ask(**options))
            asked_early += 1
    for _ in range(5 if writer.plain and not writer.known else 0):
        pick(rng, writer.plays)(writer)
    for _ in range(questions - asked_early):
        writer.append(
            writer.use()
            if box and rng.random() < 0.3
            else writer.ask(**options)
            if rng.random() < 0.93
            else writer.talk()
        )
    return Conversation(pick(rng, SYSTEMS) if rng.random() < 0.15 else "", writer.turns, box)
