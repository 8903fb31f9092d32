"""E-mails, minutes, chats and numbered lists."""

import re

from .. import names
from ..clauses import Grammar
from ..lexicon import OBJECTS, RELATIONS
from ..phrases import Question, capital
from ..splits import pick
from .drawn import Line
from .kinds import cell
from .tables import some

_SELF = re.compile(r"\b(I|me|my|we|us|our)\b", re.IGNORECASE)


def mail(grammar: Grammar) -> list[Line]:
    """An e-mail with headers, and statements in its body."""
    rng = grammar.rng
    sender, to = names.given(rng, grammar.split), names.given(rng, grammar.split)
    subject = pick(rng, [grammar.value("phrase"), f"the {pick(rng, OBJECTS)}", grammar.event().text])
    date = grammar.value("date")
    lines: list[Line] = [
        (f"From: {sender}", [Question("mail from", sender, ["who wrote the e-mail", "who sent the email", "who is the mail from", "from whom is the e-mail"], ["who sent the e-mail"], ["sender", "from"])]),
        (f"To: {to}", [Question("mail to", to, ["who is the e-mail to", "to whom was the email sent", "who got the e-mail"], ["who the mail was sent to"], ["recipient"])]),
        (f"Subject: {subject}", [Question("mail subject", subject, ["what is the subject of the e-mail", "what is the email about", "what's the subject line"], ["the subject of the mail"], ["subject"])]),
        (f"Date: {date}", [Question("mail date", date, ["when was the e-mail sent", "what is the date of the email", "when did the mail arrive"], ["when the mail was sent"], ["date of the e-mail"])]),
    ]  # fmt: skip
    rng.shuffle(lines)
    lines = lines[: 2 + int(rng.random() * 3)]
    lines += [("", []), (f"{pick(rng, ['Hi', 'Dear', 'Hello'])} {to},", [])]
    for _ in range(1 + int(rng.random() * 4)):
        fact = grammar.fact()
        line = fact.sentence + "."
        if not _SELF.search(line):  # "I" would be the sender
            lines.append((line, [question for question in fact.questions if question.value in line]))
    return [*lines, (pick(rng, ["Best regards,", "Cheers,", "Thanks,", "Best,"]), []), (sender, [])]


def minutes(grammar: Grammar) -> list[Line]:
    """Who is to do what by when, who came, what was decided, when one meets again."""
    rng, split, lines, used = grammar.rng, grammar.split, [], set()
    title = pick(
        rng,
        [
            "Minutes",
            "Meeting notes",
            "To do",
            "Action items",
            "Tasks",
            "Protocol",
            "Notes from the meeting",
            "Actions",
            "TODO",
            "Next steps",
            "Minutes of the board meeting",
        ],
    )
    lines.append((f"{title}{pick(rng, ['', ':', ' of ' + grammar.value('day')])}", []))
    if rng.random() < 0.35:
        lines += _meeting(grammar, ("present", "chair", "date", "minutes by"))
    form = pick(rng, [
        "{p} to {t} by {b}", "{n}. {p} will {t} by {b}", "- {p}: {t} ({b})", "[ ] {t} - {p}, {b}", "* {p} has to {t} until {b}", "- {p} will {t} by {b}", "{p}: {t} by {b}", "Action {p}: {t}, due {b}",
        "ACTION: {p} to {t} by {b}", "- [ ] {p}: {t} until {b}", "{p} -> {t} ({b})", "{t}: {p}, {b}", "@{p} {t} by {b}", "- {t} ({p}, {b})", "{p} {t} {b}", "{n}) {t}, {p}, by {b}", "- [x] {t} ({p}, {b})", "{p} agreed to {t} by {b}",
    ])  # fmt: skip
    for number in range(1 + int(rng.random() * 6)):
        who = names.given(rng, split)
        task = cell(rng, split, "task")
        if rng.random() < 0.5:
            verb = task.split(" ")[0]
            task = f"{verb} the {grammar.value('phrase')}"
        by = cell(rng, split, pick(rng, ("day", "date", "@")), 0.0)
        if who in used or task in used:
            continue
        used |= {who, task}
        text = form.format(p=who, t=task, b=by, n=number + 1)
        verb, what = task.split(" ", 1)
        lines.append((text, [
            Question(f"who task {task}", who, some(rng, [f"who will {task}", f"who has to {task}", f"who is to {task}", f"whose job is it to {task}", f"who is going to {task}", f"who should {task}", f"who does {what}", f"who takes care of {what}", f"who is responsible for {what}"], 5), [f"who will {task}"], [f"{task}", f"who: {task}"]),
            Question(f"what task|{who.lower()}", task, some(rng, [f"what does {who} have to do", f"what will {who} do", f"what is {who} supposed to do", f"what should {who} do", f"what is {who}'s task", f"what is {who}'s job", f"what did {who} agree to do", f"what does {who} need to do"], 4), [f"what {who} has to do"], [f"{who}'s task"]),
            Question(f"when task {task}", by, some(rng, [f"by when will {who} {task}", f"when does {who} have to {task}", f"until when does {who} have to {task}", f"what is the deadline for {who}", f"when will {who} {task}", f"by when should {who} {task}", f"when is {who}'s task due", f"what is {who}'s deadline", f"when should {what} be done"], 5), [f"by when {who} has to {task}"], [f"{who} deadline"], [], (f"when|{who.lower()}",)),
        ]))  # fmt: skip
    if rng.random() < 0.5:
        lines += _meeting(grammar, ("decision", "next meeting", "budget", "place", "topic"))
    return lines


