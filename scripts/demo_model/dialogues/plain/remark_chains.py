"""Two remarks in one question: "Ana shares an office with Raj. Raj sits in room 5. Where does Ana sit?"

The first one says that two have the same (the town, the boss, the room), or names somebody or something that the second one is
about ("My boss is Ingrid. Ingrid lives in Cork. Where does my boss live?").
"""

import re

from ..phrases import Fact, Phrase, Question, capital
from ..splits import pick
from ..turns import Chain
from . import hops, remark_links
from .remark_cases import BY_SPLIT, CASES, Case, Subject, draw, named, subject
from .remark_telling import Remarked
from .remark_values import value
from .sketch_blocks import article

_SOMEBODY = frozenset(("person", "firstname", "titled"))
# Cases of things that a first remark can name, by the kind of its value.
_THINGS = {"room": ("room",), "eatery": ("shop",), "org": ("shop",), "school": ("shop",), "petname": ("petcare",)}
_CLAUSE = re.compile(r"\b(who|whoever|person|one|where)\b")


def single(case: Case, wording: str) -> list[str]:
    """Statements of a split that tell one slot, for which the split has questions."""
    return [form for form in case.tellable(wording) if len(case.told_by(form)) == 1]


def hop_fact(sentence: str, question: Question, key: str) -> Fact:
    return Fact(capital(article(sentence)), [question], Phrase(key, key, "story"), None, [], "", "topic hop")


def second_remark(writer, case: Case, about: Subject) -> tuple[Remarked, str, Fact] | None:
    """A remark about what the first one names: (it, its slot, the fact)."""
    rng, wording = writer.rng, writer.wording.split
    forms = single(case, wording)
    if not forms:
        return None
    form = pick(rng, forms)
    told, slot = Remarked(case, about), case.told_by(form)[0]
    told.values[slot] = value(rng, writer.split, case.slots[slot].kind)
    question = told.question(slot, wording)
    named = about.text.lower()
    if not question.direct or told.values[slot].lower() in named or named in told.values[slot].lower():
        return None
    return told, slot, hop_fact(form.format_map({**about.fields, **told.values}), question, about.text.lower())


_HAVE_SAME = {
    split: [case for case in cases if any(slot.same[split] for slot in case.slots.values())]
    for split, cases in BY_SPLIT.items()
}


def _same(writer) -> Chain | None:
    """The first remark says that two have the same."""
    rng, split, wording = writer.rng, writer.split, writer.wording.split
    case = pick(rng, _HAVE_SAME[wording])
    one, other = draw(rng, split, case), draw(rng, split, case)
    if one.key == other.key or set(one.key.split()) & set(other.key.split()):
        return None
    if any(writer.mentions(about.key) for about in (one, other)):
        return None
    slots = [name for name, slot in case.slots.items() if slot.same[wording]]
    made = second_remark(writer, case, one)
    if made is None or made[1] not in slots:
        return None
    told, slot, second = made
    fields = {**one.fields, "z": other.text, "x2": other.text}
    ask = case.slots[slot].same_ask.format_map(fields)
    link = Question(f"hop {other.key}", one.text, [ask], [], [], [], (f"same {slot}|{other.key}",))
    first = hop_fact(pick(rng, case.slots[slot].same[wording]).format_map(fields), link, one.text.lower())
    asks = told.asks(slot, wording, other.fields)
    return Chain(first, second, pick(rng, asks)) if asks else None


def _naming() -> list[tuple[Case, str]]:
    return [
        (case, name) for case in CASES.values() for name, slot in case.slots.items()
        if case.name != "mynames" and slot.nouns and (slot.kind in _SOMEBODY or slot.kind in _THINGS)
    ]  # fmt: skip


_NAMING = _naming()


def _named(writer) -> Chain | None:
    """The first remark names what the second one is about."""
    rng, split, wording = writer.rng, writer.split, writer.wording.split
    case, slot = pick(rng, _NAMING)
    forms = [form for form in single(case, wording) if case.told_by(form) == [slot]]
    if not forms or (case.mine and not writer.plain):
        return None
    owner, kind = draw(rng, split, case), case.slots[slot].kind
    keys = case.keys or (owner.key,)
    name = value(rng, split, kind)
    short = name.split()[0] if kind == "person" and name.split()[0].isalpha() and rng.random() < 0.3 else name
    if any(writer.mentions(text) for text in (*keys, name.lower(), short.lower())) or (
        "me" in writer.subjects and case.mine
    ):
        return None
    about = named(short, pick(rng, ["she", "he"])) if kind in _SOMEBODY else subject(short, "it")
    fitting = [CASES[n] for n in _THINGS[kind]] if kind in _THINGS else [c for c in BY_SPLIT[wording] if c.somebody]
    made = second_remark(writer, pick(rng, fitting), about)
    if made is None or made[0].case is case:
        return None
    told, asked, second = made
    one = Remarked(case, owner)
    one.values[slot] = name
    link = one.question(slot, wording)
    first = hop_fact(pick(rng, forms).format_map({**owner.fields, **one.values}), link, name.lower())
    noun = pick(rng, case.slots[slot].nouns).format_map(owner.fields)
    asks = told.asks(asked, wording, Subject(noun, about.they, noun).fields)
    if _CLAUSE.search(noun):
        asks = [ask for ask in asks if noun + "'s" not in ask]
    if not asks or not link.direct or owner.key in name.lower():
        return None
    if rng.random() < 0.15 and kind in _SOMEBODY:
        second.sentence = _pronoun(second.sentence, about) or second.sentence
    writer.mine = writer.mine or case.mine
    writer.subjects |= set(keys)
    return Chain(first, second, pick(rng, asks))


def _pronoun(sentence: str, about: Subject) -> str | None:
    """ "Ingrid's number is 5" as "Her number is 5"."""
    rest = sentence.removeprefix(capital(about.text))
    if rest == sentence or about.text in rest:
        return None
    own = about.fields["xr"] + rest[2:] if rest.startswith("'s ") else about.they + rest
    return capital(own)


def draw_chain(writer) -> Chain | None:
    """Two facts that can still be told, and a question that needs both; or None."""
    draw_one = pick(writer.rng, (_same, _named, remark_links.draw))
    chain = draw_one(writer)
    if chain is None or not writer.free(chain.first) or not writer.free(chain.second):
        return None
    return chain


def play(writer) -> int:
    """Tell one or two chains, perhaps among other things, and ask for one of them."""
    return hops.play(writer, draw_chain)
