"""Cases of remarks turned to the user, "Ana is allergic to nuts" to "I am allergic to nuts", and clauses without their verb, ", Femi next to the door"."""

import re

from ..splits import SPLITS
from .remark_cases import CASES, Case, Slot

_VERBS = {
    "is": "am",
    "has": "have",
    "does": "do",
    "goes": "go",
    "isn't": "am not",
    "hasn't": "haven't",
    "doesn't": "don't",
    "lies": "lie",
}
_KEPT = frozenset(
    "was will can can't could would should did just might must has's wasn't won't couldn't had always".split()
)
_ADVERBS = frozenset("just already never still also only usually really always now".split())
_INVERTED = re.compile(r"\b(is|does|has|was|will|can|did|should|could|would|can't|didn't|doesn't) \{x\}")
_OBJECT = re.compile(r"\{x\}(?=$| (?:at|on|in|for|with|from|by|to|back|around|sick|as|up|out|of|and)\b|[,:;?])")
_PREPOSITIONS = frozenset(
    "at on in with for from to under by until near of into as a the seat level room number".split()
)
_COMMON = frozenset(
    "what which where when does have that name called kind time much many like with from about after before year long often goes going should will would could need needs know the for you your are was how who whose did get got take takes make makes"
    " day days place number there thing their his her free most".split()
)

# The user's own cases of `remarks` that tell the same: only one of them may be told.
_RIVALS = {
    "phoneof": "myphone", "emailof": "myphone", "allergy": "myhealth", "pill": "myhealth mymeds", "carof": "mycar", "trip": "mytrip", "desk": "mywork", "employer": "mywork",
    "livelihood": "mywork", "hometown": "myhome", "tall": "mybody", "size": "mybody", "likes": "mytastes", "drinkof": "myroutine mytastes", "child": "mykids", "pet": "mydog mycat",
    "doctorof": "mydentist", "partner": "mywedding", "shift": "mywork", "hobby": "mydiary mylearning", "boss": "mywork myteam", "seatof": "myflight", "studies": "mylearning", "plays": "mylearning",
    "speaks": "mylearning", "league": "myteam mydiary", "brings": "myshopping", "gift": "myshopping",
}  # fmt: skip


def _verb(word: str) -> str:
    """The verb as it stands after "I"."""
    if word in _VERBS:
        return _VERBS[word]
    if word in _KEPT or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if re.search(r"(ch|sh|ss|x|o)es$", word) else word[:-1]


def first_person(form: str) -> str | None:
    """A form about {x} as the user says it of himself, or None."""
    if re.search(r"\b(I|me|my|we|us|our|i'm|I'm|I'll)\b|\{xp\}('d|'s| \w+s\b)|\{x\}'|\{z\}|\{x2\}", form):
        return None
    text = form.replace("{xs}", "my").replace("{xr}", "my").replace("{xp}", "I").replace("{xo}", "me")
    text = _INVERTED.sub(lambda match: f"{_VERBS.get(match[1], match[1])} I", text)
    if match := re.match(r"\{x\} (?:(\w+) )?(\S+)", text):
        first, second = match[1], match[2]
        if first in _ADVERBS:
            text = f"I {first} {_verb(second)}" + text[match.end() :]
        elif first:
            text = f"I {_verb(first)} {second}" + text[match.end() :]
        elif second.isalpha():
            text = f"I {_verb(second)}" + text[match.end() :]
    text = _OBJECT.sub("me", text)
    text = re.sub(r"(?<=\band )([a-z]+s)\b", lambda match: _verb(match[1]), text) if text.startswith("I ") else text
    text = "I'm " + text[5:] if text.startswith("I am ") else text
    return None if "{x}" in text or re.search(r"^me\b|^my \{|\bI and\b|\b(of|up) me\b", text) else text


def _forms(forms) -> tuple[str, ...]:
    return tuple(text for form in forms if (text := first_person(form)))


def _turned(case: Case) -> Case | None:
    slots = {}
    for letter, slot in case.slots.items():
        slots[letter] = Slot(
            slot.kind, _forms(slot.asks), {split: _forms(slot.asks_of[split]) for split in SPLITS}, _forms(slot.nouns),
            {split: _forms(slot.changes[split]) for split in SPLITS},
        )  # fmt: skip
    statements = {split: _forms(case.statements[split]) for split in SPLITS}
    words = {
        word for slot in slots.values() for ask in (*slot.asks, *slot.nouns) for word in re.findall(r"[a-z]{3,}", ask)
    }
    keys = tuple(sorted(words - _COMMON))
    keys += tuple(key for name in _RIVALS.get(case.name, "").split() for key in CASES[name].keys)
    if not keys or not any(statements.values()) or not any(slot.asks for slot in slots.values()):
        return None
    return Case(f"own {case.name}", ("me",), keys, slots, statements, _forms(case.untold))


# By the case of others. Left out are those that say what the user does with others.
OWN = {
    case.name: turned for case in CASES.values() if case.somebody and case.name not in ("person2", "birth", "points", "lent", "said", "debt")
    if (turned := _turned(case)) is not None
}  # fmt: skip
OWN_BY_SPLIT = {split: [case for case in OWN.values() if case.tellable(split)] for split in SPLITS}
# What one can have several of: a second one is no change.
SEVERAL = frozenset(
    "allergy likes brings drinkof plays speaks sibling child pill debt lent gift pet hobby said health2 order stock menu gameworld".split()
)


# Verbs that a second clause can leave out.
_SHARED = frozenset(
    "is has sits lives works plays got gets wants drives speaks studies brings drinks loves takes weighs starts closes opens leaves costs cost needs eats ordered means belongs was goes supports"
    " coaches joined bought owes does comes wears stands trains runs uses went handles".split()
)


def clause_without_verb(form: str, key: str, found: str) -> str | None:
    """A clause whose verb the clause before has: "{x} sits {y}" as "{x} {y}"; None if it cannot be left out. key, found: its slots."""
    match = re.match(rf"^\{{{key}\}} ([^{{}}]+?) ?\{{{found}\}}$", form)
    if match is None:
        return None
    words = match[1].split()
    kept = f"{words[-1]} " if words[-1] in _PREPOSITIONS else ""
    return f"{{{key}}} {kept}{{{found}}}" if len(words) <= 3 and words[0] in _SHARED else None
