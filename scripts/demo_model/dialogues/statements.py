"""Statements as they are typed: one fact or several in a sentence, changes of facts, texts of many sentences."""

from . import chains, filler, layouts
from .phrases import Fact, capital
from .revisions import Revisions, lower
from .splits import pick
from .turns import Known


class Statements(Revisions):
    """Writes the user's statements and remembers their facts."""

    def state(self) -> tuple[str, list[tuple[Fact, str]]]:
        """The next sentence and its facts, each with the value that it replaces."""
        rng = self.rng
        if rng.random() < 0.17:
            changeable = [k for k in self.known.values() if k.fact and (k.fact.remake or k.question.kind)]
            if self.latest is not None and rng.random() < 0.4:
                changeable = [k for k in changeable if k.fact is self.latest] or changeable
            changed = self._change(pick(rng, changeable)) if changeable else None
            if changed is not None:
                return changed
        if not self.pending and rng.random() < self.chained:
            chains.draw(self)
        if self.pending and rng.random() < (0.9 if self.hurries else 0.3):
            fact = self.pending.pop()
            if self.free(fact):
                return self.dress(fact.sentence), [(fact, "")]
        fact = self.new_fact()
        if rng.random() < 0.05 and len(fact.questions) == 1 and (kind := fact.questions[0].kind):
            false = self.grammar.slot(kind).text
            if false.lower() != fact.questions[0].value.lower():
                form = pick(rng, self.wording.contrasts)
                text = fact.sentence if form.startswith("{s}") else lower(fact.sentence)
                return self.dress(capital(form.format(s=text, f=false))), [(fact, "")]
        if rng.random() < 0.1:
            shared = self._second_verb(fact)
            if shared is not None:
                return shared
        if rng.random() < 0.14:
            other = self._parallel(fact)
            if (
                other is not None
                and self.free(other)
                and not {n for q in other.questions for n in (q.signature, *q.aliases)}
                & {n for q in fact.questions for n in (q.signature, *q.aliases)}
            ):
                second = (
                    other.gapped
                    if fact.gapped and other.gapped and other.frame == fact.frame and rng.random() < 0.5
                    else lower(other.sentence)
                )
                joined = pick(rng, self.wording.joins).format(a=fact.sentence, b=second)
                return self.dress(joined), [(fact, ""), (other, "")]
        return self.dress(fact.sentence), [(fact, "")]

    def _second_verb(self, fact: Fact) -> tuple[str, list[tuple[Fact, str]]] | None:
        """ "Our cat is called Minka and eats only tuna": two facts of one subject."""
        subject = fact.subject
        text = capital(subject.text)
        if not fact.sentence.startswith(text + " ") or subject.kind not in (
            "person",
            "animal",
            "org",
            "event",
            "thing",
            "bare",
        ):
            return None
        fitting = [p for p in self.wording.predicates if subject.kind in p.subjects]
        if not fitting:
            return None
        second = self.grammar.predicate(pick(self.rng, fitting), subject)
        names = {n for q in fact.questions for n in (q.signature, *q.aliases)}
        if (
            not second.sentence.startswith(text + " ")
            or not self.free(second)
            or names & {n for q in second.questions for n in (q.signature, *q.aliases)}
        ):
            return None
        rest = second.sentence[len(text) + 1 :]
        sentence = (
            fact.sentence
            + pick(
                self.rng,
                [
                    " and ",
                    " and ",
                    ", and ",
                    " and also ",
                    ", but ",
                    " and he " if subject.kind == "person" and subject.person == 3 else " and ",
                    " and then ",
                ],
            )
            + rest
        )
        if self.rng.random() < 0.2 and subject.person == 3:
            sentence = (
                f"{text}, {'who' if subject.kind == 'person' else 'which'} {rest}, {fact.sentence[len(text) + 1 :]}"
            )
        return self.dress(sentence), [(fact, ""), (second, "")]

    def _parallel(self, fact: Fact) -> Fact | None:
        """Another fact of the same kind, for "Anna lives in Oslo and Tom in Bergen"."""
        if fact.frame.startswith("attribute ") and self.rng.random() < 0.7:
            return (
                self.grammar.attribute(None, fact.frame.removeprefix("attribute "))
                if self.rng.random() < 0.5
                else self.grammar.attribute()
            )
        named = [p for p in self.wording.predicates if fact.frame.startswith(p.name)]
        if named:
            return self.grammar.predicate(named[0])
        return self.grammar.fact() if self.rng.random() < 0.3 else None

    def text(self, sentences: int, density: float) -> str:
        """User text with the given density of statements. Records where each fact is."""
        rng, parts, position = self.rng, [], 0

        def add(text: str, joiner: str) -> int:
            nonlocal position
            if parts:
                if self.casual and joiner == " " and parts[-1][-1:] not in ".!?;,":
                    joiner = pick(rng, ["\n", ". ", "\n"])
                parts.append(joiner)
                position += len(joiner)
            start = position
            parts.append(text)
            position += len(text)
            return start

        joiner = "\n" if rng.random() < 0.12 else " "
        while sentences > 0:
            if rng.random() >= density:
                count = min(sentences, 1 + int(rng.random() * 5))
                self.latest = None
                add(filler.paragraph(rng, self.split, count), "\n\n" if count > 3 and rng.random() < 0.3 else joiner)
                sentences -= count
                continue
            if rng.random() < 0.1:
                self.latest = None
                sentences -= self._layout(add)
                continue
            sentence, facts = self.state()
            self.latest = facts[0][0] if len(facts) == 1 else None
            start = add(sentence, joiner)
            for fact, old in facts:
                self.learn(fact, sentence, (len(self.turns), start, start + len(sentence)), old)
            sentences -= 1
        return "".join(parts)

    def _layout(self, add) -> int:
        """A table, a log, an e-mail …; returns its number of lines."""
        lines = pick(self.rng, layouts.LAYOUTS)(self.grammar)
        while self.subjects and any(self.names_subject(line) for line, _ in lines):
            lines = pick(self.rng, layouts.LAYOUTS)(self.grammar)
        for number, (line, questions) in enumerate(lines):
            start = add(line, "\n" if number else pick(self.rng, ["\n\n", "\n"]))
            where = (len(self.turns), start, start + len(line))
            for question in questions:
                names = (question.signature, *question.aliases)
                if not question.value:
                    self.missing.append(question)
                elif any(name in self.taken for name in names):
                    for name in names:  # asking would be ambiguous
                        self.known.pop(self.taken.get(name, name), None)
                        self.taken[name] = "ambiguous"
                else:
                    self.taken.update((name, question.signature) for name in names)
                    self.known[question.signature] = Known(
                        question, line.strip(), where, self.length + where[2], "Your text says"
                    )
        add("", "\n")
        return len(lines)
