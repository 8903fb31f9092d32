"""Several facts of one kind in one sentence: "There are 17 goats on the farm, plus six geese", "Aroha sits by the window, Femi next to the door".

A block of texts/listings.txt is a kind of list:
    @ name | k: kind of key | v: kind of value | items; …      each with {k} and {v}
    > sentences; …          {l} is the list
    ? questions; …          for {v}, by {k}
    ! changes; …            {v} is the new value, {o} the one before
Items of a sentence are worded alike, or the first one says more than the others. Keys that look like those of the list and are not
in it are asked for, too, and refused.
"""

import re
from dataclasses import dataclass

from .. import manners, texts
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick
from ..turns import REFUSAL, Turn
from . import topics
from .listing_words import ORDINALS, key_of, value_of
from .sketch_blocks import article
from .telling import Telling


@dataclass(frozen=True)
class Listing:
    name: str
    key: str
    value: str
    items: dict[str, tuple[str, ...]]
    sentences: dict[str, tuple[str, ...]]
    asks: tuple[str, ...]
    asks_of: dict[str, tuple[str, ...]]
    changes: dict[str, tuple[str, ...]]


def _parse(block: str) -> Listing:
    head, *lines = block.strip().splitlines()
    name, key, kind, items = (part.strip() for part in head.removeprefix("@ ").split("|"))
    rest = {line[0]: topics._list(line[2:]) for line in lines}
    where = f"listing {name}"
    return Listing(
        name, key.removeprefix("k:"), kind.removeprefix("v:"), topics._share(topics._list(items), f"{where} item"),
        topics._share(rest[">"], where), rest["?"], topics._share(rest["?"], f"{where} ?"), topics._share(rest["!"], f"{where} !"),
    )  # fmt: skip


LISTINGS = [_parse(block) for block in texts.read("listings").strip().split("\n\n")]
BY_SPLIT = {split: [one for one in LISTINGS if one.items[split] and one.asks_of[split]] for split in SPLITS}
_JOINS = ((", ", " and "), (", ", ", and "), (", ", ", "), ("; ", "; "), (", ", ", plus "), (" and ", " and "), (", ", " but "), ("; ", " and "), (", ", ", then "))  # fmt: skip


# Items whose verb need not be said again: "Aroha sits by the window, Femi next to the door".
_WITH_VERB = frozenset(f"{{k}} {verb} {{v}}" for verb in ("is", "has", "wants", "brings", "sits", "orders"))


