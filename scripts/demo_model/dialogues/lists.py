"""Several facts of one kind in one sentence: "There are 17 goats on the farm, plus six geese".

A block of texts/listings.txt is a kind of list:
    @ name | k: kind of key | v: kind of value | items; …      each with {k} and {v}
    > sentences; …          {l} is the list
    ? questions; …          for {v}, by {k}
    ! changes; …            {v} is the new value, {o} the one before
Keys that look like the list's and are not in it are asked for, too, and refused.
"""

import re
from dataclasses import dataclass

from . import values
from .cases import key_of
from .message import Message
from .splits import Forms, below, own, pick, share
from .texts import LISTS, blocks, listed
from .turns import Question
from .values import article, capital
from .writer import Writer


@dataclass(frozen=True)
class _Listing:
    name: str
    key: str
    value: str
    items: Forms
    sentences: Forms
    asks: tuple[str, ...]
    asks_of: Forms
    changes: Forms


def _parse(lines: list[str]) -> _Listing:
    name, key, kind, items = (part.strip() for part in lines[0].removeprefix("@ ").split("|"))
    rest = {line[0]: listed(line[2:]) for line in lines[1:]}
    shared = {mark: share(forms, f"listing {name} {mark}") for mark, forms in rest.items()}
    forms = share(listed(items), f"listing {name} item")
    return _Listing(name, key[2:], kind[2:], forms, shared[">"], rest["?"], shared["?"], shared["!"])


_LISTINGS = [_parse(lines) for lines in blocks("listings")]
_ORDINALS = "first second third fourth fifth".split()
_JOINS = ((", ", " and "), (", ", ", and "), (", ", ", "), ("; ", "; "), (", ", ", plus "), (" and ", " and "), (", ", " but "), ("; ", " and "), (", ", ", then "))  # fmt: skip
# Items whose verb need not be said again: "Aroha sits by the window, Femi next to the door".
_WITH_VERB = frozenset(f"{{k}} {verb} {{v}}" for verb in ("is", "has", "wants", "brings", "sits", "orders"))


def _key(rng, split: str, kind: str) -> str:
    if kind == "theobject":
        owner = pick(rng, ["the ", "the ", "", "my "])
        return owner + (pick(rng, LISTS["objects"]) if rng.random() < 0.7 else values.word(rng, split))
    if kind == "thepart" and rng.random() < 0.25:
        return f"the {values.word(rng, split)} {pick(rng, ['door', 'room', 'boat', 'gate', 'box'])}"
    if kind in LISTS or kind == "ordinalkey":
        return pick(rng, LISTS.get(kind, _ORDINALS))
    return values.value(rng, split, "day" if kind == "dayname" else kind)


def _value(rng, split: str, kind: str) -> str:
    if kind == "measure":
        style = rng.random()
        if style < 0.2:
            return f"{pick(rng, ['half a', 'a', 'one', 'a good'])} {pick(rng, ['cup', 'spoon', 'pinch', 'pound', 'litre', 'tin', 'handful'])}"
        return f"{below(rng, 20) * 5 + 2 if style < 0.6 else below(rng, 9) + 2} {pick(rng, LISTS['cup_units'])}"
    if kind == "task":
        task = pick(rng, LISTS["tasks"])
        return task if rng.random() < 0.7 else f"{task.split()[0]} the {values.word(rng, split)}"
    return values.value(rng, split, kind)


def _clash(one: str, other: str) -> bool:
    one, other = one.lower(), other.lower()
    return one == other or (min(len(one), len(other)) > 1 and (one in other or other in one))


