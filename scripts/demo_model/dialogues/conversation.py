"""Whole conversations: facts are stated, changed and asked for, between other text; thoughts of two steps; calls of functions."""

import random
from collections.abc import Callable, Sequence
from functools import partial

from . import filler, hops, lists, manners, tables, telling
from . import functions as tools
from .cases import MATTERS, NEAR, by_split
from .splits import pick
from .turns import WORDS, Conversation, Turn
from .writer import Writer

SYSTEMS = (
    "You are a helpful assistant.", "You are a helpful assistant with a long memory.", "You remember what the user tells you.", "Answer in one sentence.",
    "Answer from the conversation alone. Say so when you were not told.", "You are a friendly chatbot.", "Be concise.", "Today is Tuesday.",
)  # fmt: skip
# What a conversation can have: matters of everyday life in the words of several writers; near misses, where an owner, a qualifier or
# a word of the same kind decides; lists in a sentence; pasted rows; two facts in one question.
_POOLS = (
    by_split([*MATTERS, *[case for case in MATTERS if case.area in ("matters_more", "matters_mine")] * 3]),
    by_split(NEAR),
)
_PLAYS: dict[str, tuple[Callable[[Writer], int], int]] = {
    "matters": (partial(telling.play, pool=_POOLS[0], twins=0.4), 42),
    "near": (partial(telling.play, pool=_POOLS[1], twins=0.6), 19),
    "lists": (lists.play, 6),
    "rows": (tables.play, 16),
    "hops": (hops.play, 23),
}
FAMILIES = tuple(_PLAYS)
_OVERHEAD = 130  # approximate characters of a question and its answer


def write(
    seed, *, length: int, split: str = "test", wording: str | None = None, questions: int | None = None, prefer_updated: float = 0.35,
    thinking: float = 0.2, functions: float = 0.12, families: Sequence[str] = FAMILIES,
) -> Conversation:  # fmt: skip
    """A conversation of about `length` characters, which depends only on the arguments.

    split: of names and values. wording: split of sentence frames and question forms; None: the same. questions: their number; half
    of them follow all statements. prefer_updated: probability that a late question is for a changed fact, if any. thinking: fraction
    of turns answered after a thought. functions: probability that the conversation has functions.
    """
    if unknown := set(families) - set(FAMILIES):
        raise ValueError(f"families is {sorted(unknown)}; expected some of {list(FAMILIES)}")
    rng = random.Random(f"{seed} {length} {split} {wording}")
    writer = Writer(rng, split, wording or split, thinking, hasty=rng.random() < 0.25)
    box = tools.toolbox(rng, split) if length > 2000 and rng.random() < functions else []
    writer.box = box
    plays = [play for family in families for play in [_PLAYS[family][0]] * _PLAYS[family][1]]
    # In long texts most questions are asked at the end, for facts anywhere; some texts have few facts among much else.
    writer.asks_at_once = min(1.0, 8000 / length)
    share = pick(rng, (0.95, 0.8, 0.5, 0.25) if length < 20000 else (0.5, 0.25, 0.1, 0.04))
    if questions is None:
        questions = max(3, min(40, int(length**0.5 / 6)))
    if box:
        length -= 1500 + sum(len(str(f.schema)) for f in box)
    body = max(length - questions * _OVERHEAD, length // 3)
    if rng.random() < 0.06:
        writer.append(telling.unprepared(writer, pick(rng, _POOLS)))
    asked_early, early = 0, questions // 2 if length > 1200 else questions // 3
    while writer.length - asked_early * _OVERHEAD < body:
        if rng.random() < share:
            asked = pick(rng, plays)(writer)
            asked_early += max(0, min(asked, early - asked_early))
        elif rng.random() < 0.12:
            writer.append(writer.talk())
        elif box and rng.random() < 0.5:
            writer.append(writer.use())
        else:
            left = body - (writer.length - asked_early * _OVERHEAD)
            sentences = min(int(1 + rng.random() ** 2 * (8 if rng.random() < 0.7 else 60)), left // 60 + 1)
            text = filler.paragraph(rng, split, sentences)
            reply = manners.READ if len(text) > 900 else manners.NOTED  # what the reader can see
            writer.append(Turn(text, [(reply, WORDS)], thought=[("", WORDS)] if writer.thinks() else None))
    for _ in range(0 if writer.known else 5):
        pick(rng, plays)(writer)
    for _ in range(questions - asked_early):
        if box and rng.random() < 0.3:
            writer.append(writer.use())
        elif rng.random() < 0.93:
            writer.append(writer.ask(prefer_updated=prefer_updated, unanswerable=0.26))
        else:
            writer.append(writer.talk())
    return Conversation(pick(rng, SYSTEMS) if rng.random() < 0.15 else "", writer.turns, box)
