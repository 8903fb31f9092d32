"""Questions of two remarks, beside two others like them: "Kwabena plays for the Otters; Luca plays for the Wasps. The Otters train at
the mill, the Wasps at the quarry. Where does Luca train?"

The forms are those of texts/remark_links.txt; or the first remark says who is whose what, and the second one is any of `remarks`
about somebody: "My sister's coach is Ana. Ana was born in Cork. Where was my sister's coach born?"
"""

from dataclasses import dataclass

from .. import names
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick, split_of
from ..turns import Chain
from . import hops
from .aside_cases import clause_without_verb
from .aside_words import FRAMES, accented_name
from .remark_cases import REMARKS, Pool, Subject, somebody, subject
from .remark_chains import hop_fact, single
from .remark_links import BY_SPLIT, Link, forms_of, named_thing
from .remark_values import value
from .sketch_blocks import article

_JOINS = (" and ", "; ", ", ", ", and ", " while ", ", whereas ", " but ")
_GAPPED = (" and ", "; ", ", ", ", and ")


def _two(rng, form: str, key: str, found: str, slots: tuple[dict[str, str], dict[str, str]]) -> str:
    """One sentence of the form about the two, in either order; the second clause may leave out its verb."""
    short = clause_without_verb(form, key, found)
    order = slots if rng.random() < 0.6 else slots[::-1]
    if short is not None and rng.random() < 0.6:
        return capital(article(form.format_map(order[0]) + pick(rng, _GAPPED) + short.format_map(order[1])))
    return capital(article(form.format_map(order[0]) + pick(rng, _JOINS) + form.format_map(order[1])))


def _subject(rng, split: str, link: Link) -> Subject:
    if link.subjects == ("who",):
        about = somebody(rng, split)
        return subject(accented_name(rng, about.text), about.they) if rng.random() < 0.1 else about
    return subject(pick(rng, link.subjects), "it")


def draw(writer, links: dict[str, list[Link]] = BY_SPLIT) -> Chain | None:
    """Two facts that stand beside two of the same kind, and a question that needs both; or None."""
    rng, split, wording = writer.rng, writer.split, writer.wording.split
    link = pick(rng, links[wording])
    if link.subjects[0] == "my":
        return None
    relation = pick(rng, link.relations)
    slots, keys = [], []
    for _ in range(2):
        about = _subject(rng, split, link)
        named, text = named_thing(rng, split, link.named), value(rng, split, link.value)
        slots.append({**about.fields, "b": named, "bs": named + "'s", "v": text, "r": relation})
        keys.append((about.key, Phrase.of(named, "").key))
    low = [part.lower() for slot in slots for part in (slot["x"], slot["b"], slot["v"])]
    every = [key for pair in keys for key in pair]
    if any(low[i] in low[j] for i in range(6) for j in range(6) if i != j) or min(map(len, every)) < 3:
        return None
    if any(writer.mentions(key) for key in every):
        return None
    mine = slots[0]

    def fact(mark: str, key: str, found: str) -> Fact:
        asks = [form.format_map(mine) for form in forms_of(link, f"{mark}?", wording)]
        known = [form.format_map(mine).lower() for forms in link.forms[f"{mark}?"].values() for form in forms]
        form = pick(rng, forms_of(link, f"{mark}>", wording))
        beside = rng.random() < 0.75
        ends = ("x", "b") if mark == "1" else ("b", "v")
        sentence = _two(rng, form, *ends, (mine, slots[1])) if beside else capital(article(form.format_map(mine)))
        question = Question(f"hop {mark} {link.value}|{key}", found, asks, [], [], [], tuple(known))
        return Fact(sentence, [question], Phrase(mine["b"], mine["b"].lower(), "story"), None, [], "", "topic hop")

    first, second = fact("1", keys[0][0], mine["b"]), fact("2", keys[0][1], mine["v"])
    if any(found.lower() not in fact_.sentence.lower() for fact_, found in ((first, mine["b"]), (second, mine["v"]))):
        return None
    if not writer.free(first) or not writer.free(second):
        return None
    writer.subjects |= set(every)
    asks = [form.format_map(mine) for form in forms_of(link, "q?", wording)]
    return Chain(first, second, pick(rng, asks))


