"""Sentences about things and tasks: how many there are, where, and who does what until when."""

from .lexicon import ADJECTIVES, FOODS, OBJECTS, TRANSITIVES
from .phrases import ME, Fact, Phrase, Question, capital, third_person
from .splits import pick
from .subjects import Subjects


class Tasks(Subjects):
    """Draws facts of things that exist and of what somebody has to do."""

    def existence(self) -> Fact:
        """ "There are 12 eggs in the fridge", "We have 40 chairs", "I need 3 kilos of rice"."""
        rng, wording = self.rng, self.wording
        noun = pick(rng, OBJECTS + FOODS)
        plural = noun if noun.endswith("s") else f"{noun}s"
        count, spot = self.value("count"), self.value("spot")
        if rng.random() < 0.3:  # "there is a spare key behind the cactus"
            thing = Phrase.of(f"{pick(rng, ['a', 'another', 'some', 'one'])} {pick(rng, ADJECTIVES)} {noun}", "thing")
            thing = Phrase(thing.text, " ".join(thing.text.split()[1:]), "thing")
            sentence = pick(
                rng,
                [
                    "There is {t} {v}",
                    "There's {t} {v}",
                    "You have {t} {v}",
                    "We have {t} {v}",
                    "I saw {t} {v}",
                    "I put {t} {v}",
                    "{V} there is {t}",
                ],
            ).format(t=thing.text, v=spot, V=capital(spot))
            asked = f"the {thing.key}"
            question = Question(f"location|{thing.key}", spot, [q.format(t=asked, be="is", do="does") for q in wording.location_questions],
                                [q.format(t=asked, be="is") for q in wording.location_indirect], [asked, f"a {thing.key}"], [], (f"where|{thing.key}",))  # fmt: skip
            return Fact(sentence, [question], Phrase(asked, thing.key, "thing"))
        who = ME if rng.random() < 0.6 else self.person()
        verb = pick(rng, ["have", "need", "own", "buy", "sell", "order", "want"])
        if rng.random() < 0.5:
            sentence = pick(
                rng,
                [
                    "There are {n} {p} {v}",
                    "{n} {p} are {v}",
                    "{V} there are {n} {p}",
                    "We have {n} {p} {v}",
                    "I counted {n} {p} {v}",
                    "I put {n} {p} {v}",
                ],
            ).format(n=count, p=plural, v=spot, V=capital(spot))
            many = Question(f"how many {plural}", count, [f"how many {plural} are {spot}", f"how many {plural} are there", f"how many {plural} do we have", f"what is the number of {plural}", f"how many {plural} are there {spot}"],
                            [f"how many {plural} there are"], [f"number of {plural}", f"{plural} count"])  # fmt: skip
            where = Question(
                f"location|{plural}",
                spot,
                [q.format(t=f"the {plural}", be="are", do="do") for q in wording.location_questions],
                [f"where the {plural} are"],
                [f"the {plural}"],
                [],
                (f"where|{plural}",),
            )
            return Fact(capital(sentence), [many, where], Phrase(f"the {plural}", plural, "thing", plural=True))
        does = "do" if who.person == 1 else "does"
        shown = verb if who.person == 1 else third_person(verb)
        sentence = f"{capital(who.text)} {shown} {count} {plural}"
        question = Question(f"how many {plural} {verb}|{who.key}", count, [f"how many {plural} {does} {who.text} {verb}", f"how many {plural} will {who.text} {verb}"], [f"how many {plural} {who.text} {shown}"],
                            [f"number of {plural}", f"{who.text} {plural}" if who.person == 3 else f"my {plural}"], [], (f"how many {plural}",))  # fmt: skip
        return Fact(sentence, [question], who)

    def task(self) -> Fact:
        """ "Please hand in the report by Friday", "Anna has to call the bank at 9:30": somebody, something, when."""
        rng = self.rng
        who = ME if rng.random() < 0.4 else self.person()
        base, _ = pick(rng, TRANSITIVES)
        what = self.thing()
        preposition, value = pick(
            rng,
            [
                ("by ", self.value("day")),
                ("by ", self.value("time")),
                ("at ", self.value("time")),
                ("on ", self.value("day")),
                ("before ", self.value("time")),
                ("until ", self.value("date")),
                ("on ", self.value("date")),
            ],
        )
        s, o, verb = who.text, what.text, base
        if who.person == 1:
            form = pick(rng, ["I have to {b} {o} {t}", "I need to {b} {o} {t}", "Please {b} {o} {t}", "Don't forget to {b} {o} {t}", "Remember to {b} {o} {t}", "We must {b} {o} {t}", "I should {b} {o} {t}",
                              "{B} {o} {t}", "You have to {b} {o} {t}", "I promised to {b} {o} {t}", "To do: {b} {o} {t}", "I want to {b} {o} {t}", "We are going to {b} {o} {t}", "Todo {b} {o} {t}"])  # fmt: skip
        else:
            form = pick(rng, ["{S} has to {b} {o} {t}", "{S} needs to {b} {o} {t}", "{S} will {b} {o} {t}", "{S} must {b} {o} {t}", "{S} is going to {b} {o} {t}", "{S} promised to {b} {o} {t}",
                              "{S} should {b} {o} {t}", "{S} wants to {b} {o} {t}", "{S} is supposed to {b} {o} {t}", "{S} can {b} {o} {t}", "Tell {s} to {b} {o} {t}", "Remind {s} to {b} {o} {t}"])  # fmt: skip
        sentence = form.format(S=capital(s), s=s, b=verb, B=capital(verb), o=o, t=preposition + value)
        subject = s if who.person == 3 else pick(rng, ["I", "we", "you"])
        do = "does" if who.person == 3 else "do"
        when = Question(
            f"when {base}|{what.key}", value,
            [f"when {do} {subject} have to {verb} {o}", f"by when {do} {subject} have to {verb} {o}", f"when must {subject} {verb} {o}", f"when should {subject} {verb} {o}", f"when will {subject} {verb} {o}",
             f"what is the deadline for {o}", f"when is {o} due", f"when does {o} have to be ready", f"until when can {subject} {verb} {o}"],
            [f"when {subject} {'has' if who.person == 3 else 'have'} to {verb} {o}"], [f"deadline for {o}", f"{verb} {o}"],
        )  # fmt: skip
        when.topics = [f"the deadline for {o}"]
        when.kind = "dayish" if preposition in ("by ", "on ", "until ") else "time"
        when.changes = [
            pick(rng, (f"{{old}} is too early, {s if who.person == 3 else 'we'} can {verb} {o} {preposition}{{new}}", f"there is more time to {verb} {o}, {preposition}{{new}}", f"it's {preposition}{{new}} now that {o} has to be done",
                       f"{verb} {o} {preposition}{{new}} instead", f"the deadline for {o} was moved to {{new}}", f"we have until {{new}} to {verb} {o}", f"please {verb} {o} {preposition}{{new}}, not {{old}}"))
        ]  # fmt: skip
        asks = [when]
        if who.person == 3:
            asks.append(
                Question(
                    f"who {base}|{what.key}",
                    s,
                    [
                        f"who has to {verb} {o}",
                        f"who will {verb} {o}",
                        f"who should {verb} {o}",
                        f"who is going to {verb} {o}",
                    ],
                    [f"who has to {verb} {o}"],
                    [],
                    kind="person",
                    changes=[
                        pick(
                            rng,
                            (
                                f"instead of {{old}}, {{new}} will {verb} {o}",
                                f"{{new}} will {verb} {o} instead",
                                f"{{old}} can't, so {{new}} has to {verb} {o}",
                                f"{{new}} offered to {verb} {o}, {{old}} is busy",
                                f"{{old}} is ill, {{new}} will {verb} {o}",
                                f"{{new}} took over from {{old}} and will {verb} {o}",
                                f"it's {{new}} who has to {verb} {o}, not {{old}}",
                                f"let {{new}} {verb} {o}, {{old}} has no time",
                            ),
                        )
                    ],
                )
            )
            asks.append(
                Question(
                    f"what {base}|{who.key}",
                    o,
                    [f"what does {s} have to {verb}", f"what will {s} {verb}", f"what should {s} {verb}"],
                    [f"what {s} has to {verb}"],
                    [],
                )
            )
        return Fact(sentence, asks, who)
