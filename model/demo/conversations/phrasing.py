"""Turns facts and questions into sentences: frames, inflection, lead-ins, pronouns, several facts in a sentence."""

import re
from dataclasses import dataclass

from . import frames, names
from .relations import RELATIONS, Relation
from .splits import FUNCTION_WORDS, SPLITS, content_words, divide, pick, third_person
from .words import ADJECTIVES, NOUNS, PLACES

_AUXILIARIES = """will|is going to|is supposed to|is meant to|has to|is set to|should|seems to|is said to|tends to|ought to
is expected to|happens to|is known to|is sure to|is likely to|does indeed|appears to|is bound to|must""".replace(
    "\n", "|"
)
_ADVERBS = "now|always|usually|currently|normally|officially|still|apparently|really|in fact|generally|regularly".split(
    "|"
)


@dataclass(frozen=True)
class Entity:
    name: str
    kind: str
    it: str = "it"
    its: str = "its"

    @property
    def possessive(self) -> str:
        return self.name + "'s"

    @property
    def for_assistant(self) -> str:
        """The name in the assistant's answer: "my kettle" becomes "your kettle"."""
        for own in ("my ", "our "):
            if self.name.startswith(own):
                return "your " + self.name[len(own) :]
        return self.name


@dataclass(frozen=True)
class Fact:
    entity: Entity
    relation: Relation
    value: str


def _split_list(text: str) -> dict[str, list[str]]:
    return divide([part.strip() for line in text.splitlines() for part in line.split("|") if part.strip()])


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


_VERB = re.compile(r"\[(\w+)\]")
_DOES = re.compile(r"^(.*?)\b(?:does|do|did) \{e\} (.*)$")
_IS = re.compile(r"^((?:.*? )?(?:where|when|who|whom|what|how|which)\b[^{]*?)\b(is|was|can|must|may) \{e\}(.*)$")


def _indirect(question: str) -> str | None:
    """ "when does {e} [open]" → "when {e} opens", "where is {e} kept" → "where {e} is kept"; None where it does not apply."""
    if match := _DOES.match(question):
        if "did" in question:
            return None
        return match[1] + "{e} " + _VERB.sub(lambda m: third_person(m[1]), match[2])
    if match := _IS.match(question):
        return f"{match[1]}{{e}} {match[2]}{match[3]}"
    return question if question.startswith("who ") and "{e}" in question and "does" not in question else None


def _known_words(relation: Relation) -> set[str]:
    return set().union(*map(content_words, relation.nouns))


_STATEMENTS = {r.name: divide(list(r.statements), _known_words(r)) for r in RELATIONS}
_QUESTIONS = {
    r.name: divide(list(r.questions), _known_words(r).union(*map(content_words, _STATEMENTS[r.name]["train"])))
    for r in RELATIONS
}


def _drop_known(divided: dict[str, dict[str, list[str]]]) -> None:
    """Remove held-out templates ("who leads {e}") that are training templates of another relation."""
    trained = {template for splits in divided.values() for template in splits["train"]}
    for splits in divided.values():
        for split in ("validation", "test"):
            splits[split] = [template for template in splits[split] if template not in trained]


_drop_known(_STATEMENTS)
_drop_known(_QUESTIONS)


