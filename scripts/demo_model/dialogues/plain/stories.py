"""Stories of a few turns: something is told, corrected in passing, perhaps changed back, and asked for.

A correction names nothing but the value ("no wait, Wednesday", "I moved it to level 5", "she's called Mia now"). It stands right
behind what it corrects, in the same message or in the next one, or behind the question about it; later it begins with the subject
("about the car: …"). Where two things have been told, the correction fits one of them alone: by its pronoun, by the kind of its
value, or because it names the value before.
"""

import re
from dataclasses import replace

from .. import manners
from ..phrases import Fact, capital
from ..splits import pick, split_of
from ..turns import WORDS, Known, Turn
from . import topics
from .telling import Telling, Told
from .topics import ME

_BACK = """no, back to {v}|it's {v} again|they changed it back to {v}|it was {v} after all|{v} was right after all|undo that, {v}|no, it stays {v}|sorry, {v} was right|forget {o}, it's {v} again|we are back to {v}
never mind, {v} it is|{o} was wrong, {v} was right|ok, {v} again|no, {v} as before|changed back to {v}|I was right the first time, {v}|it is {v} again, like before|{v} after all|not {o} after all, {v}""".replace(
    "\n", "|"
).split("|")
_KEPT = """forget that, it stays as it was|never mind, the first one was right|undo that change|ignore my last message, nothing changes|no, it stays as before|scratch that, it was right the first time|cancel that change|forget what I just said about {e}
I was wrong, nothing changed|sorry, wrong thread, ignore that|false alarm, it stays the same|no change after all|ignore the change|take that back, it was right before""".replace(
    "\n", "|"
).split("|")
_ABOUT = "about {e}: {c}|{e}: {c}|{e} again: {c}|one more thing about {e}: {c}|news about {e}: {c}|update on {e}: {c}|as for {e}, {c}|remember {e}? {c}|{e} - {c}|concerning {e}: {c}|by the way, {e}: {c}|re {e}: {c}|oh, and {e}: {c}|change for {e}: {c}".split(
    "|"
)
_OPENERS = "actually |no wait, |sorry, |oh, |hm, |ah, |wait, |oops, |correction: |ok, |hey, |so, |btw |update: |well, |argh, |no, |just heard: |news: |change of plans, ".split(
    "|"
)


def _of(forms: list[str], wording: str) -> list[str]:
    return [form for form in forms if split_of(f"story {form}") == wording]


