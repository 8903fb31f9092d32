"""What somebody or something has: "Anna's shoe size is 38"."""

from . import names, values
from .lexicon import ADJECTIVES, ATTRIBUTES, JOBS, OBJECTS, RELATIONS, SYNONYMS
from .phrases import ME, WE, Fact, Phrase, Question, article, capital, owned
from .splits import pick
from .subjects import Subjects


class Attributes(Subjects):
    """Draws attributes, and names of people and things."""

    def attribute_noun(self) -> str:
        rng, style = self.rng, self.rng.random()
        if style < 0.62:
            return pick(rng, ATTRIBUTES)
        if style < 0.8:
            return f"{pick(rng, OBJECTS)} {pick(rng, ['number', 'name', 'size', 'level', 'code', 'rate', 'type', 'date', 'limit', 'colour', 'price', 'count', 'password', 'key', 'order', 'budget', 'time'])}"
        if style < 0.92:
            return f"{pick(rng, ADJECTIVES)} {pick(rng, OBJECTS)}"
        return names.word(rng, self.split).lower()

    def attribute(
        self, owner: Phrase | None = None, noun: str | None = None, kind: str | None = None, value: str | None = None
    ) -> Fact:
        """ "Anna's shoe size is 38", "The wifi password is …", "code of the archive: 4815"."""
        rng, wording = self.rng, self.wording
        noun = noun or self.attribute_noun()
        if owner is None and rng.random() < 0.75:
            owner = self.phrase(pick(rng, ("person", "person", "thing", "event", "org", "org")))
            if rng.random() < 0.2:
                owner = ME if rng.random() < 0.8 else WE
        kind = kind or values.type_for(rng, noun)
        value = value or self.value(kind)
        forms = owned(noun, owner)
        of = owner.text if owner and owner.person == 3 else None
        subject = pick(rng, forms)
        fields = {
            "np": subject,
            "NP": capital(subject),
            "v": value,
            "V": capital(value),
            "noun": noun,
            "an": article(noun),
        }
        if of and rng.random() < 0.3:
            sentence = pick(rng, wording.owner_statements).format(o=of, O=capital(of), **fields)
        else:
            sentence = pick(rng, wording.attribute_statements).format(**fields)
        synonyms = SYNONYMS.get(noun, ())
        asked = pick(rng, synonyms) if synonyms and rng.random() < 0.4 else noun
        np = owned(asked, owner)
        direct = [form.format(np=pick(rng, np), noun=asked) for form in wording.attribute_questions]
        if of and owner is not None:
            direct += [form.format(o=of, noun=asked, an=article(asked)) for form in wording.owner_questions]
        direct += [form.format(np=pick(rng, np)) for form in wording.typed_questions.get(kind, ())]
        question = Question(
            f"{noun}|{owner.key if owner else ''}", value, direct,
            [form.format(np=pick(rng, np)) for form in wording.attribute_indirect],
            [*np, asked if owner is None else f"{asked} {owner.text}" if owner.person == 3 else f"my {asked}", f"{of} {asked}" if of else asked],
            np, (), kind, [], forms,
        )  # fmt: skip
        questions = [question]
        return Fact(
            sentence, questions, Phrase(subject, question.signature, "thing"),
            lambda rng, split: self.attribute(owner, noun, kind), forms, f"{subject} {value}" if owner else "", f"attribute {noun}",
        )  # fmt: skip

    def identity(self) -> Fact:
        """ "Rex is my dog", "My dentist is called Mira", "The boss of Zeltec is Tom"."""
        rng, style = self.rng, self.rng.random()
        if style < 0.45:
            owner = ME if rng.random() < 0.5 else self.person()
            relation = pick(rng, RELATIONS)
            return self._relation(owner, relation)
        if style < 0.75:
            org = self.org()
            role = pick(
                rng,
                (
                    *JOBS,
                    "director",
                    "manager",
                    "owner",
                    "boss",
                    "head chef",
                    "founder",
                    "president",
                    "captain",
                    "chair",
                ),
            )
            return self._role(org, role)
        return self._naming(self.thing() if rng.random() < 0.5 else self.event())

    def _relation(self, owner: Phrase, relation: str, value: str | None = None) -> Fact:
        rng, wording = self.rng, self.wording
        name = value or (
            names.given(rng, self.split)
            if rng.random() < 0.75
            else f"{names.given(rng, self.split)} {names.surname(rng, self.split)}"
        )
        np = f"{owner.possessive} {relation}"
        sentence = capital(pick(rng, wording.relation_statements).format(np=np, NP=capital(np), v=name))
        question = Question(
            f"relation {relation}|{owner.key}", name, [q.format(np=np) for q in wording.relation_questions],
            [q.format(np=np) for q in wording.relation_indirect], [np, f"{np}'s name"], [np] if owner.person == 1 else [np, f"the {relation} of {owner.text}"], (), "name", [], [np],
        )  # fmt: skip
        back = Question(
            f"who is|{name.lower()}",
            np,
            [
                f"who is {name}",
                f"who's {name}",
                f"how is {name} related to {'me' if owner.person == 1 else owner.text}",
            ],
            [f"who {name} is"],
            [name],
        )
        return Fact(
            sentence, [question, back], Phrase(name, name.lower(), "person"), lambda rng, split: self._relation(owner, relation), [np], "", "relation",
        )  # fmt: skip

    def _role(self, org: Phrase, role: str, value: str | None = None) -> Fact:
        rng, wording = self.rng, self.wording
        name = value or self.value("person")
        np = f"the {role} {pick(rng, ['of', 'at'])} {org.text}"
        sentence = capital(pick(rng, wording.relation_statements).format(np=np, NP=capital(np), v=name))
        question = Question(
            f"role {role}|{org.key}", name, [q.format(np=np) for q in wording.relation_questions], [q.format(np=np) for q in wording.relation_indirect],
            [np, f"{org.text}'s {role}", f"{role} of {org.text}"], [np, f"{org.text}'s {role}"], (), "person", [], [np, f"{org.text}'s {role}"],
        )  # fmt: skip
        return Fact(
            sentence, [question], Phrase(name, name.lower(), "person"), lambda rng, split: self._role(org, role), [np], "", "role",
        )  # fmt: skip

    def _naming(self, thing: Phrase, value: str | None = None) -> Fact:
        rng, wording = self.rng, self.wording
        name = value or names.word(rng, self.split)
        sentence = capital(pick(rng, wording.namings).format(t=thing.text, v=name, be="are" if thing.plural else "is"))
        question = Question(
            f"name|{thing.key}", name, [q.format(t=thing.text, be="are" if thing.plural else "is") for q in wording.naming_questions],
            [f"what {thing.text} {'are' if thing.plural else 'is'} called"], [f"name of {thing.text}", f"{thing.text} name"], [], (), "word", [], [f"the name of {thing.text}"],
        )  # fmt: skip
        return Fact(
            sentence, [question], thing, lambda rng, split: self._naming(thing), [f"the name of {thing.text}"], "", "naming",
        )  # fmt: skip
