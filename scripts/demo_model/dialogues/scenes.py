"""Sentences as people type them about everyday matters, with up to five values each, and every question about each value.

A scene of texts/scenes.txt is a few lines:
    s:person t:time              slots, each with the kind of its value
    > {s} [land] at {t} | ...    statements; [land] agrees with slot s, [t:be] with slot t; {s_} is a possessive ("Anna's", "my")
    t? when [do] {s} land | ...  questions for slot t
    t~ {s_} landing time         noun phrases for slot t: short questions, and topics of a change
    t! {s_} plane lands at {t}   statements that change slot t
"strict" before the slots: a question is asked of those statements alone that have all of its content words.
"""

import re
from dataclasses import dataclass, field
from functools import cache

from . import texts, values
from .lexicon import MEETINGS, TRANSITIVES
from .phrases import ME, WE, Fact, Phrase, Question, agreed, capital
from .splits import FUNCTION_WORDS, SPLITS, pick, split_of
from .subjects import Subjects

_GENERAL = FUNCTION_WORDS | set(
    "much many now one going me my s him not back again something somebody person thing".split()
)
_SAME = {past: base for base, past in (*TRANSITIVES, *MEETINGS)} | dict(
    gave="give", got="get", sent="send", owes="owe", brought="bring", made="make", stole="steal", taught="teach", left="leave", lost="lose", hid="hide", won="win",
    beat="win", paid="pay", spent="spend", lent="lend", runs="boss", run="boss", ceo="boss", charge="boss", head="boss", founded="set", rule="capital", ruled="capital",
    knows="speak", practises="play", practise="play", met="meet", works="work", says="say", wrote="write", bought="buy", sold="sell", coming="come", comes="come", arrives="come", visits="come", here="come",
)  # fmt: skip
_PHRASES = ("person", "anyone", "thing", "event", "org", "animal", "bare")
_SLOT = re.compile(r"\{(\w)_*\}")
_VERB = re.compile(r"\[(?:(\w):)?(\w+)\]")
_OBJECT = re.compile(r"\b(for|to|of|by|with|from|than|about|told|asked|gave|give|get|got|reach|call) \{(\w)\}")

_NOUN_OF = re.compile(
    r"^(?:\{(?P<owner>\w)_\}|my|our|the|your) (?P<noun>[\w' {}-]+?)(?: (?:of|for) (?:my |the )?\{(?P<other>\w)_*\})?$"
)
_WHERE = re.compile(r"^(where|when|who|what) (?:is|are|\{\wbe\}) (?:the |my |our )?\{(\w)_*\}$")


@dataclass(frozen=True)
class _Asked:
    """One slot's questions by split. key: the slots that every question names."""

    forms: dict[str, tuple[str, ...]]
    nouns: tuple[str, ...]
    changes: dict[str, tuple[str, ...]]
    key: str
    named: tuple[str, ...]  # the forms that other facts could be asked for with, of all splits


@dataclass
class Scene:
    name: str
    strict: bool
    kinds: dict[str, str]
    statements: dict[str, list[str]] = field(default_factory=dict)
    asked: dict[str, _Asked] = field(default_factory=dict)
    verbs: set[tuple[str, str]] = field(default_factory=set)


def _slots(form: str) -> set[str]:
    return set(_SLOT.findall(form))


@cache
def _content(form: str) -> frozenset[str]:
    """The words that carry a form's meaning, without their endings; a few synonyms are one word."""
    words = re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", form.lower()))
    return frozenset(_SAME.get(word, word)[:4] for word in words if word not in _GENERAL)


def _divide(forms: list[str]) -> dict[str, tuple[str, ...]]:
    return {split: tuple(f for f in forms if split_of(f) == split) for split in SPLITS}


def _parse(number: int, text: str) -> Scene:
    head, *lines = text.strip().splitlines()
    strict = head.startswith("strict ")
    slots = head.removeprefix("strict ").split()
    scene = Scene(f"scene {number}", strict, dict(part.split(":") for part in slots))  # type: ignore[arg-type]
    first = next(iter(scene.kinds))

    def form(text: str) -> str:
        def verb(match) -> str:
            scene.verbs.add((match[1] or first, match[2]))
            return f"{{{match[1] or first}{match[2]}}}"

        return _OBJECT.sub(r"\1 {\2__}", _VERB.sub(verb, text.strip()))

    parts: dict[str, list[str]] = {}
    for line in lines:
        mark, rest = line.split(" ", 1)
        parts.setdefault(mark, []).extend(form(part) for part in rest.split("|") if part.strip())
    scene.statements = {split: list(forms) for split, forms in _divide(parts.pop(">")).items()}
    for slot in scene.kinds:
        asks, nouns = parts.get(f"{slot}?", []), parts.get(f"{slot}~", [])
        if not asks:
            continue
        asks = [ask for ask in asks if slot not in _slots(ask)]
        key = set.intersection(*(_slots(ask) for ask in (*asks, *nouns)))
        named = tuple(f for f in (*asks, *nouns) if _NOUN_OF.match(f) or _WHERE.match(f))
        scene.asked[slot] = _Asked(
            _divide(asks), tuple(nouns), _divide(parts.get(f"{slot}!", [])), "".join(sorted(key)), named
        )
    return scene


