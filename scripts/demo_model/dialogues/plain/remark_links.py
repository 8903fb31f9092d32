"""Links of two remarks that are told of each other: "The ring is in the green tin. The green tin is in the attic. Which room is the ring in?"

A block of texts/remark_links.txt, or of matter_links.txt for the family `matters`:
    @ x:who, or x=…, a list | b: kind of what the first remark names | v: kind of the second one's value | r: words for {r}, if any
    1> first remarks; …      1? questions for {b}
    2> second remarks; …     2? questions for {v} that name {b}
    q? questions for {v} that name {x}
{xs} and {bs} are possessives.
"""

from dataclasses import dataclass

from .. import names, texts
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick
from ..turns import Chain
from . import topics
from .remark_cases import somebody, subject
from .remark_values import WORDS, below, long_code, name, title, value
from .sketch_blocks import article

_COLOURS = "red blue green yellow old big small grey black white wooden metal round striped long".split()


def _pattern(*forms: str):
    """A maker of noun phrases: {c} a colour, {w} a word, {n} a name, {p} a first name, {d} a number."""

    def make(rng, split: str) -> str:
        given = {
            "c": pick(rng, _COLOURS),
            "w": pick(rng, WORDS),
            "n": name(rng, split),
            "p": names.given(rng, split),
            "d": 1 + below(rng, 99),
        }
        return pick(rng, forms).format(**given)

    return make


_NAMED = {
    "box": _pattern("the {c} box", "box {d}", "the {c} tin", "the {w} drawer", "the {c} bag", "crate {d}", "the {c} folder", "{p}'s backpack", "the {w} jar", "the {c} suitcase"),
    "host": _pattern("{w}-{d}", "server {n}", "the {n} box", "node {d}", "the {c} drive", "disk {d}", "{w}{d}", "the {w} server", "NAS {d}", "{p}'s laptop"),
    "chamber": _pattern("room {d}", "the {c} room", "{n}", "{n} Hall", "lab {d}", "the {n} room", "the {w} lounge", "room {d}B", "the {n} suite"),
    "keyname": _pattern("key {d}", "the {c} key", "the {w} key", "key {n}", "the key with the {c} tag", "the {n} card"),
    "model": _pattern("the {c} {n}", "the {c} van", "the {c} Volvo", "the {c} {n} {d}", "the {c} pickup", "the {w} van", "the {c} Kia", "the {n}", "the {c} truck"),
    "hotelname": _pattern("the {n} Inn", "Hotel {n}", "the {n}", "the Grand {n}", "{n} Lodge", "the {c} {w} Hotel", "Villa {n}", "the {n} Palace", "Pension {n}"),
    "birthdayof": _pattern("{p}'s birthday", "{n} Day", "the {w} festival", "our anniversary", "{p}'s exam", "the {n} parade", "Grandma's party", "{p}'s first day"),
    "venue": _pattern("the {n}", "{n} Arena", "the {w} theatre", "Club {n}", "the {n} Center", "{n} Hall", "the old {w} mill", "the {n} Museum", "Cafe {n}", "the {c} barn"),
    "stuff": _pattern("{w}", "{w} powder", "{n} salt", "fresh {w}", "{w} oil", "dried {w}", "{w} paste", "{n} vinegar"),
    "softname": _pattern("{n}", "lib{w}", "{n}JS", "{w}db", "{n} Engine", "the {n} framework", "py{w}", "{n}OS"),
    "bosstitle": _pattern("the {w} king", "the new captain", "the {n} champion", "the {w} queen", "the guest of honour", "the {n} judge", "the head of {n}", "the {c} knight"),
    "flightname": lambda rng, split: topics.value(rng, split, "flight") if rng.random() < 0.7 else f"the {1 + below(rng, 22)} o'clock plane",
    "code": long_code, "title": title,
}  # fmt: skip


@dataclass(frozen=True)
class Link:
    subjects: tuple[str, ...]  # ("who",) or a list
    named: str
    value: str
    relations: tuple[str, ...]
    forms: dict[str, dict[str, tuple[str, ...]]]  # of each mark, by split


def _parse(block: str) -> Link:
    head, *lines = block.strip().splitlines()
    who, named, kind, *others = (part.strip() for part in head.removeprefix("@ ").split("|"))
    relations = tuple(others[0].removeprefix("r:").split(",")) if others else ("",)
    subjects = ("who",) if who == "x:who" else tuple(text.strip() for text in who.removeprefix("x=").split(","))
    forms = {}
    for line in lines:
        mark, rest = line.split(" ", 1)
        divide = topics._divide if mark in ("1>", "2>") else topics._share
        forms[mark] = divide(tuple(form.strip() for form in rest.split(";")), f"link {head} {mark}")
    return Link(subjects, named.removeprefix("b:"), kind.removeprefix("v:"), relations, forms)


def _read(name: str) -> list[Link]:
    return [_parse(block) for block in texts.read(name).strip().split("\n\n")]


LINKS, MATTER_LINKS = _read("remark_links"), _read("matter_links")


def forms_of(link: Link, mark: str, wording: str) -> tuple[str, ...]:
    """The forms of a split. Statements and questions for one of the two facts may be of training where it has none."""
    return link.forms[mark][wording] or (link.forms[mark]["train"] if mark != "q?" else ())


def _askable(links: list[Link], split: str) -> list[Link]:
    return [
        link for link in links if forms_of(link, "q?", split) and (link.forms["1>"][split] or link.forms["2>"][split])
    ]


BY_SPLIT = {split: _askable(LINKS, split) for split in SPLITS}
MATTERS_BY_SPLIT = {split: _askable(MATTER_LINKS, split) for split in SPLITS}


def named_thing(rng, split: str, kind: str) -> str:
    """What a first remark names."""
    made = _NAMED.get(kind)
    return made(rng, split) if made else value(rng, split, kind)


def draw(writer, links: dict[str, list[Link]] = BY_SPLIT) -> Chain | None:
    """A link whose two facts can still be told, and a question that needs both; or None."""
    rng, split, wording = writer.rng, writer.split, writer.wording.split
    link = pick(rng, links[wording])
    about = somebody(rng, split) if link.subjects == ("who",) else subject(pick(rng, link.subjects), "it")
    named = named_thing(rng, split, link.named)
    text = value(rng, split, link.value)
    low = [part.lower() for part in (about.text + "'s", named, text)]
    if any(one in other for one in low for other in low if one is not other):
        return None
    fields = {**about.fields, "b": named, "bs": named + "'s", "v": text, "r": pick(rng, link.relations)}
    own = link.subjects[0] == "my"
    if own and (not writer.plain or "me" in writer.subjects):
        return None
    key = f"my {fields['r']}" if own else about.key
    if writer.mentions(key) or writer.mentions(Phrase.of(named, "").key):
        return None

    def fact(mark: str, key: str, found: str) -> Fact:
        asks = [form.format_map(fields) for form in forms_of(link, f"{mark}?", wording)]
        every = [form.format_map(fields).lower() for forms in link.forms[f"{mark}?"].values() for form in forms]
        question = Question(f"hop {mark} {link.value}|{key}", found, asks, [], [], [], tuple(every))
        sentence = article(pick(rng, forms_of(link, f"{mark}>", wording)).format_map(fields))
        return Fact(capital(sentence), [question], Phrase(named, named.lower(), "story"), None, [], "", "topic hop")

    asks = [form.format_map(fields) for form in forms_of(link, "q?", wording)]
    writer.mine = writer.mine or own
    return Chain(fact("1", key, named), fact("2", Phrase.of(named, "").key, text), pick(rng, asks))
