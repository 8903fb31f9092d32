"""Questions of two facts, perhaps next to two others like them: "Kwabena plays for the Otters; Luca plays for the Wasps. The Otters train at
the mill, the Wasps at the quarry. Where does Luca train?"

A block of texts/*_links.txt is a link of two facts:
    @ x:who or x=… | b: kind of what the first fact names | v: kind of what the second one tells | r: words for {r}
    1> first statements     1? questions for {b}     2> second statements     2? questions for {v} by {b}
    q? questions for {v} that name {x}
{xs} and {bs} are possessives. Other chains are of cases: two have the same; or somebody is somebody's something, and has something told.
"""

import re
from dataclasses import dataclass
from itertools import permutations

from . import cases, names
from .cases import MATTERS, Case, Subject, by_split, draw, key_of, named, somebody, subject, without_verb
from .message import Message, Told
from .splits import SPLITS, Forms, divide, own, pick, share
from .texts import blocks, listed
from .turns import Chain, Question
from .typing import FRAMES
from .values import article, capital
from .writer import Writer

Fact = tuple[str, Question]
_JOINS = (" and ", "; ", ", ", ", and ", " while ", ", whereas ", " but ")
_GAPPED = (" and ", "; ", ", ", ", and ")
_SOMEBODY = frozenset(("person", "firstname", "titled"))


@dataclass(frozen=True)
class _Link:
    subjects: tuple[str, ...]  # ("who",) or a list
    named: str
    value: str
    relations: tuple[str, ...]
    forms: dict[str, Forms]  # of each mark

    def of(self, mark: str, split: str) -> tuple[str, ...]:
        return self.forms[mark][split] if mark == "q?" else own(self.forms[mark], split)


def _parse(lines: list[str]) -> _Link:
    who, b, kind, *others = (part.strip() for part in lines[0].removeprefix("@ ").split("|"))
    relations = listed(others[0].removeprefix("r:"), ",") if others else ("",)
    subjects = ("who",) if who == "x:who" else listed(who.removeprefix("x="), ",")
    forms = {}
    for mark, rest in (line.split(" ", 1) for line in lines[1:]):
        forms[mark] = (divide if mark in ("1>", "2>") else share)(listed(rest), f"link {lines[0]} {mark}")
    return _Link(subjects, b.removeprefix("b:"), kind.removeprefix("v:"), relations, forms)


_LINKS = [_parse(lines) for name in ("remark_links", "matter_links", *["near_links"] * 3) for lines in blocks(name)]
_BY_SPLIT = {
    split: [link for link in _LINKS if link.of("q?", split) and (link.forms["1>"][split] or link.forms["2>"][split])]
    for split in SPLITS
}


def _overlap(texts: list[str]) -> bool:
    low = [text.lower() for text in texts]
    return min(map(len, low)) < 2 or any(one in other for one, other in permutations(low, 2))


def _two(rng, form: str, key: str, found: str, fields: list[dict[str, str]]) -> str:
    """One sentence of the form about the two, in either order; the second clause may leave out its verb."""
    short = without_verb(form, key, found)
    one, other = fields if rng.random() < 0.6 else fields[::-1]
    if short is not None and rng.random() < 0.6:
        return form.format_map(one) + pick(rng, _GAPPED) + short.format_map(other)
    return form.format_map(one) + pick(rng, _JOINS) + form.format_map(other)


def _linked(writer: Writer) -> Chain | None:
    """A link whose two facts can be told, by themselves or next to two of the same kind."""
    rng, split, wording = writer.rng, writer.split, writer.wording
    link = pick(rng, _BY_SPLIT[wording])
    relation, mine = pick(rng, link.relations), link.subjects[0] == "my"
    fields, keys = [], []
    for _ in range(1 if mine or rng.random() < 0.5 else 2):
        about = somebody(rng, split) if link.subjects == ("who",) else subject(pick(rng, link.subjects))
        b, v = cases.value(rng, split, link.named), cases.value(rng, split, link.value)
        fields.append({**about.fields, "b": b, "bs": b + "'s", "v": v, "r": relation})
        keys.append((f"my {relation}" if mine else about.key, key_of(b)))
    every = [key for pair in keys for key in pair]
    if _overlap([f[name] for f in fields for name in ("x", "b", "v")]) or any(writer.mentions(key) for key in every):
        return None

    def fact(mark: str, key: str, found: str, ends: tuple[str, str]) -> Fact:
        asks = [article(form.format_map(fields[0])) for form in link.of(f"{mark}?", wording)]
        known = [form.format_map(fields[0]).lower() for forms in link.forms[f"{mark}?"].values() for form in forms]
        form = pick(rng, link.of(f"{mark}>", wording))
        told = _two(rng, form, *ends, fields) if len(fields) > 1 and rng.random() < 0.75 else form.format_map(fields[0])
        return capital(article(told)), Question(f"hop {mark} {link.value}|{key}", found, asks, names=tuple(known))

    first = fact("1", keys[0][0], fields[0]["b"], ("x", "b"))
    second = fact("2", keys[0][1], fields[0]["v"], ("b", "v"))
    writer.subjects |= set(every)
    return Chain(first, second, article(pick(rng, link.of("q?", wording)).format_map(fields[0])))


