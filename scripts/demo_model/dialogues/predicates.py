"""What a sentence can say of somebody or something: verbs with their frames, and how each is asked for.

One predicate a line of texts/predicates.txt:   subjects | verb | frame | wh-words | noun phrases that name the value
  subjects  kinds of noun phrases: person, thing, event, org, bare (an event without an article), animal
  verb      base form; "be" and "have" are inflected; a particle may follow ("start out"); past tense in parentheses if irregular
  frame     what follows the verb, with one {type of value}
  wh-words  what asks for the value; "which X" makes "which X does S verb prep?"
  nouns     names of the value, for "the N of S" and for descriptions in questions of two steps; may be empty
Two more columns may follow:
  questions further questions, by synonyms: {s} the subject, {do} and {be} verbs that agree with it
  changes   statements after which the {new} value holds
"""

from dataclasses import dataclass

from . import texts


@dataclass(frozen=True)
class Predicate:
    subjects: tuple[str, ...]
    verb: str
    past: str
    before: str  # of the frame, up to the value
    value_type: str
    after: str
    wh: tuple[str, ...]
    nouns: tuple[str, ...]
    questions: tuple[str, ...] = ()  # further ones, with {s}, {do} and {be}
    changes: tuple[str, ...] = ()  # further statements of a change, with {s} and {{new}}

    @property
    def name(self) -> str:
        return f"{self.verb} {self.before}{{{self.value_type}}}{self.after}"


def _parse(line: str) -> Predicate:
    subjects, verb, frame, wh, nouns, *more = (part.strip() for part in line.split("|"))
    questions, changes = (*more, "", "")[:2]
    past = ""
    if "(" in verb:
        at, end = verb.index("("), verb.index(")")
        past = verb[at + 1 : end] + verb[end + 1 :]
        verb = verb[:at].strip() + verb[end + 1 :]
    before, rest = frame.split("{")
    value_type, after = rest.split("}")
    return Predicate(
        tuple(subjects.split()), verb, past or _past(verb), before, value_type, after,
        tuple(w.strip() for w in wh.split(";")), _list(nouns), _list(questions),
        tuple(c.replace("{new}", "{{new}}") for c in _list(changes)),
    )  # fmt: skip


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _past(verb: str) -> str:
    head, _, rest = verb.partition(" ")
    if head in ("be", "have"):
        return verb
    if head.endswith("e"):
        head += "d"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ied"
    else:
        head += "ed"
    return f"{head} {rest}".strip()


PREDICATES = list({(p.name, p.subjects): p for p in map(_parse, texts.read("predicates").splitlines())}.values())
