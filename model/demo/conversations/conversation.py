"""Whole conversations: facts are stated, updated and asked for, with unrelated text between them."""

import random
from dataclasses import dataclass, field

from . import filler, frames, names, values
from .phrasing import UNANSWERABLE, WORDINGS, Entity, Fact, answer_parts
from .relations import BY_KIND, RELATIONS, Relation
from .splits import draw, pick
from .words import ADJECTIVES, NOUNS

SYSTEMS = [
    "You are a helpful assistant with a long memory.", "You remember what the user tells you.",
    "Answer in one sentence.", "Answer from the conversation alone. Say so when you were not told.",
]  # fmt: skip


@dataclass
class Turn:
    """The user's text and the assistant's answer, prefix + value + suffix.

    kind: "stated", "updated" or "unanswerable" for a question, by what was said of its fact before; "talk" otherwise.
    """

    user: str
    prefix: str
    value: str = ""
    suffix: str = ""
    kind: str = "talk"
    # (turn, start, end): the sentence that holds the answer, in that turn's text.
    fact: tuple[int, int, int] | None = None
    distance: int = 0  # characters between that sentence and the question

    @property
    def assistant(self) -> str:
        return self.prefix + self.value + self.suffix


@dataclass
class Conversation:
    system: str
    turns: list[Turn]

    def messages(self, until: int | None = None) -> list[dict]:
        """Chat messages up to the question of turn `until` (without its answer), or all of them."""
        turns = self.turns if until is None else self.turns[: until + 1]
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in turns:
            messages += [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.assistant}]
        return messages if until is None else messages[:-1]


@dataclass
class _Known:
    value: str
    updated: bool = False
    asked: bool = False
    where: tuple[int, int, int] = (0, 0, 0)
    at: int = 0