def _told_of(writer: Writer, case: Case, about: Subject, slot: str | None = None) -> tuple[Told, str, Fact] | None:
    """What a case tells of somebody: (it, its slot, the fact)."""
    forms = case.single(writer.wording, slot)
    if not forms:
        return None
    form = pick(writer.rng, forms)
    told, slot = Told(case, about), slot or case.told_by(form)[0]
    told.values[slot] = cases.value(writer.rng, writer.split, case.slots[slot].kind)
    question = told.question(slot, writer.wording)
    if not question.asks or _overlap([told.values[slot], about.text]):
        return None
    return told, slot, (capital(cases.said(form, told.fields | told.values)), question)


_SAME = [(c, name) for c in MATTERS for name, slot in c.slots.items() if slot.same["train"]]


def _same(writer: Writer) -> Chain | None:
    """The first fact says that two have the same: "Ana shares an office with Raj"."""
    rng, wording = writer.rng, writer.wording
    case, slot = pick(rng, _SAME)
    one, other = draw(rng, writer.split, case), draw(rng, writer.split, case)
    if set(one.key.split()) & set(other.key.split()) or any(writer.mentions(about.key) for about in (one, other)):
        return None
    made = _told_of(writer, case, one, slot)
    if made is None:
        return None
    fields = {**one.fields, "z": other.text, "x2": other.text}
    ask = case.slots[slot].same_ask.format_map(fields)
    link = Question(f"hop {other.key}", one.text, [ask], names=(f"same {slot}|{other.key}",))
    first = capital(article(pick(rng, own(case.slots[slot].same, wording)).format_map(fields)))
    writer.subjects |= {one.key, other.key}
    asks = made[0].asks(slot, wording, other.fields)
    return Chain((first, link), made[2], pick(rng, asks)) if asks else None


_PEOPLE = {split: [c for c in found if c.somebody and not c.genus and c.name not in ("partner", "child", "sibling", "birth", "person2", "debt", "lent", "gift")] for split, found in by_split(MATTERS).items()}  # fmt: skip
_NAMING = [(c, name, nouns) for c in MATTERS for name, s in c.slots.items() if s.kind in _SOMEBODY and (nouns := [n for n in s.nouns if "name" not in n])]  # fmt: skip
_OWNERS = (*("my", "our") * 2, "my sister's", "my brother's", "my mum's", "my boss's", "my friend's", "my neighbour's", "the club's", "the company's", "the school's", "the band's")  # fmt: skip
_CLAUSE = re.compile(r"\b(who|whoever|person|one|where|at|\w+ing)\b")


def _named(writer: Writer) -> Chain | None:
    """The first fact names whom the second one is about: "My boss is Ingrid. Ingrid lives in Cork. Where does my boss live?"."""
    rng, split, wording = writer.rng, writer.split, writer.wording
    case, slot, nouns = pick(rng, _NAMING)
    owner = draw(rng, split, case)
    keys = case.keys or (owner.key,)
    made = _told_of(writer, case, owner, slot)
    if made is None or any(writer.mentions(key) for key in keys):
        return None
    one, _, first = made
    name = one.values[slot]
    first_name = name.split()[0]
    whole = case.slots[slot].kind != "person" or not first_name.isalpha() or rng.random() >= 0.3
    short = name if whole else first_name
    about = named(short, pick(rng, ["she", "he"]))
    if writer.mentions(name.lower()) or writer.mentions(short.lower()):
        return None
    found = _told_of(writer, pick(rng, _PEOPLE[wording]), about)
    if found is None or found[0].case is case or _overlap([owner.text, name, found[2][1].value]):
        return None
    told, asked, second = found
    noun = pick(rng, nouns).format_map(owner.fields)
    asks = told.asks(asked, wording, subject(noun, about.they).fields)
    asks = [ask for ask in asks if noun in ask and (not _CLAUSE.search(noun) or noun + "'s" not in ask)]
    if rng.random() < 0.15:
        second = (_with_pronoun(second[0], about), second[1])
    writer.subjects |= {*keys, name.lower()}
    return Chain(first, second, pick(rng, asks)) if asks else None