_WHOSE = {split: [form for form in FRAMES["whose"] if split_of(f"aside whose {form}") == split] for split in SPLITS}
_OWNERS = (
    *("my", "our") * 2, "my sister's", "my brother's", "my mum's", "my boss's", "my friend's", "my neighbour's", "the club's", "the company's", "the school's", "the band's",
)  # fmt: skip
# Cases that say who is whose what, or what the user does with others.
_WHO_IS_WHOSE = frozenset("partner child sibling birth person2 debt lent gift".split())


def _person(rng, split: str) -> Subject:
    name, they, style = names.given(rng, split), pick(rng, ["she", "he"]), rng.random()
    if style > 0.8:
        name = f"{'Mr' if they == 'he' else 'Ms'} {names.surname(rng, split)}"
    elif style > 0.4:
        name = f"{name} {names.surname(rng, split)}"
    return subject(accented_name(rng, name) if rng.random() < 0.1 else name, they)


@dataclass(frozen=True)
class _Holder:
    """own, "my sister's coach", is about; found: what a case tells of them."""

    own: str
    about: Subject
    found: str

    def names(self) -> list[str]:
        return [Phrase.of(self.own, "").key, self.about.key]


def _holder(writer, pool: Pool, kind: str) -> _Holder:
    rng, split = writer.rng, writer.split
    owner = pick(rng, _OWNERS) if rng.random() < 0.75 else names.given(rng, split) + "'s"
    return _Holder(f"{owner} {pick(rng, FRAMES['relations'])}", _person(rng, split), pool.value(rng, split, kind))


def _beside(rng, mine: str, other: str) -> str:
    """Both clauses in a sentence, in either order."""
    parts = (mine, other) if rng.random() < 0.6 else (other, mine)
    return pick(rng, _JOINS).join(parts)


def draw_relation(writer, pool: Pool = REMARKS) -> Chain | None:
    """Somebody is somebody's something, and has something told; perhaps beside another one. The question names the relation."""
    rng, wording = writer.rng, writer.wording.split
    case = pick(rng, [c for c in pool.cases[wording] if c.somebody and c.name not in _WHO_IS_WHOSE])
    forms = single(case, wording)
    if not forms:
        return None
    form = pick(rng, forms)
    slot = case.told_by(form)[0]
    asks = [ask for ask in case.slots[slot].asks_of[wording] if "{xp}" not in ask and "{xr}" not in ask]
    one, other = (_holder(writer, pool, case.slots[slot].kind) for _ in range(2))
    low = [text.lower() for each in (one, other) for text in (each.own, each.about.text, each.found)]
    if any(low[i] in low[j] for i in range(6) for j in range(6) if i != j) or not asks:
        return None
    keys = one.names() + other.names()
    if any(writer.mentions(key) for key in keys) or (one.own.startswith(("my ", "our ")) and not writer.plain):
        return None
    whose = pick(rng, _WHOSE[wording] or _WHOSE["train"])
    told, near = (whose.format(d=each.own, b=each.about.text) for each in (one, other))
    then, near_then = (pool.said(form, {**each.about.fields, slot: each.found}) for each in (one, other))
    if rng.random() < 0.5:
        told = _beside(rng, told, near)
        then = _beside(rng, then, near_then) if rng.random() < 0.7 else then
    about = one.about
    link = Question(
        f"relation {keys[0]}", about.text, [f"who is {one.own}", f"what's the name of {one.own}"], [], [one.own], [one.own], (f"who is {keys[0]}",),
    )  # fmt: skip
    every = tuple({ask.format_map(about.fields).lower() for ask in case.slots[slot].asks})
    direct = [ask.format_map(about.fields) for ask in asks]
    second = Question(f"remark {case.name} {slot}|{about.key}", one.found, direct, [], [], [], every)
    facts = [hop_fact(told, link, about.text.lower()), hop_fact(then, second, about.text.lower())]
    if not all(writer.free(fact) for fact in facts):
        return None
    writer.subjects |= set(keys)
    return Chain(facts[0], facts[1], pick(rng, asks).format_map({"x": one.own, "xs": one.own + "'s", "xo": "them"}))


def play(writer) -> int:
    """Tell one or two chains, perhaps among other things, and ask for one of them."""
    return hops.play(writer, draw if writer.rng.random() < 0.5 else draw_relation)