class Wording:
    """The templates of one split, and the sentences composed of them."""

    def __init__(self, split: str):
        self.split = split
        for name in ("NOUN_STATEMENTS", "NOUN_QUESTIONS", "LEADS", "TAILS", "INTROS", "UPDATES", "ASK_LEADS", "ASK_TAILS",
                     "INDIRECT", "SAME_ENTITY", "LISTS", "TWO_ENTITIES", "APPOSITIONS"):  # fmt: skip
            setattr(self, name.lower(), _split_list(getattr(frames, name))[split])
        self.statements = {r.name: _STATEMENTS[r.name][split] for r in RELATIONS}
        self.questions = {r.name: _QUESTIONS[r.name][split] for r in RELATIONS}
        self.indirects = {name: [i for q in qs if (i := _indirect(q))] for name, qs in self.questions.items()}
        # Shuffled words teach the model that the function words around key and value do not matter. Only in training.
        self.soup = 0.2 if split == "train" else 0.0
        self.keywords = _keywords() if split == "train" else {}

    # Statements ------------------------------------------------------------------------------------------------------

    def clause(
        self, rng, fact: Fact, names_split: str, entity: str | None = None, possessive: str | None = None
    ) -> str:
        """One clause for one fact. `entity` and `possessive` may be the forms of a pronoun."""
        e = entity or fact.entity.name
        draw = rng.random()
        if draw < self.soup and entity is None:
            return self._soup(rng, fact)
        if draw < 0.5 or not fact.relation.statements:
            noun = pick(rng, fact.relation.nouns)
            return pick(rng, self.noun_statements).format(
                e=e, es=possessive or fact.entity.possessive, its=fact.entity.its, n=noun, a=_article(noun), v=fact.value,
            )  # fmt: skip
        text = _VERB.sub(lambda m: self._inflect(rng, m[1]), pick(rng, self.statements[fact.relation.name]))
        if entity is None and rng.random() < 0.04:
            e = f"{e}, {self._apposition(rng, names_split)},"
        return text.replace("{e}", e).replace("{v}", fact.value)

    def _inflect(self, rng, verb: str) -> str:
        draw = rng.random()
        if draw < 0.6:
            return third_person(verb)
        if draw < 0.8:
            auxiliary = pick(rng, _AUXILIARIES.split("|"))
            return f"{auxiliary} {verb}"
        return f"{pick(rng, _ADVERBS)} {third_person(verb)}"

    def _apposition(self, rng, names_split: str) -> str:
        place = pick(rng, PLACES).format(n=pick(rng, NOUNS), m=pick(rng, NOUNS))
        return pick(rng, self.appositions).format(l=place, a=pick(rng, ADJECTIVES), p=names.word(rng, names_split))

    def _soup(self, rng, fact: Fact) -> str:
        """Entity, key word and value among random function words: "so kettle at here storage place was under the oak box"."""
        if rng.random() < 0.5 and fact.relation.statements:
            return (
                f"{self._shuffled(rng, pick(rng, self.statements[fact.relation.name]), fact.entity.name)} {fact.value}"
            )
        key = self._key(rng, fact.relation)
        parts = [fact.entity.name, key] if rng.random() < 0.5 else [key, fact.entity.name]
        words = []
        for part in parts:
            words += [pick(rng, frames.GLUE) for _ in range(int(rng.random() * 4))]
            words.append(part)
        words += [pick(rng, frames.GLUE) for _ in range(int(rng.random() * 3))]
        return " ".join([*words, fact.value])

    def _key(self, rng, relation: Relation) -> str:
        keys = self.keywords.get(relation.name)
        return pick(rng, keys) if keys and rng.random() < 0.5 else pick(rng, relation.nouns)

    def _shuffled(self, rng, template: str, entity: str) -> str:
        """The template's words in another order, with some removed and some function words added, and without the value."""
        words = [w for w in _VERB.sub(lambda m: self._inflect(rng, m[1]), template.replace(" {v}", "")).split()]
        words = [w for w in words if w == "{e}" or w not in FUNCTION_WORDS or rng.random() < 0.7]
        words += [pick(rng, frames.GLUE) for _ in range(int(rng.random() * 3))]
        if rng.random() < 0.6:
            rng.shuffle(words)
        else:  # neighbours swap places
            for i in range(len(words) - 1):
                if rng.random() < 0.3:
                    words[i], words[i + 1] = words[i + 1], words[i]
        return " ".join(words).replace("{e}", entity)

    def statement(self, rng, facts: list[Fact], names_split: str) -> list[str]:
        """Sentences for one fact, or for two that share the entity or the relation."""
        first = facts[0]
        if len(facts) == 2:
            text = self._two(rng, first, facts[1], names_split)
        elif rng.random() < 0.12:
            intro = pick(rng, self.intros).format(e=first.entity.name, p=names.word(rng, names_split))
            return [_finish(rng, intro), _finish(rng, self._pronoun_clause(rng, first, names_split))]
        else:
            text = self.clause(rng, first, names_split)
        draw = rng.random()
        if draw < 0.22:
            text = pick(rng, self.leads).format(c=text, p=names.word(rng, names_split), q=names.word(rng, names_split))
        elif draw < 0.38:
            text = f"{text}, {pick(rng, self.tails).format(p=names.word(rng, names_split))}"
        return [_finish(rng, text)]

    def _pronoun_clause(self, rng, fact: Fact, names_split: str) -> str:
        if rng.random() < 0.3:
            word = pick(rng, names.KIND_WORDS[fact.entity.kind])
            return self.clause(rng, fact, names_split, word, word + "'s")
        return self.clause(rng, fact, names_split, fact.entity.it, fact.entity.its)

    def _two(self, rng, first: Fact, second: Fact, names_split: str) -> str:
        n, n2 = pick(rng, first.relation.nouns), pick(rng, second.relation.nouns)
        fields = {"n": n, "a": _article(n), "n2": n2, "a2": _article(n2), "e": first.entity.name, "es": first.entity.possessive, "v": first.value,
                  "it": first.entity.it, "its": first.entity.its}  # fmt: skip
        if first.entity == second.entity:
            template = pick(rng, self.lists) if rng.random() < 0.4 else pick(rng, self.same_entity)
            fields["v2"] = second.value
            if "{c2}" in template:
                fields["c2"] = self._pronoun_clause(rng, second, names_split)
        else:
            template = pick(rng, self.two_entities)
            fields |= {"f": second.entity.name, "fs": second.entity.possessive, "w": second.value}
            if "{c2}" in template:
                fields["c2"] = self.clause(rng, second, names_split)
        if "{c}" in template:
            fields["c"] = self.clause(rng, first, names_split)
        return template.format(**fields)

    def update(self, rng, fact: Fact, old: str, names_split: str) -> list[str]:
        """A sentence that replaces the old value with the fact's."""
        noun = pick(rng, fact.relation.nouns)
        template = pick(rng, self.updates)
        clause = self.clause(rng, fact, names_split) if "{c}" in template else ""
        text = template.format(
            c=clause, e=fact.entity.name, es=fact.entity.possessive, n=noun, a=_article(noun), x=old, v=fact.value, its=fact.entity.its,
        )  # fmt: skip
        return [_finish(rng, text)]

    # Questions -------------------------------------------------------------------------------------------------------

    def question(self, rng, entity: Entity, relation: Relation, names_split: str) -> str:
        draw = rng.random()
        noun = pick(rng, relation.nouns)
        fields = {"e": entity.name, "es": entity.possessive, "its": entity.its, "n": noun, "a": _article(noun)}
        if draw < self.soup * 0.7:
            if rng.random() < 0.5 and relation.questions:
                return _finish(rng, self._shuffled(rng, pick(rng, self.questions[relation.name]), entity.name), "?")
            parts = [entity.name, self._key(rng, relation)]
            if rng.random() < 0.5:
                parts.reverse()
            text = " ".join(
                w for p in parts for w in [*(pick(rng, frames.GLUE) for _ in range(int(rng.random() * 4))), p]
            )
        elif draw < 0.47 or not relation.questions:
            text = pick(rng, self.noun_questions).format(**fields)
        elif draw < 0.6 and self.indirects[relation.name]:
            clause = pick(rng, self.indirects[relation.name]).replace("{e}", entity.name)
            text = pick(rng, self.indirect).format(c=clause, p=names.word(rng, names_split))
        else:
            text = _VERB.sub(r"\1", pick(rng, self.questions[relation.name]))
            if rng.random() < 0.12:
                intro = pick(rng, self.intros).format(e=entity.name, p=names.word(rng, names_split))
                return f"{_finish(rng, intro)} {_finish(rng, text.replace('{e}', entity.it), '?')}"
            text = text.replace("{e}", entity.name)
        draw = rng.random()
        if draw < 0.15:
            text = pick(rng, self.ask_leads).format(c=text, p=names.word(rng, names_split))
        elif draw < 0.27:
            text = f"{text}, {pick(rng, self.ask_tails).format(p=names.word(rng, names_split))}"
        return _finish(rng, text, "?")