_MEETING = {
    "present": ("Present|Attendees|Participants|There", "people", "who was there|who was present|who attended|who came to the meeting"),
    "chair": ("Chair|Moderator|Led by", "given", "who chaired the meeting|who led the meeting|who was the chair"),
    "date": ("Date|date|When", "date", "when was the meeting|what is the date of the minutes|on what date was the meeting"),
    "minutes by": ("Minutes by|Notes|Written by|Minutes", "given", "who wrote the minutes|who took the notes|who wrote the notes"),
    "decision": ("Decision|Decided|Result|Agreed", "task", "what was decided|what did we decide|what was agreed|what is the decision"),
    "next meeting": ("Next meeting|Next|Next time|We meet again", "daydate", "when is the next meeting|when do we meet again|when do we meet next"),
    "budget": ("Budget|Approved|Budget approved", "$", "how much was approved|what is the budget|how big is the budget|how much money do we have"),
    "place": ("Place|Where|Room", "venue", "where was the meeting|where did we meet|in which room was the meeting"),
    "topic": ("Topic|About|Subject", "phrase", "what was the topic|what was the meeting about|what did we talk about"),
}  # fmt: skip


def _meeting(grammar: Grammar, labels) -> list[Line]:
    rng, lines = grammar.rng, []
    for label in labels:
        if rng.random() < 0.5:
            continue
        shown, kind, asks = _MEETING[label]
        value = cell(rng, grammar.split, kind, rng.random())
        lines.append(
            (
                f"{pick(rng, shown.split('|'))}: {value}",
                [
                    Question(
                        f"{label}|meeting",
                        value,
                        asks.split("|"),
                        [],
                        [label, f"{label} of the meeting"],
                        [],
                        (f"{label}|",),
                    )
                ],
            )
        )
    return lines


def listing(grammar: Grammar) -> list[Line]:
    """A list with a title: what has to be bought, who comes, in which order."""
    rng = grammar.rng
    relation = pick(
        rng,
        [
            *(f"{r}s" for r in RELATIONS[:20]),
            "guests",
            "players",
            "books",
            "errands",
            "ingredients",
            "chapters",
            "stops",
            "prizes",
        ],
    )
    lines: list[Line] = [(f"{capital(relation)}:", [])]
    for number in range(3 + int(rng.random() * 6)):
        value = grammar.value(pick(rng, ("phrase", "person", "food", "title")))
        ordinal = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"][number]
        single = relation.removesuffix("s")
        asks = [
            f"what is number {number + 1} of the {relation}",
            f"which {single} is {ordinal}",
            f"what is the {ordinal} of the {relation}",
            f"what is {single} number {number + 1}",
        ]
        lines.append(
            (
                f"{number + 1}{pick(rng, ['.', ')', ':'])} {value}",
                [Question(f"{ordinal} {relation}", value, asks, [], [f"{ordinal} {single}"])],
            )
        )
    return lines
