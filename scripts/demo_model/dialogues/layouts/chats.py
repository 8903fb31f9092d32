"""Messages of several people in a chat, who speak of themselves."""

from .. import names
from ..clauses import Grammar
from ..phrases import Question, capital
from ..splits import pick
from .drawn import Line
from .kinds import cell

# What somebody writes in a chat; {v} a value of the kind; questions about {p}.
_MESSAGES = """
I'll bring {v} | dish | what is {p} bringing; what does {p} bring; what will {p} bring | who is bringing {v}; who brings {v}
I bring {v} | dish | what does {p} bring; what is {p} bringing | who brings {v}; who is bringing {v}
I'm in {v} right now | town | where is {p}; where is {p} right now; which city is {p} in | who is in {v}
I land at {v} | @ | when does {p} land; at what time does {p} land; when does {p} arrive | who lands at {v}
I'll be there at {v} | @ | when will {p} be there; when does {p} come; what time does {p} arrive; at what time is {p} there | who comes at {v}; who will be there at {v}
running late, there at {v} | @ | when will {p} be there; when does {p} arrive | who will be there at {v}
my flight is {v} | flight | what is {p}'s flight; which flight does {p} take; which flight is {p} on | who is on {v}
I can do {v} | day | when does {p} have time; which day can {p} do; when can {p}; what day works for {p} | who can do {v}; who has time on {v}
{v} works for me | day | what day works for {p}; when does {p} have time; which day suits {p} | for whom does {v} work
I paid {v} for it | $ | how much did {p} pay; what did {p} pay for it | who paid {v}
my new number is {v} | phone | what is {p}'s new number; what is {p}'s number; how can I reach {p} | whose number is {v}
I have the {v} | keyname | what does {p} have; which key does {p} have | who has the {v}
I left the keys {v} | spot | where did {p} leave the keys; where are the keys | who left the keys {v}
I'm allergic to {v} | food | what is {p} allergic to; which allergy does {p} have; what can't {p} eat | who is allergic to {v}
I'd like {v} | dish | what would {p} like; what does {p} want; what does {p} want to eat; what is {p} having | who wants {v}; who would like {v}
{v} for me please | dish | what does {p} want; what did {p} order; what is {p} having | who wants {v}; who ordered {v}
I'll take the {v} shift | =early/late/night/morning/evening/weekend | which shift does {p} take; what shift has {p} | who takes the {v} shift; who has the {v} shift
I can drive, {v} seats left | #2-7 | how many seats does {p} have; how many seats are left in {p}'s car | who has {v} seats
I'm staying at {v} | stadium | where is {p} staying; where does {p} stay; which hotel is {p} in | who stays at {v}
I start at {v} on Monday | company | where does {p} start; where will {p} work; which company does {p} join | who starts at {v}
my train gets in at {v} | @ | when does {p}'s train get in; when does {p} arrive; what time does {p}'s train arrive | whose train gets in at {v}
I'm on platform {v} | #1-28 | which platform is {p} on; where is {p}; what platform is {p} waiting on | who is on platform {v}
the meeting room is {v} | #100-900 | which meeting room did {p} say; what is the meeting room; where is the meeting | who said that the room is {v}
let's meet at {v} | stadium | where does {p} want to meet; where do we meet; where should we meet | who wants to meet at {v}
I'm reading {v} | title | what is {p} reading; which book is {p} reading; what does {p} read | who is reading {v}
I vote for {v} | dish | what does {p} vote for; what did {p} vote for | who votes for {v}; who voted for {v}
I fixed the {v} | thing | what did {p} fix; what has {p} fixed | who fixed the {v}; who repaired the {v}
I'll {v} | task | what will {p} do; what is {p} going to do; what does {p} want to do | who will {v}; who is going to {v}
I bought a {v} | thing | what did {p} buy; what has {p} bought | who bought a {v}; who bought the {v}
I lost my {v} | thing | what did {p} lose; what has {p} lost | who lost the {v}; who lost their {v}
I got {v} points | #2-99 | how many points did {p} get; what did {p} score | who got {v} points
I'm {v} now | #18-90 | how old is {p}; what age is {p} | who is {v}
"""


def _messages() -> list[tuple[str, str, list[str], list[str]]]:
    rows = [[part.strip() for part in line.split(" | ")] for line in _MESSAGES.strip().splitlines()]
    return [(text, kind, asks.split("; "), back.split("; ")) for text, kind, asks, back in rows]


_CHAT = _messages()


def chat(grammar: Grammar) -> list[Line]:
    """Messages of several people, who speak of themselves."""
    rng, split, lines = grammar.rng, grammar.split, []
    form = pick(
        rng,
        [
            "{p}: {m}",
            "{p}: {m}",
            "[{t}] {p}: {m}",
            "{t} {p}: {m}",
            "<{p}> {m}",
            "{p} ({t}): {m}",
            "{p} - {m}",
            "@{p} {m}",
            "{p} says: {m}",
            "{p} wrote: {m}",
            "{t} - {p}: {m}",
            "{p} > {m}",
        ],
    )
    hour, minute, used = int(rng.random() * 24), int(rng.random() * 30), set()
    for _ in range(2 + int(rng.random() * 6)):
        minute += int(rng.random() * 5)
        who = names.given(rng, split)
        text, kind, asks, back = pick(rng, _CHAT)
        if who in used or minute > 59:
            continue
        used.add(who)
        value = cell(rng, split, kind, 0.0)
        if kind == "dish" and not value.endswith("s") and rng.random() < 0.3:
            value = "the " + value
        message = text.format(v=value)
        if rng.random() < 0.4:
            message = capital(message)
        if rng.random() < 0.3:
            message += pick(rng, [".", "!", " :)", " ok?", "!!"])
        line = form.format(p=who, m=message, t=f"{hour:02d}:{minute:02d}")
        questions = [
            Question(
                f"chat {text}|{who.lower()}",
                value,
                [q.format(p=who) for q in asks],
                [],
                [f"{who} {kind}"] if kind.isalpha() and kind not in ("task", "keyname", "stadium", "spot") else [],
                [],
                tuple(f"{q}|{who.lower()}" for q in asks),
            )
        ]
        if value not in used:
            used.add(value)
            questions.append(
                Question(
                    f"chat {text}|{value.lower()}",
                    who,
                    [q.format(v=value) for q in back],
                    [],
                    [],
                    [],
                    tuple(f"{q}|{value.lower()}" for q in back),
                )
            )
        lines.append((line, [q for q in questions if q.value in line]))
    return lines
