"""Whole conversations: facts told, changed and asked for, with stretches of unrelated text between."""

import random
from dataclasses import dataclass, field

from . import filler, frames, names, values
from .phrasing import NOT_TOLD, WORDINGS, Entity, Fact, answer_parts
from .relations import BY_KIND, RELATIONS, Relation
from .splits import draw, pick
from .words import ADJECTIVES, NOUNS

SYSTEMS = [
    "You are a helpful assistant with a long memory.", "You remember what the user tells you.",
    "Answer in one sentence.", "Answer from the conversation alone. Say so when you were not told.",
]  # fmt: skip


@dataclass
class Turn:
    """The user's text and the assistant's answer: prefix + value + suffix. `kind` is told, changed, not_told, or talk."""

    user: str
    prefix: str
    value: str = ""
    suffix: str = ""
    kind: str = "talk"
    fact: tuple[int, int, int] | None = (
        None  # (turn, start, end): the sentence that holds the answer, in that turn's text
    )
    distance: int = 0  # characters between that sentence and the question

    @property
    def assistant(self) -> str:
        return self.prefix + self.value + self.suffix


@dataclass
class Conversation:
    system: str
    turns: list[Turn]

    def messages(self, until: int | None = None) -> list[dict]:
        """Chat messages up to the question of turn `until` (its answer left out), or all of them."""
        turns = self.turns if until is None else self.turns[: until + 1]
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in turns:
            messages += [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.assistant}]
        return messages if until is None else messages[:-1]


@dataclass
class _Known:
    value: str
    changed: bool = False
    asked: bool = False
    where: tuple[int, int, int] = (0, 0, 0)
    at: int = 0


@dataclass
class _Writer:
    """State of one conversation while it is written. Lengths are in characters (3.4 to a token or so)."""

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
        """A relation that no list has ("the crimson lever of the Tarvin Ferry"): the answer takes the noun from the question."""
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

    def tell(self) -> list[tuple[str, list[Fact], bool]]:
        """The next statement: [(sentence, facts stated by it, is it a change)]."""
        rng, wording = self.rng, WORDINGS[self.wording]
        if self.known and rng.random() < 0.09:
            (entity, relation), known = pick(rng, list(self.known.items()))
            fact = Fact(entity, relation, values.value(rng, self.split, relation.value_type))
            if fact.value != known.value:
                return [(s, [fact], True) for s in wording.change(rng, fact, known.value, self.split)]
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
        """A stretch of user text with statements at the density, noting where each fact stands."""
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
                spans = [(add(s, joiner), s, facts, change) for s, facts, change in self.tell()]
                start, end = spans[0][0], position
                for _, _, facts, change in spans:
                    for fact in facts:
                        self._introduce(fact.entity)
                        where = (len(self.turns), start, end)
                        self.known[fact.entity, fact.relation] = _Known(
                            fact.value, change, False, where, self.length + end
                        )
                sentences -= 1
            else:
                count = min(sentences, 1 + int(rng.random() * 5))
                add(filler.paragraph(rng, self.split, count), "\n\n" if count > 3 and rng.random() < 0.3 else joiner)
                sentences -= count
        return "".join(parts)

    def ask(self, before: str = "", *, prefer_changed: float = 0.2, not_told: float = 0.2) -> Turn:
        """A question turn, `before` (text with facts) in front of it."""
        rng = self.rng
        kind, known = "not_told", None
        if rng.random() >= not_told:
            open_facts = [(k, f) for k, f in self.known.items() if not f.asked] or list(self.known.items())
            changed = [item for item in open_facts if item[1].changed]
            if open_facts:
                (entity, relation), known = pick(
                    rng, changed if changed and rng.random() < prefer_changed else open_facts
                )
                kind = "changed" if known.changed else "told"
                known.asked = True
        if known is None:
            entity, relation = self._untold()
        prefix, value, suffix = answer_parts(entity, relation, known.value if known else None)
        question = WORDINGS[self.wording].question(rng, entity, relation, self.split)
        user = f"{before}{pick(rng, [' ', chr(10), chr(10) * 2])}{question}" if before else question
        turn = Turn(user, prefix, value, suffix, kind)
        if known:
            turn.fact, turn.distance = known.where, self.length + len(before) - known.at
        return turn

    def _untold(self) -> tuple[Entity, Relation]:
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


_OPEN = 0.08  # share of new facts with a relation of their own
_OVERHEAD = 90  # characters of a question and its answer, about


def write(
    seed,
    *,
    length: int,
    split: str = "test",
    wording: str | None = None,
    questions: int | None = None,
    density: float | None = None,
    not_told: float = 0.2,
    prefer_changed: float = 0.2,
) -> Conversation:
    """A conversation of about `length` characters, the same for the same arguments.

    split: whose names and values; wording: whose phrasings (default the same split). questions: how many, half of them after
    everything was told. density: share of statements among the user's sentences, drawn from 0.15 to 1 if not given.
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
            writer.append(writer.ask(text, not_told=not_told, prefer_changed=prefer_changed))
            asked_early += 1
            continue
        writer.append(Turn(text, pick(rng, frames.ACKNOWLEDGEMENTS if dense else frames.READ_REPLIES)))
        progress = writer.length / length
        while asked_early < early * progress and writer.known and rng.random() < 0.8:
            writer.append(writer.ask(not_told=not_told, prefer_changed=prefer_changed))
            asked_early += 1
    for _ in range(questions - asked_early):
        writer.append(writer.ask(not_told=not_told, prefer_changed=prefer_changed))
    return Conversation(pick(rng, SYSTEMS) if rng.random() < 0.15 else "", writer.turns)


__all__ = ["NOT_TOLD", "Conversation", "Turn", "write"]