def _finish(rng, text: str, end: str = ".") -> str:
    draw = rng.random()
    if draw < 0.93:
        text = text[0].upper() + text[1:]
    if draw > 0.98:
        return text + ("" if end == "?" else "!")
    return text + end


def answer_parts(entity: Entity, relation: Relation, value: str | None) -> tuple[str, str, str]:
    """The assistant's sentence: the key restated, then the value or "something I was not told"."""
    return f"The {relation.name} of {entity.for_assistant} is", f" {value if value is not None else UNANSWERABLE}", "."


UNANSWERABLE = "something I was not told"


def _keywords() -> dict[str, list[str]]:
    """Content words that only one relation's training templates use."""
    owners: dict[str, set[str]] = {}
    for relation in RELATIONS:
        templates = _STATEMENTS[relation.name]["train"] + _QUESTIONS[relation.name]["train"]
        for word in set().union(*map(content_words, [*templates, *relation.nouns])):
            owners.setdefault(word, set()).add(relation.name)
    keys: dict[str, list[str]] = {relation.name: list(relation.nouns) for relation in RELATIONS}
    for word, relations in sorted(owners.items()):
        if len(relations) == 1 and word not in frames.GLUE:
            keys[next(iter(relations))].append(word)
    return keys


WORDINGS = {split: Wording(split) for split in SPLITS}
