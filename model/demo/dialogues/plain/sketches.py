"""Short sketches: one or two subjects, a few constituents of each, and at once a question for one that was told or for one that was not.

Sentences are composed: a subject and its verb with any of its adjuncts in any order, or clauses joined by "and". So the same words
stand beside many others, and only the constituents say what can be asked. texts/sketches.txt: a block is a kind of subject,
    @ name | pronoun: subject; … | verbs
    role | kind of value | adjuncts; … | clauses; … | questions; … | noun phrases; … | changes; …
{e} is the subject, {es} its possessive, {n} the same without its article, {m} its object pronoun, {v} a value and {o} the one before.
A question for a role that nothing has told of this subject, or for a told role of a subject like it, is refused.
"""

import re
from dataclasses import dataclass, field

from .. import manners, names, texts
from ..lexicon import ADJECTIVES
from ..phrases import Fact, Phrase, Question, capital
from ..splits import FUNCTION_WORDS, SPLITS, pick, split_of
from ..turns import REFUSAL, Known, Turn
from . import topics
from .telling import Telling
from .topics import HE, PRONOUNS, SHE, Subject

_START = re.compile(r"^(when|until when|from when)\b")
_NAMED = [(form, split_of(f"named change {form}")) for form in texts.read("changes_named").strip().splitlines()]
NAMED = {split: [form for form, of in _NAMED if of == split] for split in SPLITS}
_RESTATED = "{s} now|from now on {s}|update: {s}|correction: {s}|actually {s}|no, {s}|change of plan: {s}|so now {s}|{s} after all|news: {s}|turns out {s}".split(
    "|"
)


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


def _subject(rng, split: str, block: Block) -> Subject:
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


def _beside(asked: str, subject: str) -> set[str]:
    """The words of a question that carry meaning, beside its subject's."""
    said = set(re.findall(r"[a-z]+", subject.lower()))
    return {word for word in re.findall(r"[a-z]+", asked.lower()) if word not in _SMALL | said}


_SMALL = FUNCTION_WORDS | set("what's me my us our need needs get got s you know tell say look remember".split())


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
            asks = [ask for ask in asks if not _START.match(ask)]
        return Question(
            f"sketch {self.block.name} {role}|{about.key}", value, asks, [f"what {n} is" for n in nouns if n.startswith("the ")],
            nouns, [], tuple(sorted(every)), "", [], [n for n in nouns if n.startswith("the ")],
        )  # fmt: skip