@dataclass
class _Writer:
    """State of one conversation while it is generated. Lengths are in characters, of which a token has about 3.4."""

    rng: random.Random
    split: str
    wording: str
    turns: list[Turn] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)
    known: dict[tuple[Entity, Relation], _Known] = field(default_factory=dict)
    length: int = 0

    def new_entity(self, kind: str) -> Entity:
        shared = None
        if self.entities and self.rng.random() < 0.2:
            shared = self._made_up_word(pick(self.rng, self.entities))
        name = names.entity(self.rng, self.split, kind, shared)
        while any(e.name == name for e in self.entities):
            name = names.entity(self.rng, self.split, kind)
        if kind == "person":
            it, its = pick(self.rng, [("he", "his"), ("she", "her")])
            return Entity(name, kind, it, its)
        return Entity(name, kind)

    @staticmethod
    def _made_up_word(entity: Entity) -> str | None:
        return next(
            (w for w in entity.name.split() if w[0].isupper() and entity.kind not in ("thing", "book", "town")), None
        )

    def new_fact(self, entity: Entity | None = None, relation: Relation | None = None) -> Fact:
        rng = self.rng
        for _ in range(20):
            draw = rng.random()
            e, r = entity, relation
            if e is None and r is None and self.known:
                if draw < 0.45:
                    e = pick(rng, self.entities)
                elif draw < 0.68:
                    r = pick(rng, list(self.known))[1]
            if e is None:
                r = r or (self.open_relation() if rng.random() < _OPEN else pick(rng, RELATIONS))
                e = self.new_entity(pick(rng, r.kinds))
            if r is None and rng.random() < _OPEN:
                r = self.open_relation(e.kind)
            r = r or pick(rng, BY_KIND[e.kind])
            if e.kind in r.kinds and (e, r) not in self.known:
                return Fact(e, r, values.value(rng, self.split, r.value_type))
            entity = None if rng.random() < 0.5 else entity
        relation = relation or pick(rng, RELATIONS)
        return Fact(
            self.new_entity(pick(rng, relation.kinds)), relation, values.value(rng, self.split, relation.value_type)
        )

    def open_relation(self, kind: str | None = None) -> Relation:
        """A relation outside the lists ("the crimson lever of the Tarvin Ferry"): the answer repeats the question's noun."""
        rng = self.rng

        def noun(r) -> str:
            style = r.random()
            if style < 0.4:
                return f"{pick(r, ADJECTIVES)} {pick(r, NOUNS)}"
            if style < 0.7:
                return f"{pick(r, NOUNS)} {pick(r, ['number', 'name', 'size', 'level', 'code', 'rate', 'type', 'date', 'limit', 'list'])}"
            return pick(r, NOUNS) if style < 0.85 else names.word(r, self.split).lower()

        name = draw(rng, self.split, noun)
        return Relation(name, (kind or pick(rng, list(BY_KIND)),), pick(rng, values.TYPES), (name,), (), ())

    def state(self) -> list[tuple[str, list[Fact], bool]]:
        """The next statement: [(sentence, the facts that it states, whether it is an update)]."""
        rng, wording = self.rng, WORDINGS[self.wording]
        if self.known and rng.random() < 0.09:
            (entity, relation), known = pick(rng, list(self.known.items()))
            fact = Fact(entity, relation, values.value(rng, self.split, relation.value_type))
            if fact.value != known.value:
                return [(s, [fact], True) for s in wording.update(rng, fact, known.value, self.split)]
        facts = [self.new_fact()]
        if rng.random() < 0.22:
            first = facts[0]
            self._introduce(first.entity)
            second = (
                self.new_fact(entity=first.entity) if rng.random() < 0.6 else self.new_fact(relation=first.relation)
            )
            same = second.entity == first.entity, second.relation == first.relation
            if same in ((True, False), (False, True)):
                facts.append(second)
        sentences = wording.statement(rng, facts, self.split)
        return [(s, facts if i == len(sentences) - 1 else [], False) for i, s in enumerate(sentences)]

    def _introduce(self, entity: Entity) -> None:
        if entity not in self.entities:
            self.entities.append(entity)

    def text(self, sentences: int, density: float) -> str:
        """User text with the given density of statements. Records where each fact is."""
        rng, parts, position = self.rng, [], 0

        def add(text: str, joiner: str) -> int:
            nonlocal position
            if parts:
                parts.append(joiner)
                position += len(joiner)
            start = position
            parts.append(text)
            position += len(text)
            return start

        joiner = "\n" if rng.random() < 0.1 else " "
        while sentences > 0:
            if rng.random() < density:
                spans = [(add(s, joiner), s, facts, is_update) for s, facts, is_update in self.state()]
                start, end = spans[0][0], position
                for _, _, facts, is_update in spans:
                    for fact in facts:
                        self._introduce(fact.entity)
                        where = (len(self.turns), start, end)
                        self.known[fact.entity, fact.relation] = _Known(
                            fact.value, is_update, False, where, self.length + end
                        )
                sentences -= 1
            else:
                count = min(sentences, 1 + int(rng.random() * 5))
                add(filler.paragraph(rng, self.split, count), "\n\n" if count > 3 and rng.random() < 0.3 else joiner)
                sentences -= count
        return "".join(parts)

    def ask(self, before: str = "", *, prefer_updated: float = 0.2, unanswerable: float = 0.2) -> Turn:
        """A turn with a question, after the text `before` if given."""
        rng = self.rng
        kind, known = "unanswerable", None
        if rng.random() >= unanswerable:
            open_facts = [(k, f) for k, f in self.known.items() if not f.asked] or list(self.known.items())
            updated = [item for item in open_facts if item[1].updated]
            if open_facts:
                (entity, relation), known = pick(
                    rng, updated if updated and rng.random() < prefer_updated else open_facts
                )
                kind = "updated" if known.updated else "stated"
                known.asked = True
        if known is None:
            entity, relation = self._unstated()
        prefix, value, suffix = answer_parts(entity, relation, known.value if known else None)
        question = WORDINGS[self.wording].question(rng, entity, relation, self.split)
        user = f"{before}{pick(rng, [' ', chr(10), chr(10) * 2])}{question}" if before else question
        turn = Turn(user, prefix, value, suffix, kind)
        if known:
            turn.fact, turn.distance = known.where, self.length + len(before) - known.at
        return turn

    def _unstated(self) -> tuple[Entity, Relation]:
        rng = self.rng
        for _ in range(12):
            entity = pick(rng, self.entities) if self.entities and rng.random() < 0.7 else None
            if entity is None:
                relation = pick(rng, list(self.known))[1] if self.known and rng.random() < 0.6 else pick(rng, RELATIONS)
                return self.new_entity(pick(rng, relation.kinds)), relation
            relation = pick(rng, BY_KIND[entity.kind]) if rng.random() > _OPEN else self.open_relation(entity.kind)
            if (entity, relation) not in self.known:
                return entity, relation
        relation = pick(rng, RELATIONS)
        return self.new_entity(pick(rng, relation.kinds)), relation

    def talk(self) -> Turn:
        if self.rng.random() < 0.15:
            return Turn(filler.odd_script(self.rng), frames.CONFUSED)
        answer, forms = pick(self.rng, frames.SMALL_TALK)
        text = pick(self.rng, forms)
        text = text.capitalize() if self.rng.random() < 0.7 else text
        return Turn(text + pick(self.rng, [".", "!", "", "?"]), answer)

    def append(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.length += len(turn.user) + len(turn.assistant) + 16


_OPEN = 0.08  # fraction of new facts with a relation outside the lists
_OVERHEAD = 90  # approximate characters of a question and its answer


def write(
    seed,
    *,
    length: int,
    split: str = "test",
    wording: str | None = None,
    questions: int | None = None,
    density: float | None = None,
    unanswerable: float = 0.2,
    prefer_updated: float = 0.2,
) -> Conversation:
    """A conversation of about `length` characters, which depends only on the arguments.

    split: of names and values. wording: split of phrasings; None: the same. questions: their number; half of them follow all
    statements. density: fraction of statements among the user's sentences; None: random, from 0.15 to 1. unanswerable:
    fraction of questions about facts that were not stated. prefer_updated: probability of asking for an updated fact, if any.
    """
    rng = random.Random(f"{seed} {length} {split} {wording}")
    writer = _Writer(rng, split, wording or split)
    if questions is None:
        questions = max(3, min(40, int(length**0.5 / 6)))
    if density is None:
        density = 0.15 + 0.85 * rng.random()
    body = max(length - questions * _OVERHEAD, length // 3)
    asked_early = 0
    early = questions // 2 if length > 1200 else questions // 3
    while writer.length - asked_early * _OVERHEAD < body:
        if rng.random() < 0.04:
            writer.append(writer.talk())
            continue
        left = body - (writer.length - asked_early * _OVERHEAD)
        sentences = min(int(1 + rng.random() ** 2 * (8 if rng.random() < 0.7 else 60)), left // 60 + 1)
        dense = density if rng.random() < 0.9 else 0.0
        text = writer.text(sentences, dense)
        due = asked_early < early and writer.known and rng.random() < 0.5
        if due and rng.random() < 0.4:
            writer.append(writer.ask(text, unanswerable=unanswerable, prefer_updated=prefer_updated))
            asked_early += 1
            continue
        writer.append(Turn(text, pick(rng, frames.ACKNOWLEDGEMENTS if dense else frames.READ_REPLIES)))
        progress = writer.length / length
        while asked_early < early * progress and writer.known and rng.random() < 0.8:
            writer.append(writer.ask(unanswerable=unanswerable, prefer_updated=prefer_updated))
            asked_early += 1
    for _ in range(questions - asked_early):
        writer.append(writer.ask(unanswerable=unanswerable, prefer_updated=prefer_updated))
    return Conversation(pick(rng, SYSTEMS) if rng.random() < 0.15 else "", writer.turns)


__all__ = ["UNANSWERABLE", "Conversation", "Turn", "write"]
