"""Subjects of sketches and what can be told of them: texts/sketches.txt.

A block is a kind of subject,
    @ name | pronoun: subject; … | verbs
    role | kind of value | adjuncts; … | clauses; … | questions; … | noun phrases; … | changes; …
{e} is the subject, {es} its possessive, {n} the same without its article, {m} its object pronoun, {v} a value and {o} the one before.
"""

import re
from dataclasses import dataclass, field

from .. import names, texts
from ..lexicon import ADJECTIVES
from ..phrases import Question
from ..splits import SPLITS, pick
from . import topics
from .topics import HE, PRONOUNS, SHE, Subject

START = re.compile(r"^(when|until when|from when)\b")


@dataclass(frozen=True)
class Role:
    """What can be told of a subject: a constituent of its sentences, or a clause of its own."""

    name: str
    kind: str
    adjuncts: dict[str, tuple[str, ...]]
    clauses: dict[str, tuple[str, ...]]
    asks: tuple[str, ...]
    asks_of: dict[str, tuple[str, ...]]
    nouns: tuple[str, ...]
    changes: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Block:
    name: str
    subjects: list[Subject]
    verbs: tuple[str, ...]
    roles: dict[str, Role]

    def tellable(self, split: str) -> list[str]:
        return [n for n, r in self.roles.items() if (r.adjuncts[split] or r.clauses[split]) and r.asks_of[split]]


def _parse(text: str) -> Block:
    head, *lines = text.strip().splitlines()
    name, *groups, verbs = (part.strip() for part in head.removeprefix("@ ").split("|"))
    subjects = [Subject(one, pronoun) for group in groups for pronoun, one in topics._subjects(group)]
    roles = {}
    for line in lines:
        role, kind, adjuncts, clauses, asks, nouns, changes = ([*line.split("|"), "", ""])[:7]
        where, listed = f"sketch {name} {role.strip()}", topics._list
        roles[role.strip()] = Role(
            role.strip(), kind.strip(), topics._divide(listed(adjuncts), where), topics._divide(listed(clauses), where),
            listed(asks), topics._share(listed(asks), where), listed(nouns), topics._divide(listed(changes), where),
        )  # fmt: skip
    return Block(name, subjects, tuple(topics._list(verbs)), roles)


BLOCKS = {block.name: block for block in map(_parse, texts.read("sketches").strip().split("\n\n"))}
BY_SPLIT = {split: [block for block in BLOCKS.values() if len(block.tellable(split)) > 1] for split in SPLITS}


def draw_subject(rng, split: str, block: Block) -> Subject:
    """One of the block's, now and then described further, or somebody with a name."""
    chosen, style = pick(rng, block.subjects), rng.random()
    words = chosen.text.split()
    if block.name == "person":
        if style < 0.4:
            name = pick(rng, SHE if chosen.pronoun == "she" else HE) if style < 0.15 else names.given(rng, split)
            return Subject(name if style < 0.3 else f"{name} {names.surname(rng, split)}", chosen.pronoun)
        return chosen
    if words[0] in ("the", "my", "our") and style < 0.4:
        more = names.word(rng, split) if style < 0.15 else pick(rng, ADJECTIVES)
        return Subject(" ".join([words[0], more, *words[1:]]), chosen.pronoun)
    return chosen


def fields(about: Subject, **values: str) -> dict[str, str]:
    they, them, their, _ = PRONOUNS[about.pronoun]
    own = about.text + ("'" if about.text.endswith("s") else "'s")
    bare = re.sub(r"^(the|my|our) ", "", about.text)
    return {"e": about.text, "es": own, "n": bare, "m": them, "they": they, "their": their, **values}


def article(sentence: str) -> str:
    """With "an" before a vowel."""
    return re.sub(r"\ba (?=[aeiou])", "an ", sentence)


@dataclass
class Sketched:
    """One subject, and the value of each role that was told."""

    block: Block
    about: Subject
    values: dict[str, str] = field(default_factory=dict)

    def signature(self, role: str) -> str:
        return f"sketch {self.block.name} {role}|{self.about.key}"

    def question(self, role: str, wording: str, about: Subject | None = None) -> Question:
        """What asks for a role of it, or of somebody else in its place."""
        about = about or self.about
        made, known = self.block.roles[role], fields(about)
        asks = [ask.format_map(known) for ask in made.asks_of[wording]]
        every = {re.sub(r" (the|my|our) ", " ", ask.format_map(known).lower()) for ask in made.asks}
        nouns = [noun.format_map(known) for noun in made.nouns]
        every |= {f"{noun.split(' of ')[0].removeprefix('the ')}|{about.key}" for noun in nouns if " of " in noun}
        every |= {f"{made.name}|{about.key}"}
        every |= {f"{ask.split(' ', 1)[0]}|{about.key}" for ask in every if ask.startswith(("where is", "when is"))}
        value = self.values.get(role, "") if about is self.about else ""
        if {"day", "time"} <= self.values.keys() and role in ("day", "time"):  # "when" would ask for both
            asks = [ask for ask in asks if not START.match(ask)]
        return Question(
            f"sketch {self.block.name} {role}|{about.key}", value, asks, [f"what {n} is" for n in nouns if n.startswith("the ")],
            nouns, [], tuple(sorted(every)), "", [], [n for n in nouns if n.startswith("the ")],
        )  # fmt: skip