class ListTelling(Telling):
    """Tells one list, changes an item, and asks."""

    def begin(self) -> bool:  # type: ignore[override]
        """Tell a list; False if there is none that can still be told."""
        rng, writer = self.rng, self.writer
        self.listing = pick(rng, BY_SPLIT[self.wording])
        self.values = self._drawn()
        if len(self.values) < 2 or writer.mentions(self.listing.name):
            return False
        writer.subjects |= {Phrase.of(key, "").key for key in self.values}
        item = pick(rng, self.listing.items[self.wording])
        sentence = pick(rng, self.listing.sentences[self.wording])
        items = [item.format(k=key, v=found) for key, found in self.values.items()]
        if sentence == "{l}" and item in _WITH_VERB and rng.random() < 0.5:
            items[1:] = [f"{key} {found}" for key, found in list(self.values.items())[1:]]  # the verb once
        if rng.random() < (0.5 if self.listing.key == "ordinalkey" else 0.15):
            return self._lines(items, sentence)
        inner, last = pick(rng, _JOINS)
        said = article(capital(sentence.format(l=inner.join(items[:-1]) + last + items[-1])))
        facts = self._facts(dict.fromkeys(self.values, said))
        if facts is None:
            return False
        self.say(said, [(fact, "") for fact in facts])
        return True

    def _drawn(self) -> dict[str, str]:
        """Values by key, none of which could be taken for another one."""
        rng, found = self.rng, {}
        self.values = found
        for _ in range(2 + int(rng.random() * 2.4)):
            key, text = key_of(rng, self.split, self.listing.key), value_of(rng, self.split, self.listing.value)
            if self._fresh(key) and not any(self._clash(text, other) for other in (*found.values(), *found, key)):
                found[key] = text
        if self.listing.key == "ordinalkey" and found:  # in their order
            ordinals = [*ORDINALS[: len(found) - 1], "last" if rng.random() < 0.3 else ORDINALS[len(found) - 1]]
            return dict(zip(ordinals, found.values(), strict=True))
        return found

    def _facts(self, sentences: dict[str, str]) -> list[Fact] | None:
        """One for each key, told by its sentence; None if a question for one of them could mean something else."""
        facts = [self._fact(key, sentence) for key, sentence in sentences.items()]
        told = [fact for fact in facts if fact is not None and self.writer.free(fact)]
        return told if len(told) == len(facts) else None

    def _lines(self, items: list[str], sentence: str) -> bool:
        """The items as lines."""
        rng, writer = self.rng, self.writer
        head = sentence.split("{l}")[0].strip().rstrip(":,")
        if self.parts:
            self.send()
        mark = pick(rng, ["- ", "* ", "", "", "> "])
        lines = [f"{mark}{item}" for item in items]
        if self.listing.key == "ordinalkey":
            lines = [f"{number}{pick(rng, '.)')} {found}" for number, found in enumerate(self.values.values(), 1)]
        text = f"{capital(head)}:\n" if head else ""
        spans = []
        for line in lines:
            spans.append((len(text), len(text) + len(line)))
            text += line + "\n"
        facts = self._facts(dict(zip(self.values, lines, strict=True)))
        if facts is None:
            return False
        self.parts.append(text)
        for fact, (start, end) in zip(facts, spans, strict=True):
            writer.learn(fact, text[start:end], (len(writer.turns), start, end), "")
        return True

    def _fresh(self, key: str) -> bool:
        bare = Phrase.of(key, "").key
        return (
            len(bare) > 2
            and not self.writer.mentions(bare)
            and not any(self._clash(bare, Phrase.of(other, "").key) for other in self.values)
        )

    @staticmethod
    def _clash(one: str, other: str) -> bool:
        one, other = one.lower(), other.lower()
        return one == other or (min(len(one), len(other)) > 1 and (one in other or other in one))

    def _asks(self, key: str, wording: str | None) -> list[str]:
        forms = self.listing.asks_of[wording] if wording else self.listing.asks
        return [form.format(k=key).replace("the the ", "the ").replace("the my ", "my ") for form in forms]

    def _question(self, key: str) -> Question:
        every = tuple(sorted({re.sub(r" (the|my|our) ", " ", ask.lower()) for ask in self._asks(key, None)}))
        signature = f"listing {self.listing.name}|{Phrase.of(key, '').key}"
        return Question(signature, self.values.get(key, ""), self._asks(key, self.wording), [], [], [], every)

    def _fact(self, key: str, sentence: str) -> Fact | None:
        question = self._question(key)
        if question.value not in sentence:
            return None
        return Fact(sentence, [question], Phrase(key, Phrase.of(key, "").key, "story"), None, [], "", "topic listing")

    def change(self, key: str) -> bool:
        rng, old = self.rng, self.values[key]
        forms = self.listing.changes[self.wording]
        known = self.writer.known.get(self._question(key).signature)
        new = value_of(rng, self.split, self.listing.value)
        if (
            not forms
            or known is None
            or known.question.value != old
            or any(self._clash(new, other) for other in (*self.values, *self.values.values()))
        ):
            return False
        sentence = article(capital(pick(rng, forms).format(k=key, v=new, o=old)))
        self.values[key] = new
        fact = self._fact(key, sentence)
        if fact is None:
            self.values[key] = old
            return False
        self.say(sentence, [(fact, old)])
        return True

    def answered(self, key: str) -> None:
        known = self.writer.known.get(self._question(key).signature)
        if known is None:
            return
        before = self._before()
        self.writer.append(self.writer.ask_for(known, before))
        self.asked += 1

    def _before(self) -> str:
        if self.parts and self.rng.random() < 0.7:
            self.send()
        before, self.parts = "".join(self.parts).rstrip(), []
        return before

    def refuse(self) -> None:
        """A key that is not in the list, asked for as those that are."""
        rng, writer = self.rng, self.writer
        key = key_of(rng, self.split, self.listing.key)
        if not self._fresh(key) or any(self._clash(key, found) for found in self.values.values()):
            return
        question = self._question(key)
        if any(name in writer.taken for name in (question.signature, *question.aliases)):
            return
        writer.subjects.add(Phrase.of(key, "").key)
        asked = writer.phrase_question(Question(question.signature, "", question.direct))
        before = self._before()
        thought = [("Nothing was said about that.", REFUSAL)] if rng.random() < writer.thinking else None
        writer.append(
            Turn(writer.join(before, asked), [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought)
        )
        self.asked += 1


def play(writer) -> int:
    """Append a list to the conversation; returns the number of its questions."""
    rng, telling = writer.rng, ListTelling(writer)
    if not telling.begin():
        telling.send()
        return 0
    for _ in range(1 + int(rng.random() ** 1.3 * 4)):
        key, act = pick(rng, list(telling.values)), rng.random()
        if act < 0.3 and telling.change(key):
            if rng.random() < 0.5:
                telling.send()
            if rng.random() < 0.8 * writer.asks_at_once:
                telling.answered(key)
        elif rng.random() < 0.95 * writer.asks_at_once:
            if act > 0.87:
                telling.refuse()
            else:
                telling.answered(key)
    telling.send()
    return telling.asked