class Sketch(Telling):
    """Writes one sketch into a conversation."""

    def draw(self, like: Block | None = None) -> Sketched | None:
        block = like or pick(self.rng, BY_SPLIT[self.wording])
        about = _subject(self.rng, self.split, block)
        if self.writer.mentions(about.key):
            return None
        self.writer.subjects.add(about.key)
        return Sketched(block, about)

    def values(self, of: Sketched, count: int) -> list[str]:
        """New values for up to so many roles that were not told; returns the roles."""
        rng, fresh = self.rng, [r for r in of.block.tellable(self.wording) if r not in of.values]
        chosen: list[str] = []
        for _ in range(min(count, len(fresh))):
            role = pick(rng, [r for r in fresh if r not in chosen])
            value = topics.value(rng, self.split, of.block.roles[role].kind)
            taken = " | ".join([*of.values.values(), of.about.text]).lower()
            if value.lower() in taken or any(v.lower() in value.lower() for v in of.values.values()):
                continue
            of.values[role] = value
            chosen.append(role)
        return chosen

    def tell(self, of: Sketched, count: int) -> list[str]:
        """A sentence about it, of one or more constituents."""
        rng, split = self.rng, self.wording
        roles = self.values(of, count)
        if not roles:
            return []
        known = fields(of.about)
        name = (
            of.about.text
            if not of.values.keys() - set(roles) or rng.random() < 0.5 or len(self.drawn) > 1
            else known["they"]
        )
        together = [r for r in roles if of.block.roles[r].adjuncts[split]]
        if together and (rng.random() < 0.6 or not of.block.roles[together[0]].clauses[split]):
            parts = [
                pick(rng, of.block.roles[r].adjuncts[split]).format_map({**known, "v": of.values[r]}) for r in together
            ]
            verb = pick(rng, of.block.verbs)
            if len(parts) > 1 and rng.random() < 0.15:
                sentence = f"{parts[0]}{pick(rng, [',', ''])} {name} {verb} {' '.join(parts[1:])}"
            else:
                sentence = f"{name} {verb} {' '.join(parts)}"
            told = together
        else:
            told = [r for r in roles if of.block.roles[r].clauses[split]][:3]
            parts = [pick(rng, of.block.roles[r].clauses[split]).format_map({**known, "v": of.values[r]}) for r in told]
            sentence = f"{name} {parts[0]}" + "".join(
                f"{pick(rng, [' and ', ', and ', ' and also ', ', but '])}{p}" for p in parts[1:]
            )
        if not told or not self.state(of, told, sentence):
            told = []
        for role in set(roles) - set(told):
            del of.values[role]
        return told

    def state(self, of: Sketched, roles: list[str], sentence: str, other: tuple[Sketched, str] | None = None) -> bool:
        """Say a sentence that tells these roles, and one of another subject, if given."""
        questions = [of.question(role, self.wording) for role in roles]
        if other:
            questions.append(other[0].question(other[1], self.wording))
        phrase = Phrase(of.about.text, of.about.key, "story")
        facts = [Fact(capital(sentence), [q], phrase, None, [], "", "topic sketch") for q in questions if q.direct]
        if not all(self.writer.free(fact) for fact in facts):
            return False
        self.say(article(capital(sentence)), [(fact, "") for fact in facts])
        return bool(facts)

    def parallel(self, one: Sketched, other: Sketched) -> list[str]:
        """ "The blue folder holds bills and the red folder holds letters": one role of two subjects in a sentence."""
        rng, split = self.rng, self.wording
        roles = [r for r in self.values(one, 1) if one.block.roles[r].clauses[split]]
        if not roles:
            one.values.clear()
            return []
        role = roles[0]
        made = one.block.roles[role]
        value = topics.value(rng, self.split, made.kind)
        if value.lower() in one.values[role].lower() or one.values[role].lower() in value.lower():
            one.values.clear()
            return []
        other.values[role] = value
        clause = pick(rng, made.clauses[split])
        halves = [
            f"{who.about.text} {clause.format_map({**fields(who.about), 'v': who.values[role]})}"
            for who in (one, other)
        ]
        ok = self.state(
            one, [role], pick(rng, [" and ", ", ", " while ", " but ", "; ", ", and "]).join(halves), (other, role)
        )
        if not ok:
            one.values.clear()
            other.values.clear()
        return [role] if ok else []

    # Changes

    def change(self, of: Sketched, role: str) -> bool:
        """A new value, in a sentence that names the subject, or the old value, or nothing else, right behind the old one."""
        rng, made = self.rng, of.block.roles[role]
        known = self.writer.known.get(of.signature(role))
        if known is None or known.fact is None or known.question.value.lower() != of.values[role].lower():
            return False
        new, old = topics.value(rng, self.split, made.kind), of.values[role]
        told = [v.lower() for each in self.drawn for v in each.values.values()]
        if any(v in new.lower() or new.lower() in v for v in told):
            return False
        slots = fields(of.about, v=new, o=old)
        alone = len(self.drawn) == 1
        rivals = [
            r
            for each in self.drawn
            for r in each.values
            if (each, r) != (of, role) and topics.alike(each.block.roles[r].kind, made.kind)
        ]
        forms = [form.format_map(slots) for form in made.changes[self.wording]]
        if not alone or rivals:  # nothing but the value before says what is meant
            forms = [form for form in forms if old in form]
        named = [form.format_map(slots) for form in NAMED[self.wording]]
        said = [f"{of.about.text} {clause.format_map(slots)}" for clause in made.clauses[self.wording]]
        restated = [pick(rng, _RESTATED).format(s=s) for s in said]
        style = rng.random()
        chosen = forms if forms and style < 0.45 else restated if restated and style < 0.75 else named
        if not chosen:
            return False
        sentence = article(pick(rng, chosen))
        if new not in sentence:
            return False
        of.values[role] = new
        phrase = Phrase(of.about.text, of.about.key, "story")
        fact = Fact(capital(sentence), [of.question(role, self.wording)], phrase, None, [], "", "topic sketch")
        self.say(capital(sentence), [(fact, old)])
        return True

    # Questions

    drawn: list[Sketched]

    def untold(self, of: Sketched) -> Question | None:
        """A question that resembles what was told of it and has no answer."""
        rng, roles = self.rng, of.block.roles
        fresh = [name for name in roles if name not in of.values]
        if fresh and rng.random() < 0.72:
            role = pick(rng, fresh)
            question = of.question(role, self.wording)
            clash = {"day": "time", "time": "day"}.get(role)
            if clash in of.values:
                question.direct = [ask for ask in question.direct if not _START.match(ask)]
        else:  # a told role of another subject
            about = _subject(rng, self.split, of.block)
            if rng.random() < 0.25 and of.about.text.split()[0] in ("the", "my", "our") and of.block.name != "person":
                determiner, noun = of.about.text.split(" ", 1)
                about = Subject(f"{determiner} {pick(rng, ['old', 'other', 'second', 'new'])} {noun}", of.about.pronoun)
            if self.writer.mentions(about.key) and " ".join(about.key.split()[1:]) != of.about.key:
                return None
            if any(about.key == each.about.key for each in self.drawn):
                return None
            question = of.question(pick(rng, list(of.values)), self.wording, about)
        return question if question.direct else None

    def refuse(self, of: Sketched) -> bool:
        question = self.untold(of)
        if question is None or question.signature in self.writer.taken:
            return False
        if self.rng.random() < 0.5:
            self.writer.missing.append(question)
        asked = self.worded(of, question)
        if not re.search(r"(?i)\b(how|who|whose|where|when|whom)", asked) and not _beside(asked, of.about.text):
            return False  # the subject alone: any sentence about it would do
        if self.parts and self.rng.random() < 0.7:
            self.send()
        before, self.parts = "".join(self.parts).rstrip(), []
        thinks = self.rng.random() < self.writer.thinking
        thought = [("Nothing was said about that.", REFUSAL)] if thinks else None
        text = self.writer.join(before, asked)
        self.writer.append(Turn(text, [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought))
        self.fresh = self.fresh and question.signature.endswith(f"|{of.about.key}")  # nobody else was named
        self.asked += 1
        return True

    def worded(self, of: Sketched, question: Question) -> str:
        return self.writer.phrase_question(self.turned(of, question))

    def turned(self, of: Sketched, question: Question) -> Question:
        """Now and then with a pronoun, where one subject alone was told: "what time does it start"."""
        if len(self.drawn) > 1 or not self.fresh or self.rng.random() > 0.25 or of.about.text not in question.direct[0]:
            return question
        role = question.signature.split("|")[0].rsplit(" ", 1)[1]
        they, them, their, _ = PRONOUNS[of.about.pronoun]
        slots = {**fields(of.about), "e": they, "es": their}
        forms = [ask.format_map(slots) for ask in of.block.roles[role].asks_of[self.wording] if "{n}" not in ask]
        forms = [
            re.sub(rf"\b(to|for|with|into|at|on|in|reach|call|open) {they}\b", rf"\1 {them}", form) for form in forms
        ]
        forms = [form for form in forms if not ({"day", "time"} <= of.values.keys() and _START.match(form))]
        clash = {"day": "time", "time": "day"}.get(role)
        forms = [form for form in forms if not (clash in of.values and _START.match(form))]
        return Question(question.signature, question.value, forms or question.direct, [], [], [], question.aliases)

    def answered(self, of: Sketched, role: str) -> None:
        known = self.writer.known.get(of.signature(role))
        if known is None or not known.question.direct:
            return
        near = Known(**{**known.__dict__, "question": self.turned(of, known.question)}) if self.fresh else known
        known.asked = True
        self.ask_plain(near)

    def ask_plain(self, known: Known) -> None:
        if self.parts and self.rng.random() < 0.7:
            self.send()
        before, self.parts = "".join(self.parts).rstrip(), []
        self.writer.append(self.writer.ask_for(known, before))
        self.asked += 1

    fresh = True  # whether nothing else was said since


def play(writer) -> int:
    """Append a sketch to the conversation; returns the number of its questions."""
    rng, sketch = writer.rng, Sketch(writer)
    sketch.drawn = []
    one = sketch.draw()
    if one is None:
        return 0
    sketch.drawn.append(one)
    if rng.random() < 0.3 and (other := sketch.draw(one.block if rng.random() < 0.6 else None)) is not None:
        sketch.drawn.append(other)
        if other.block is one.block and rng.random() < 0.6:
            sketch.parallel(one, other)
    for each in sketch.drawn:
        for _ in range(1 + int(rng.random() * 1.6)):
            sketch.tell(each, 1 + int(rng.random() * 2.6))
    sketch.drawn = [each for each in sketch.drawn if each.values]
    if not sketch.drawn:
        sketch.send()
        return 0
    for _ in range(1 + int(rng.random() * 2.2)):
        of = pick(rng, sketch.drawn)
        if not of.values:
            continue
        role = pick(rng, list(of.values))
        if rng.random() < 0.4 and sketch.change(of, role):
            if rng.random() < 0.5:
                sketch.send()
            if rng.random() < 0.7 * writer.asks_at_once:
                sketch.answered(of, role)
        elif rng.random() < 0.9 * writer.asks_at_once:
            if rng.random() < 0.4:
                sketch.refuse(of)
            else:
                sketch.answered(of, role)
    sketch.send()
    return sketch.asked
