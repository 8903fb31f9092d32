"""Questions of two steps over sketches: "Alfa is stored on server K2. K2 is in Dublin. In which city is Alfa stored?"

A line of texts/joined.txt: block of the second fact | first subjects | descriptions of what they name | first statements | questions
for the first value | questions that need both facts, each with the role that it asks for. {d} is the first subject, {ds} its
possessive, {b} what it names, {p} somebody, {w} an invented word. The second fact is a sentence of texts/sketches.txt.
"""

import re

from .. import names, texts
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick, split_of
from ..turns import Chain
from . import hops, topics
from .sketch_blocks import BLOCKS, Block, Sketched, article, fields
from .topics import Subject

_Join = tuple[Block, list[str], list[str], list[str], list[str], dict[str, list[str]]]


def _parse() -> dict[str, list[_Join]]:
    joins: dict[str, list[_Join]] = {split: [] for split in SPLITS}
    for line in texts.read("joined").strip().splitlines():
        name, *forms = (part.strip() for part in line.split("|"))
        subjects, descriptions, statements, asks, both = ([form.strip() for form in part.split(";")] for part in forms)
        fused: dict[str, list[str]] = {}
        for form in both:
            role, ask = form.split("=")
            fused.setdefault(role, []).append(ask)
        for split in SPLITS:
            mine = [form for form in statements if split_of(f"join {name} {form}") == split]
            if mine and BLOCKS[name].tellable(split):
                joins[split].append((BLOCKS[name], subjects, descriptions, mine, asks, fused))
    return joins


JOINS = _parse()
_NAMED = {
    "person": "person", "shop": "shop", "project": "project", "group": "team", "home": "flat", "machine": "server", "trip": "train", "event": "party",
}  # fmt: skip


def _named(rng, split: str, block: Block) -> Subject:
    """What a first fact names."""
    number, colour = (
        1 + int(rng.random() * 90),
        pick(rng, ["red", "blue", "green", "yellow", "old", "grey", "white", "big"]),
    )
    if block.name == "room":
        return Subject(
            pick(rng, [f"room {number}", f"{names.word(rng, split)} hall", f"the {colour} room", f"lab {number}"]), "it"
        )
    if block.name == "stock":
        made = pick(rng, ["box", "bag", "folder", "drawer", "crate", "tin"])
        return Subject(
            pick(rng, [f"the {colour} {made}", f"{made} {number}", f"the {names.word(rng, split)} {made}"]), "it"
        )
    if block.name == "machine" and rng.random() < 0.5:
        made = pick(rng, ["van", "Fiat", "Skoda", "jeep", names.word(rng, split)])
        return Subject(f"the {colour} {made}", "it")
    text = hops._named(rng, split, _NAMED[block.name])
    pronoun = "it" if block.name != "person" else "he" if text.split()[0] in topics.HE else "she"
    return Subject(text, pronoun)


def draw(writer) -> Chain | None:
    """A chain of two facts that can still be told, or None."""
    rng, split, wording = writer.rng, writer.split, writer.wording.split
    block, subjects, descriptions, statements, asks, both = pick(rng, JOINS[wording])
    first_subject = pick(rng, subjects).format(p=names.given(rng, split), w=names.word(rng, split))
    named = _named(rng, split, block)
    if first_subject == "I" or any(writer.mentions(Phrase.of(text, "").key) for text in (first_subject, named.text)):
        return None
    own = first_subject + "'s"
    fill = {"d": first_subject, "ds": own, "b": named.text}
    direct = [ask.format(**fill) for ask in asks]
    described = pick(rng, descriptions).format(**fill)
    aliases = tuple(re.sub(r" (the|my|our) ", " ", ask.lower()) for ask in direct)
    one = Question(f"hop {Phrase.of(first_subject, '').key}", named.text, direct, [], [], [described], aliases)
    phrase = Phrase(named.text, named.text.lower(), "story")
    first = Fact(capital(pick(rng, statements).format(**fill)), [one], phrase, None, [], "", "topic hop")
    roles = block.tellable(wording)
    wanted = [role for role in both if role in roles]
    role = pick(rng, wanted) if wanted and rng.random() < 0.6 else pick(rng, roles)
    of = Sketched(block, named, {role: topics.value(rng, split, block.roles[role].kind)})
    made, known = block.roles[role], fields(named, v=of.values[role])
    told = [f"{named.text} {clause}" for clause in made.clauses[wording]]
    told += [f"{named.text} {pick(rng, block.verbs)} {adjunct}" for adjunct in made.adjuncts[wording]]
    sentence = article(capital(pick(rng, told).format_map(known)))
    second_question = of.question(role, wording)
    second = Fact(sentence, [second_question], Phrase(named.text, named.key, "story"), None, [], "", "topic hop")
    fused = [ask.format(**fill) for ask in both.get(role, ())]
    long = of.question(role, wording, Subject(described, "it")).direct
    question = pick(rng, fused) if fused and rng.random() < 0.65 else pick(rng, long) if long else ""
    if not question or not second_question.direct or not writer.free(first) or not writer.free(second):
        return None
    return None if named.text.lower() in of.values[role].lower() else Chain(first, second, question)


def play(writer) -> int:
    """Tell one or two chains, perhaps among other things, and ask for one of them."""
    return hops.play(writer, draw)
