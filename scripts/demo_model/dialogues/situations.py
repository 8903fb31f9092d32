"""Sentences with several values: places, appointments, actions."""

from .lexicon import MEETINGS, OBJECTS, TRANSITIVES
from .phrases import ME, Fact, Phrase, Question, capital
from .splits import pick
from .subjects import Subjects


class Situations(Subjects):
    """Draws facts of several values."""

    def location(self, thing: Phrase | None = None) -> Fact:
        """ "The key is under the blue pot", "I left my bike behind the church"."""
        rng, wording = self.rng, self.wording
        thing = thing or self.thing()
        value = self.value("spot")
        be = "are" if thing.plural else "is"
        form = pick(rng, wording.locations)
        who = self.person() if "{p}" in form else ME
        sentence = capital(
            form.format(
                t=thing.text,
                T=capital(thing.text),
                v=value,
                be=be,
                s="" if thing.plural else "s",
                p=who.text,
                P=capital(who.text),
            )
        )
        direct = [
            q.format(t=thing.text, be=be, do="do" if thing.plural else "does") for q in wording.location_questions
        ]
        indirect = [q.format(t=thing.text, be=be) for q in wording.location_indirect]
        return Fact(
            sentence, [Question(f"location|{thing.key}", value, direct, indirect, [thing.text, f"location of {thing.text}"], [], (f"where|{thing.key}",), "spot", [], [thing.text])], thing,
            lambda rng, split: self.location(thing), [thing.text, f"the location of {thing.text}"],
            f"{thing.text} {value}" if form.startswith("{t} {be}") else "", "location",
        )  # fmt: skip

    def action(self) -> Fact:
        """ "Anna sold the old piano to Tom on Tuesday for 40 euros": every part can be asked for."""
        rng = self.rng
        who = ME if rng.random() < 0.15 else self.person()
        human = rng.random() < 0.2
        base, past = pick(rng, MEETINGS if human else TRANSITIVES)
        what = self.person() if human else self.thing()
        if what.text.startswith(("my ", "our ")) and rng.random() < 0.7 and not human:
            what = Phrase.of(f"the {pick(rng, OBJECTS)}", "thing")
        parts: list[tuple[str, str, str]] = []  # (wh, preposition, value)
        if rng.random() < 0.55:
            parts.append(pick(rng, [("when", "on ", self.value("day")), ("when", "at ", self.value("time")), ("when", "in ", self.value("month")),
                                    ("when", "on ", self.value("date")), ("when", "in ", self.value("year"))]))  # fmt: skip
        if rng.random() < 0.45:
            parts.append(("where", pick(rng, ["in ", "at ", "near "]), self.value(pick(rng, ("town", "place", "org")))))
        if rng.random() < 0.25 and not human:
            parts.append(("how much", "for ", self.value("price")))
        if rng.random() < 0.25:
            parts.append(("with whom", "with ", self.value("person")))
        rng.shuffle(parts)
        front = parts.pop() if parts and parts[-1][0] in ("when", "where") and rng.random() < 0.25 else None
        sentence = (
            f"{who.text if front and who.person == 1 else who.text if front else capital(who.text)} {past} {what.text}"
            + "".join(f" {p}{v}" for _, p, v in parts)
        )
        if front:
            sentence = f"{capital(front[1])}{front[2]}{pick(rng, [',', ',', ''])} {sentence}"
            parts.append(front)
        s, o, key = who.text, what.text, f"{base}|{what.key}"
        asks = [
            Question(f"who {key}", s, [f"who {past} {o}", f"who was it that {past} {o}", *([f"who has {past} {o}"] if past.endswith("ed") else []),
                                       *([f"by whom was {o} {past}", f"who was {o} {past} by"] if past.endswith("ed") else [])], [f"who {past} {o}"], [f"who {past} {o}"], [f"the person who {past} {o}"]),
            Question(f"what {base}|{who.key}", o, [f"{'who' if human else 'what'} did {s} {base}", f"{'whom' if human else 'which thing'} did {s} {base}"], [f"{'who' if human else 'what'} {s} {past}"], [f"what {s} {past}"]),
        ]  # fmt: skip
        asks[0].kind = "person"
        asks[0].changes = [
            pick(rng, (f"it was {{new}} who {past} {o}, not {{old}}", f"not {{old}} but {{new}} {past} {o}", f"actually it was {{new}} who {past} {o}", f"I mixed that up, {{new}} {past} {o}",
                       f"{{new}} {past} {o}, not {{old}}", f"sorry, it was {{new}} that {past} {o}"))
        ]  # fmt: skip
        if who.person == 1:
            asks = asks[1:]
        for wh, preposition, value in parts:
            forms = {
                "when": ("when",),
                "where": ("where",),
                "how much": ("how much", "for how much", "what price"),
                "with whom": ("who", "with whom"),
            }[wh]
            direct, indirect = [], []
            for form in forms:
                end = (
                    " with"
                    if form == "who"
                    else " for"
                    if form in ("how much", "what price") and rng.random() < 0.6
                    else ""
                )
                direct.append(f"{form} did {s} {base} {o}{end}")
                indirect.append(f"{form} {s} {past} {o}{end}")
                if past.endswith("ed") and form in ("when", "where") and not human:
                    direct.append(f"{form} was {o} {past}")
            asked = value if wh != "where" else f"{preposition}{value}"
            asks.append(Question(f"{wh} {key}|{who.key}", asked, direct, indirect, [], [], (f"{wh} {key}",)))
        return Fact(sentence, asks, who)

    def appointment(self, event: Phrase | None = None) -> Fact:
        """ "The meeting is on Tuesday at 14:30 in room 204": three values in one sentence."""
        rng, wording = self.rng, self.wording
        event = event or (self.bare() if rng.random() < 0.25 else self.event())
        parts = []
        day = pick(rng, ("day", "date"))
        if rng.random() < 0.8:
            parts.append(("day", "on ", self.value(day)))
        if rng.random() < 0.75 or not parts:
            parts.append(("time", "at ", self.value("time")))
        if rng.random() < 0.6:
            parts.append(
                (
                    "place",
                    "in " if rng.random() < 0.7 else "at ",
                    self.value(pick(rng, ("room", "place", "town", "org"))),
                )
            )
        if rng.random() < 0.2:
            parts.append(("person", "with ", self.value("person")))
        if rng.random() < 0.35:
            rng.shuffle(parts)
        verb = pick(rng, wording.appointment_verbs)
        sentence = f"{capital(event.text)} {verb} " + " ".join(f"{p}{v}" for _, p, v in parts)
        e, asks = event.text, []
        joined = self._when(parts)
        for kind, preposition, value in parts:
            direct = [q.format(e=e) for q in wording.appointment_questions[kind]]
            indirect = [q.format(e=e) for q in wording.appointment_indirect[kind]]
            if kind == "place" and preposition + value in sentence:
                value = preposition + value
            asks.append(Question(f"{kind}|{event.key}", value, direct, indirect, [f"{e} {word}" for word in wording.appointment_words[kind]], [],
                                 (f"where|{event.key}",) if kind == "place" else (), "" if kind == "place" else kind, [], [f"the {word} of {e}" for word in wording.appointment_words[kind]] if kind in ("time", "person") else []))  # fmt: skip
        if joined:
            asks.append(
                Question(
                    f"when|{event.key}",
                    joined,
                    [q.format(e=e) for q in wording.when_questions],
                    [f"when {e} is"],
                    [f"{e} when"],
                )
            )
        return Fact(sentence, asks, event, lambda rng, split: self.appointment(event), [event.text], "", "appointment")

    @staticmethod
    def _when(parts) -> str:
        """The text of day and time where they stand side by side, else the only one of them."""
        kinds = [kind for kind, _, _ in parts]
        both = [(p, v) for kind, p, v in parts if kind in ("day", "time")]
        if len(both) == 2:
            if abs(kinds.index("day") - kinds.index("time")) != 1:
                return ""
            return f"{both[0][1]} {both[1][0]}{both[1][1]}"
        return both[0][1] if both else ""