class _List(Message):
    """Tells one list, changes an item, and asks."""

    def begin(self) -> bool:
        """Tell a list; False if there is none that can still be told."""
        rng, writer = self.rng, self.writer
        self.listing = pick(rng, [one for one in _LISTINGS if one.asks_of[self.wording]])
        self.values = self._drawn()
        if len(self.values) < 2 or writer.mentions(self.listing.name):
            return False
        writer.subjects |= {key_of(key) for key in self.values}
        item = pick(rng, own(self.listing.items, self.wording))
        sentence = pick(rng, own(self.listing.sentences, self.wording))
        items = [item.format(k=key, v=found) for key, found in self.values.items()]
        if sentence == "{l}" and item in _WITH_VERB and rng.random() < 0.5:
            items[1:] = [f"{key} {found}" for key, found in list(self.values.items())[1:]]  # the verb once
        if rng.random() < (0.5 if self.listing.key == "ordinalkey" else 0.15):
            return self._lines(items, sentence)
        inner, last = pick(rng, _JOINS)
        said = article(capital(sentence.format(l=inner.join(items[:-1]) + last + items[-1])))
        facts = [self._question(key) for key in self.values]
        if not all(fact.value in said and writer.free(fact) for fact in facts):
            return False
        self.say(said, facts)
        return True

    def _drawn(self) -> dict[str, str]:
        """Values by key, none of which could be taken for another one."""
        rng, found = self.rng, {}
        self.values = found
        for _ in range(2 + int(rng.random() * 2.8)):
            key, text = _key(rng, self.split, self.listing.key), _value(rng, self.split, self.listing.value)
            if self._fresh(key) and not any(_clash(text, other) for other in (*found.values(), *found, key)):
                found[key] = text
        if self.listing.key == "ordinalkey" and found:  # in their order
            ordinals = [*_ORDINALS[: len(found) - 1], "last" if rng.random() < 0.3 else _ORDINALS[len(found) - 1]]
            return dict(zip(ordinals, found.values(), strict=True))
        return found

    def _lines(self, items: list[str], sentence: str) -> bool:
        """The items as lines."""
        rng, writer = self.rng, self.writer
        head = sentence.split("{l}")[0].strip().rstrip(":,")
        self.send()
        mark = pick(rng, ["- ", "* ", "", "", "> "])
        lines = [f"{mark}{item}" for item in items]
        if self.listing.key == "ordinalkey":
            lines = [f"{number}{pick(rng, '.)')} {found}" for number, found in enumerate(self.values.values(), 1)]
        facts = [self._question(key) for key in self.values]
        if not all(fact.value in line and writer.free(fact) for fact, line in zip(facts, lines, strict=True)):
            return False
        text = f"{capital(head)}:\n" if head else ""
        for fact, line in zip(facts, lines, strict=True):
            writer.learn(fact, line, (len(writer.turns), len(text), len(text) + len(line)))
            text += line + "\n"
        self.parts.append(text)
        return True

    def _fresh(self, key: str) -> bool:
        bare = key_of(key)
        clash = any(_clash(bare, key_of(other)) for other in self.values)
        return len(bare) > 2 and not clash and not self.writer.mentions(bare)

    def _question(self, key: str) -> Question:
        def filled(forms) -> list[str]:
            return [form.format(k=key).replace("the the ", "the ").replace("the my ", "my ") for form in forms]

        every = tuple(sorted({re.sub(r" (the|my|our) ", " ", ask.lower()) for ask in filled(self.listing.asks)}))
        signature = f"listing {self.listing.name}|{key_of(key)}"
        return Question(signature, self.values.get(key, ""), filled(self.listing.asks_of[self.wording]), [], [], every)

    def change(self, key: str) -> bool:
        rng, old, forms = self.rng, self.values[key], self.listing.changes[self.wording]
        known = self.writer.known.get(self._question(key).signature)
        new = _value(rng, self.split, self.listing.value)
        if not forms or known is None or known.question.value != old:
            return False
        if any(_clash(new, other) for other in (*self.values, *self.values.values())):
            return False
        sentence = article(capital(pick(rng, forms).format(k=key, v=new, o=old)))
        if new not in sentence:
            return False
        self.values[key] = new
        self.say(sentence, [self._question(key)])
        return True

    def ask(self, key: str) -> None:
        if known := self.writer.known.get(self._question(key).signature):
            self.answered(known)

    def refuse(self) -> None:
        """A key that is not in the list, asked for as those that are."""
        key = _key(self.rng, self.split, self.listing.key)
        if self._fresh(key) and not any(_clash(key, found) for found in self.values.values()):
            question = self._question(key)
            if self.writer.free(question) and key.lower() not in "".join(self.parts).lower():
                self.writer.subjects.add(key_of(key))
                self.refused(pick(self.rng, question.asks))


def play(writer: Writer) -> int:
    """Append a list to the conversation; returns the number of its questions."""
    rng, telling = writer.rng, _List(writer)
    if not telling.begin():
        telling.send()
        return 0
    for _ in range(1 + int(rng.random() ** 1.3 * 4)):
        key, act = pick(rng, list(telling.values)), rng.random()
        if act < 0.25 and telling.change(key):
            if rng.random() < 0.5:
                telling.send()
            if rng.random() < 0.8 * writer.asks_at_once:
                telling.ask(key)
        elif rng.random() < 0.95 * writer.asks_at_once:
            if act > 0.75:
                telling.refuse()
            else:
                telling.ask(key)
    telling.send()
    return telling.asked
