"""What a fact is about: people, animals, things, events, organisations, each named anew."""

from . import names, values
from .lexicon import ADJECTIVES, BARE_EVENTS, DAYS, EVENTS, JOBS, OBJECTS, RELATIONS
from .phrases import Phrase
from .splits import pick
from .wording import Wording


class Subjects:
    """Draws noun phrases. rng decides; split: of invented names; wording: the frames and question forms that may be used."""

    def __init__(self, rng, split: str, wording: Wording):
        self.rng, self.split, self.wording = rng, split, wording

    def value(self, kind: str) -> str:
        return values.value(self.rng, self.split, kind)

    def person(self) -> Phrase:
        rng, style = self.rng, self.rng.random()
        if style < 0.42:
            name = names.given(rng, self.split)
        elif style < 0.55:
            name = f"{names.given(rng, self.split)} {names.surname(rng, self.split)}"
        elif style < 0.74:
            name = f"{pick(rng, ['my', 'my', 'our'])} {pick(rng, RELATIONS)}"
        elif style < 0.82:
            name = f"{names.given(rng, self.split)}'s {pick(rng, RELATIONS)}"
        elif style < 0.87:
            name = f"my {pick(rng, RELATIONS)} {names.given(rng, self.split)}"
        elif style < 0.92:
            name = f"{pick(rng, ['Dr', 'Dr.', 'Mr', 'Mrs', 'Ms', 'Professor', 'Captain', 'Uncle', 'Aunt'])} {names.surname(rng, self.split)}"
        else:
            name = f"the {pick(rng, ['', 'new ', 'old ', 'head '])}{pick(rng, JOBS)}"
        return Phrase.of(name, "person")

    def animal(self) -> Phrase:
        rng = self.rng
        name = pick(
            rng,
            [
                f"my {pick(rng, ['dog', 'cat', 'horse', 'rabbit', 'parrot', 'hamster'])}",
                names.animal_name(rng, self.split),
                names.word(rng, self.split),
            ],
        )
        return Phrase.of(name, "animal")

    def thing(self) -> Phrase:
        rng, style = self.rng, self.rng.random()
        noun = pick(rng, OBJECTS)
        if rng.random() < 0.12:
            noun = f"{pick(rng, OBJECTS).split()[-1]} {noun}"
        if style < 0.28:
            text = f"the {noun}"
        elif style < 0.45:
            text = f"my {noun}"
        elif style < 0.68:
            text = f"{pick(rng, ['the', 'the', 'my', 'our'])} {pick(rng, ADJECTIVES)} {noun}"
        elif style < 0.8:
            text = f"{names.given(rng, self.split)}'s {noun}"
        elif style < 0.86:
            text = f"{pick(rng, ['my', 'our'])} {pick(rng, RELATIONS)}'s {noun}"
        elif style < 0.93:
            text = names.product(rng, self.split)
        else:
            text = f"the {names.word(rng, self.split).lower()}"
        plural = noun.endswith("s") and noun not in ("glass", "compass") and not noun.endswith("ss")
        return Phrase.of(text, "thing", plural)

    def event(self) -> Phrase:
        rng, style = self.rng, self.rng.random()
        noun = pick(rng, EVENTS)
        if style < 0.4:
            text = f"the {noun}"
        elif style < 0.55:
            text = f"{pick(rng, ['my', 'our'])} {noun}"
        elif style < 0.7:
            text = f"{names.given(rng, self.split)}'s {noun}"
        elif style < 0.85:
            text = f"the {names.word(rng, self.split)} {noun}"
        else:
            text = f"{pick(rng, ['the', 'my', 'our'])} {pick(rng, ADJECTIVES + tuple(DAYS))} {noun}"
        return Phrase.of(text, "event")

    def org(self) -> Phrase:
        rng = self.rng
        name = values.org(rng, self.split) if rng.random() < 0.7 else values.value(rng, self.split, "company")
        if rng.random() < 0.15:
            name = f"the {pick(rng, ['bakery', 'gym', 'library', 'pharmacy', 'school', 'bank', 'post office', 'pool', 'museum', 'cinema', 'office', 'shop'])}"
        return Phrase.of(name, "org")

    def bare(self) -> Phrase:
        noun = pick(self.rng, BARE_EVENTS)
        return Phrase.of(noun, "bare")

    def phrase(self, kind: str) -> Phrase:
        return getattr(self, kind)()