class Story(Telling):
    """Corrections of what a story told."""

    def change(self, told: Told, name: str) -> bool:
        """A correction of an attribute. False if every form could mean something else."""
        rng, writer, topic = self.rng, self.writer, told.topic
        known = writer.known.get(f"topic {topic.name} {name}|{told.about.key}")
        if known is None:
            return False
        attribute, old = topic.attributes[name], known.question.value
        new = topics.value(rng, self.split, attribute.kind)
        if new.lower() in (v.lower() for v in told.values.values()) or old not in (
            told.values[name],
            capital(told.values[name]),
        ):
            return False
        rivals = [
            other for t in self.told for other in t.values
            if (t is not told or other != name) and topics.alike(t.topic.attributes[other].kind, attribute.kind)
        ]  # fmt: skip
        own = topics.changes(topic, told.about, name, self.wording, told.values, new)
        if any(t is not told and t.about.pronoun == told.about.pronoun for t in self.told):
            rivals.append("pronoun")
        elif len(self.told) > 1:  # the pronoun says whom it is about
            they, them = topics.fields(told.about)["they"], topics.fields(told.about)["them"]
            own = [form for form in own if re.search(rf"\b({they}|{them})\b", form)]
        elliptic = [form.format(new=new, old=old) for form in writer.wording.elliptic] if len(self.told) == 1 else []
        forms = [*own, *own, *elliptic[:: max(1, len(elliptic) // (len(own) + 2))]]
        if rivals:
            forms = [form for form in forms if old in form]
        if known.question.signature not in self.near and len(self.told) == 1:
            # Something else of the same subject came between: only words of its own say what is meant.
            forms = [form for form in forms if form in own]
        if not self.near or not forms or rng.random() < 0.12:
            return self._change_named(
                told, name, known, new, own if not rivals else [form for form in own if old in form]
            )
        sentence = pick(rng, forms)
        if (
            not re.match(r"(?i)(no|actually|sorry|oh|wait|make|scratch|hm|not|correction|update|typo)\b", sentence)
            and rng.random() < 0.3
        ):
            sentence = pick(rng, _OPENERS) + sentence
        return self._changed(told, name, known, new, sentence)

    def _change_named(self, told: Told, name: str, known: Known, new: str, own: list[str]) -> bool:
        """A correction that says what it is about."""
        rng, question = self.rng, known.question
        if own and told.about is not ME and rng.random() < 0.6:
            leads = _of(_ABOUT, self.wording) or _of(_ABOUT, "train")
            sentence = pick(rng, leads).format(e=told.about.text, c=pick(rng, own))
        elif question.topics:
            sentence = pick(rng, self.writer.wording.changes).format(
                new=new, old=question.value, np=pick(rng, question.topics), renewed=pick(rng, question.topics)
            )
        else:
            return False
        return self._changed(told, name, known, new, sentence)

    def _changed(self, told: Told, name: str, known: Known, new: str, sentence: str) -> bool:
        if new not in sentence or known.fact is None:
            return False
        old = known.question.value
        told.values[name] = new
        question = topics.question(told.topic, told.about, name, self.wording, told.values)
        fact = Fact(capital(sentence), [question], known.fact.subject, None, [], "", known.fact.frame)
        self._refresh(told)
        self.say(fact.sentence, [(fact, old)])
        self.near = {question.signature}
        return True

    def _refresh(self, told: Told) -> None:
        """Questions that name another attribute's value ("how much did Ben lend me") follow its change."""
        for name in told.values:
            known = self.writer.known.get(f"topic {told.topic.name} {name}|{told.about.key}")
            if known is not None:
                asks = topics.question(told.topic, told.about, name, self.wording, told.values).direct
                known.question = replace(known.question, direct=asks or known.question.direct)

    def change_back(self, told: Told, name: str) -> None:
        """The value before holds again, said with it or without."""
        rng, writer = self.rng, self.writer
        signature = f"topic {told.topic.name} {name}|{told.about.key}"
        known = writer.known[signature]
        if known.previous is None or self.near != {signature}:
            return
        first = known.previous.question.value
        if rng.random() < 0.3:
            forms = _of(_KEPT, self.wording) or _of(_KEPT, "train")
            self.say(capital(pick(rng, forms).format(e="it" if told.about is ME else told.about.text)), [])
            writer.known[signature] = known.previous
            told.values[name] = first
        else:
            forms = _of(_BACK, self.wording) or _of(_BACK, "train")
            self._changed(told, name, known, first, pick(rng, forms).format(v=first, o=known.question.value))

    def pause(self) -> None:
        """Another turn between: small talk, or some other text."""
        rng, writer = self.rng, self.writer
        self.send()
        if rng.random() < 0.5:
            writer.append(writer.talk())
        else:
            text = writer.text(1 + int(rng.random() * 6), 0.0)
            long = len(text) > 900
            writer.append(Turn(text, [(manners.READ if long else manners.NOTED, WORDS)]))
        self.near = set()


def play(writer) -> int:
    """Append a story to the conversation; returns the number of its questions."""
    rng, story = writer.rng, Story(writer)
    if not story.begin():
        return 0
    if rng.random() < 0.3 and story.begin():
        pass
    if rng.random() < 0.5:
        story.send()

    def known(told: Told, name: str) -> Known | None:
        return writer.known.get(f"topic {told.topic.name} {name}|{told.about.key}")

    for _ in range(1 + int(rng.random() ** 2 * 3)):
        told = pick(rng, story.told)
        name = pick(rng, list(told.values))
        if (fact := known(told, name)) is None:
            continue
        if rng.random() < 0.3 * writer.asks_at_once:
            story.ask(fact)
            story.near = {fact.question.signature}
        if rng.random() < 0.2:
            story.pause()
        if rng.random() < 0.72 and story.change(told, name):
            if rng.random() < 0.4:
                story.send()
            if rng.random() < 0.2:
                story.change_back(told, name)
            if rng.random() < 0.55 * writer.asks_at_once and (changed := known(told, name)):
                story.ask(changed)
    if rng.random() < 0.35 * writer.asks_at_once:
        told = pick(rng, story.told)
        if found := [k for name in told.values if (k := known(told, name)) and not k.asked]:
            story.ask(pick(rng, found))
    story.send()
    return story.asked
