"""Facts in texts that nobody says: key and value lines, tables, JSON, logs, e-mails, minutes. A quote is a whole line."""

import json

from ..conversations.splits import pick
from . import names, values
from .clauses import Grammar, Phrase, Question, article, capital
from .lexicon import ATTRIBUTES, DAYS, OBJECTS, RELATIONS

# One line and the questions that it answers.
Line = tuple[str, list[Question]]


def _attribute_question(grammar: Grammar, noun: str, owner: Phrase | None, value: str, kind: str) -> Question:
    return grammar.attribute(owner, noun, kind, value).questions[0]


def _nouns(grammar: Grammar, count: int) -> list[str]:
    chosen: list[str] = []
    while len(chosen) < count:
        noun = pick(grammar.rng, ATTRIBUTES) if grammar.rng.random() < 0.8 else grammar.attribute_noun()
        if noun not in chosen:
            chosen.append(noun)
    return chosen


def key_values(grammar: Grammar) -> list[Line]:
    """ "wifi password: kettle42", one a line, of one owner or of nobody."""
    rng = grammar.rng
    owner = grammar.phrase(pick(rng, ("person", "org", "thing"))) if rng.random() < 0.4 else None
    separator = pick(rng, [": ", ": ", " = ", " - ", ":\t", " => ", "  "])
    bullet = pick(rng, ["", "", "- ", "* ", "• "])
    lines: list[Line] = [(f"{capital(owner.text)}{pick(rng, [':', '', ' -'])}", [])] if owner else []
    for noun in _nouns(grammar, 2 + int(rng.random() * 6)):
        kind = values.type_for(rng, noun)
        value = grammar.value(kind)
        shown = pick(rng, [noun, capital(noun)])
        lines.append((f"{bullet}{shown}{separator}{value}", [_attribute_question(grammar, noun, owner, value, kind)]))
    return lines


def table(grammar: Grammar) -> list[Line]:
    """Rows of owners, columns of attributes."""
    rng = grammar.rng
    columns = _nouns(grammar, 1 + int(rng.random() * 3))
    kinds = [values.type_for(rng, noun) for noun in columns]
    maker = pick(
        rng,
        [
            lambda: names.given(rng, grammar.split),
            lambda: names.word(rng, grammar.split),
            lambda: pick(rng, OBJECTS),
            lambda: pick(rng, DAYS),
        ],
    )
    rows: list[str] = []
    for _ in range(2 + int(rng.random() * 7)):
        name = maker()
        if name not in rows:
            rows.append(name)
    join = pick(rng, [" | ", ";", ",", "\t", " - ", " | "])
    head = pick(rng, ["name", "item", "who", "Name", ""])
    lines: list[Line] = [(join.join([head, *columns]), [])] if rng.random() < 0.9 else []
    if join == " | " and rng.random() < 0.5 and lines:
        lines = [(f"| {lines[0][0]} |", []), ("|" + "---|" * (len(columns) + 1), [])]
    for name in rows:
        cells = [grammar.value(kind) for kind in kinds]
        if join in (",", ";"):
            cells = [cell.replace(",", "") for cell in cells]
        owner = Phrase(name, name.lower(), "person")
        text = join.join([name, *cells])
        if len(lines) == 2 and lines[1][0].startswith("|-"):
            text = f"| {text} |"
        lines.append(
            (
                text,
                [
                    _attribute_question(grammar, noun, owner, cell, kind)
                    for noun, cell, kind in zip(columns, cells, kinds, strict=True)
                ],
            )
        )
    return lines


def json_lines(grammar: Grammar) -> list[Line]:
    """An object, or one object a line."""
    rng = grammar.rng
    nouns = _nouns(grammar, 2 + int(rng.random() * 4))
    keys = [noun.replace(" ", pick(rng, ["_", "_", " "])) for noun in nouns]
    if rng.random() < 0.5:
        lines: list[Line] = [("{", [])]
        for noun, key in zip(nouns, keys, strict=True):
            kind = values.type_for(rng, noun)
            value = grammar.value(kind)
            lines.append(
                (
                    f'  "{key}": {json.dumps(value, ensure_ascii=False)},',
                    [_attribute_question(grammar, noun, None, value, kind)],
                )
            )
        return [*lines, ("}", [])]
    lines = []
    for _ in range(2 + int(rng.random() * 4)):
        name = names.given(rng, grammar.split)
        owner = Phrase(name, name.lower(), "person")
        record, questions = {"name": name}, []
        for noun, key in zip(nouns[:3], keys, strict=False):
            kind = values.type_for(rng, noun)
            record[key] = grammar.value(kind)
            questions.append(_attribute_question(grammar, noun, owner, record[key], kind))
        lines.append((json.dumps(record, ensure_ascii=False), questions))
    return lines