def _with_pronoun(sentence: str, about: Subject) -> str:
    """ "Ingrid's number is 5" as "Her number is 5", where she stands at its beginning and nowhere else."""
    rest = sentence.removeprefix(capital(about.text))
    if rest == sentence or about.text in rest:
        return sentence
    return capital(about.fields["xr"] + rest[2:] if rest.startswith("'s ") else about.they + rest)


def _relation(writer: Writer) -> Chain | None:
    """Somebody is somebody's something, and has something told; perhaps next to another one. The question names the relation."""
    rng, split, wording = writer.rng, writer.split, writer.wording
    case = pick(rng, _PEOPLE[wording])
    forms = case.single(wording)
    if not forms:
        return None
    form = pick(rng, forms)
    slot = case.told_by(form)[0]
    holders = []
    for _ in range(2):
        owner = pick(rng, _OWNERS) if rng.random() < 0.75 else names.given(rng, split) + "'s"
        last = rng.random() < 0.5
        full = names.given(rng, split) + (f" {names.surname(rng, split)}" if last else "")
        about = subject(names.accented(rng, full) if rng.random() < 0.1 else full, pick(rng, ["she", "he"]))
        found = cases.value(rng, split, case.slots[slot].kind)
        holders.append((f"{owner} {pick(rng, own(FRAMES['relations'], wording))}", about, found))
    (mine, about, found), _ = holders
    keys = [key for relation, who, _ in holders for key in (key_of(relation), who.key)]
    asks = [ask for ask in case.slots[slot].asks_of[wording] if "{xp}" not in ask and "{xr}" not in ask]
    if not asks or any(writer.mentions(key) for key in keys):
        return None
    if _overlap([text for relation, who, value in holders for text in (relation, who.text, value)]):
        return None
    whose = writer.frame("whose")
    told = [whose.format(d=relation, b=who.text) for relation, who, _ in holders]
    then = [cases.said(form, {**who.fields, slot: value}) for _, who, value in holders]
    if rng.random() < 0.5:
        order = 1 if rng.random() < 0.6 else -1
        told[0] = pick(rng, _JOINS).join(told[::order])
        then[0] = pick(rng, _JOINS).join(then[::order]) if rng.random() < 0.7 else then[0]
    who = [f"who is {mine}", f"what's the name of {mine}"]
    link = Question(f"relation {keys[0]}", about.text, who, [mine], [mine], (f"who is {keys[0]}",))
    direct = [ask.format_map(about.fields) for ask in asks]
    every = tuple({ask.format_map(about.fields).lower() for ask in case.slots[slot].asks})
    second = Question(f"{case.name} {slot}|{about.key}|", found, direct, names=every)
    writer.subjects |= set(keys)
    asked = pick(rng, asks).format_map({"x": mine, "xs": mine + "'s", "xo": "them"})
    return Chain((capital(article(told[0])), link), (capital(then[0]), second), asked)


_DRAWS = (_linked, _linked, _linked, _relation, _relation, _named, _same)


def play(writer: Writer) -> int:
    """Tell one or two chains, and ask for one of them; returns the number of questions. Now and then the second fact is left out."""
    rng, message = writer.rng, Message(writer)
    found: list[Chain] = []
    for _ in range(1 + int(rng.random() * 2.5)):
        chain = pick(rng, _DRAWS)(writer)
        if chain is None or any(chain.names & other.names for other in found):
            continue
        facts = [chain.first, chain.second]
        if not all(fact[1].value.lower() in fact[0].lower() and writer.free(fact[1]) for fact in facts):
            continue
        if not found and rng.random() < 0.05:
            message.say(chain.first[0], [chain.first[1]])
            writer.append(writer.refuse_chain(chain, message.before()))
            return 1
        found.append(chain)
        pronoun = re.match(r"(She|He|It|Her|His|Its)\b", chain.second[0])
        if not pronoun and rng.random() < 0.3:
            facts.reverse()
        message.say(facts[0][0], [facts[0][1]])
        if not pronoun and rng.random() < 0.5:
            message.send()
        message.say(facts[1][0], [facts[1][1]])
        writer.chains.append(chain)
        if rng.random() < 0.4:
            message.send()
    if not found:
        return 0
    asked = 0
    if rng.random() < 0.8 * writer.asks_at_once and (ready := [c for c in writer.ready() if c in found]):
        chain, before = pick(rng, ready), message.before()
        writer.append(writer.ask_chain(chain, before, rng.random() < max(writer.thinking, 0.65)))
        asked = 1
    message.send()
    return asked