_ALL = [_parse(number, text) for number, text in enumerate(texts.read("scenes").strip().split("\n\n"))]
_BY_SPLIT = {split: [scene for scene in _ALL if scene.statements[split]] for split in SPLITS}
STATEMENTS = {split: [s for scene in _ALL for s in scene.statements[split]] for split in SPLITS}
QUESTIONS = {
    split: [f for scene in _ALL for asked in scene.asked.values() for f in asked.forms[split]] for split in SPLITS
}
CHANGES = {
    split: [f for scene in _ALL for asked in scene.asked.values() for f in asked.changes[split]] for split in SPLITS
}


class Scenes(Subjects):
    """Draws facts of the scenes."""

    def slot(self, kind: str) -> Phrase:
        if kind == "anyone":
            draw = self.rng.random()
            return ME if draw < 0.3 else WE if draw < 0.36 else self.person()
        if kind == "me":
            return ME
        if kind in _PHRASES:
            return self.phrase(kind)
        return Phrase.of(values.value(self.rng, self.split, kind), "value")

    def scene(self) -> Fact:
        """A statement of some scene that its split has a question for."""
        while not (fact := self._scene()).questions:
            pass
        return fact

    def _scene(self) -> Fact:
        rng, split = self.rng, self.wording.split
        scene = pick(rng, _BY_SPLIT[split])
        statement = pick(rng, scene.statements[split])
        used = _slots(statement)
        filled: dict[str, Phrase] = {}
        for slot, kind in scene.kinds.items():
            phrase = self.slot(kind)
            while any(phrase.key == other.key for other in filled.values()):
                phrase = self.slot(kind)
            filled[slot] = phrase
        fields = {}
        for slot, phrase in filled.items():
            fields[slot], fields[slot + "_"] = phrase.text, phrase.possessive
            fields[slot + "__"] = phrase.text if phrase.person == 3 else "us" if phrase.plural else "me"
        for slot, verb in scene.verbs:
            fields[slot + verb] = agreed(verb, filled[slot])

        def fits(form: str) -> bool:
            return _slots(form) <= used and (not scene.strict or _content(form) <= _content(statement))

        questions = []
        for slot, asked in scene.asked.items():
            if slot not in used or filled[slot].person == 1:
                continue
            forms = [form.format_map(fields) for form in asked.forms[split] if fits(form)]
            if not forms:
                continue
            nouns = [noun.format_map(fields) for noun in asked.nouns if fits(noun)]
            key = " ".join(filled[k].key for k in asked.key)
            aliases = {name for form in asked.named if _slots(form) <= used and (name := _alias(form, filled))}
            changed = {**fields, slot: "{new}", slot + "__": "{new}"}
            changes = [
                f.format_map(changed) for f in asked.changes[split] if _slots(f) <= used and f"{{{slot}_}}" not in f
            ]
            questions.append(
                Question(
                    f"{scene.name}{slot}|{key}", fields[slot], forms, [], nouns, nouns if filled[slot].kind != "value" else [],
                    tuple(aliases), scene.kinds[slot], changes, nouns,
                )
            )  # fmt: skip
        first = next(iter(filled.values()))
        return Fact(capital(statement.format_map(fields)), questions, first, None, [], "", scene.name)


def _alias(form: str, filled: dict[str, Phrase]) -> str | None:
    if match := _NOUN_OF.match(form):
        owner = match["owner"] or match["other"]
        key = filled[owner].key if owner else {"my": "me", "your": "you"}.get(form.split(" ", 1)[0], "")
        noun = _SLOT.sub(lambda slot: filled[slot[1]].key, match["noun"])
        return f"{noun}|{key}"
    if match := _WHERE.match(form):
        return f"{match[1]}|{filled[match[2]].key}"
    return None