def log(grammar: Grammar) -> list[Line]:
    """Lines of a server's log: what failed, with which error, when."""
    rng = grammar.rng
    day = f"{2020 + int(rng.random() * 8)}-{int(rng.random() * 12) + 1:02d}-{int(rng.random() * 28) + 1:02d}"
    minute, lines = int(rng.random() * 1000), []
    used: set[str] = set()
    for _ in range(3 + int(rng.random() * 8)):
        minute += int(rng.random() * 40) + 1
        time = f"{minute // 60 % 24:02d}:{minute % 60:02d}:{int(rng.random() * 60):02d}"
        service = pick(
            rng,
            ["db", "web", "cache", "auth", "queue", "mail", "backup", "worker", names.word(rng, grammar.split).lower()],
        )
        if rng.random() < 0.6:
            service += f"-{int(rng.random() * 30) + 1}"
        level = pick(rng, ["INFO", "INFO", "WARN", "ERROR", "ERROR", "DEBUG"])
        what, detail = pick(rng, [
            ("timeout", f"after {int(rng.random() * 90) + 2}s"), ("restarted", f"with pid {int(rng.random() * 30000)}"), ("disk usage", f"{int(rng.random() * 100)}%"),
            ("out of memory", f"at {int(rng.random() * 64) + 1} GB"), ("connection refused", f"from {grammar.value('ip')}"), ("exit code", str(int(rng.random() * 200))),
            ("deployed", f"version {grammar.value('version')}"), ("login", f"by {names.given(rng, grammar.split).lower()}"), ("job failed", f"error {int(rng.random() * 900) + 100}"),
        ])  # fmt: skip
        text = pick(
            rng,
            [
                f"{day} {time} {level} {service} {what} {detail}",
                f"[{time}] {level} {service}: {what} {detail}",
                f"{time} {service} {level.lower()} {what} {detail}",
            ],
        )
        key = f"{what}|{service}"
        questions: list[Question] = []
        if key not in used:
            used.add(key)
            value = detail.split(" ", 1)[1] if " " in detail and not detail[0].isdigit() else detail
            if what in ("timeout", "out of memory"):
                value = detail
            ask = {
                "timeout": f"after how long did {service} time out|when did {service} time out|timeout of {service}", "restarted": f"with which pid did {service} restart|what pid did {service} get",
                "disk usage": f"what is the disk usage of {service}|how full is the disk of {service}", "out of memory": f"when did {service} run out of memory|at how many GB was {service} out of memory",
                "connection refused": f"from which address was the connection to {service} refused|which IP did {service} refuse", "exit code": f"what was the exit code of {service}|with which code did {service} exit",
                "deployed": f"which version of {service} was deployed|what version was deployed on {service}", "login": f"who logged in to {service}|who logged into {service}",
                "job failed": f"with which error did {service} fail|what error did the job on {service} have",
            }[what].split("|")  # fmt: skip
            questions.append(Question(key, value, ask, [], [f"{service} {what}"]))
            questions.append(
                Question(
                    f"time {key}",
                    time,
                    [
                        f"at what time did {service} log {what}",
                        f"when was the {what} on {service}",
                        f"what is the time of the {what} of {service}",
                    ],
                    [],
                    [f"time of {what} on {service}"],
                    [],
                    (f"when|{service}",),
                )
            )
        lines.append((text, questions))
    return lines


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
        if fact.subject.person == 3:  # "I" would be the sender
            lines.append((fact.sentence + ".", fact.questions))
    return [*lines, (pick(rng, ["Best regards,", "Cheers,", "Thanks,", "Best,"]), []), (sender, [])]


def minutes(grammar: Grammar) -> list[Line]:
    """Who is to do what by when."""
    rng, lines, used = grammar.rng, [], set()
    title = pick(rng, ["Minutes", "Meeting notes", "To do", "Action items", "Tasks", "Protocol"])
    lines.append((f"{title}{pick(rng, ['', ':', ' of ' + grammar.value('day')])}", []))
    for number in range(2 + int(rng.random() * 6)):
        who = names.given(rng, grammar.split)
        verb = pick(
            rng,
            [
                "order",
                "call",
                "send",
                "fix",
                "check",
                "buy",
                "write",
                "book",
                "print",
                "return",
                "clean",
                "test",
                "sell",
                "paint",
                "update",
            ],
        )
        what = f"the {grammar.value('phrase')}"
        by = grammar.value(pick(rng, ("day", "date", "time")))
        if who in used or what in used:
            continue
        used |= {who, what}
        text = pick(rng, [
            f"{who} to {verb} {what} by {by}", f"{number + 1}. {who} will {verb} {what} by {by}", f"- {who}: {verb} {what} ({by})", f"[ ] {verb} {what} - {who}, {by}",
            f"* {who} has to {verb} {what} until {by}",
        ])  # fmt: skip
        key = f"task {verb} {what}"
        lines.append((text, [
            Question(f"who {key}", who, [f"who will {verb} {what}", f"who has to {verb} {what}", f"who is to {verb} {what}", f"whose job is it to {verb} {what}"], [f"who will {verb} {what}"], [f"{verb} {what}"]),
            Question(f"what task|{who}", what, [f"what does {who} have to {verb}", f"what will {who} {verb}", f"what is {who} supposed to {verb}"], [f"what {who} has to {verb}"], []),
            Question(f"when {key}", by, [f"by when will {who} {verb} {what}", f"when does {who} have to {verb} {what}", f"until when does {who} have to {verb} {what}", f"what is the deadline for {who}"], [f"by when {who} has to {verb} {what}"], [f"{who} deadline"]),
        ]))  # fmt: skip
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


def notes(grammar: Grammar) -> list[Line]:
    """Headed notes: a heading, then "an X of Y"."""
    rng = grammar.rng
    owner = grammar.phrase(pick(rng, ("org", "event", "thing")))
    lines: list[Line] = [(f"# {capital(owner.text)}", [])]
    for noun in _nouns(grammar, 2 + int(rng.random() * 4)):
        kind = values.type_for(rng, noun)
        value = grammar.value(kind)
        lines.append(
            (
                pick(
                    rng,
                    [
                        f"{capital(noun)} {value}",
                        f"{capital(article(noun))} of {value}",
                        f"{capital(noun)} is {value}",
                        f"- {noun}: {value}",
                    ],
                ),
                [_attribute_question(grammar, noun, owner, value, kind)],
            )
        )
    return lines


LAYOUTS = (key_values, key_values, table, table, json_lines, log, mail, minutes, listing, notes)
