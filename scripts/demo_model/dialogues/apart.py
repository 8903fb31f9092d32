"""Which cases may stand in one conversation: no question of one must be answered by what was told of the other."""

import re
from functools import cache

from .cases import Case, Subject
from .writer import stems

# Words that hardly say what a question is about.
_COMMON = stems(
    "get got take took take make made go went goes going come came put keep kept used use need new old now last first next best right time day days date week month year many much long "
    "far name named called kind sort type number amount thing things one ones place work works working people person somebody someone there here back down off over after before until since"
    " whole full own usually really actually currently today tonight again still else left start starts end ends big small good bad like call say said gave give pay paid cost costs price "
    "spend charge owe buy bought which what find found leave stand stands hold holds have having has set has run runs way exactly money always every each per"
)


def _words(forms) -> frozenset[str]:
    return frozenset(word for form in forms for word in _content(form))


@cache
def _content(form: str) -> frozenset[str]:
    return frozenset(word for word in stems(re.sub(r"\{\w+\}", " ", form)) if len(word) > 2)


@cache
def asking(case: Case) -> frozenset[str]:
    """The words of a case's questions that say what it is about."""
    return _words([*case.genus, *(ask for slot in case.slots.values() for ask in (*slot.asks, *slot.nouns))]) - _COMMON


@cache
def _telling(case: Case) -> frozenset[str]:
    """All words of its statements, changes and questions."""
    told = [*case.genus, *(form for forms in case.statements.values() for form in forms)]
    for slot in case.slots.values():
        told += [*slot.asks, *slot.nouns, *(form for forms in slot.changes.values() for form in forms)]
    return _words(told)


@cache
def keys(case: Case) -> tuple[frozenset[str], ...]:
    return tuple(_words([key]) for key in case.keys)


@cache
def asks_what_tells(one: Case, other: Case) -> bool:
    """Whether a question of the one could be answered by what the other tells."""
    told = _telling(other)
    return bool(asking(one) & told) or any(key <= told for key in keys(one))


@cache
def names_case(form: str, case: Case) -> bool:
    """Whether a change says what it is about: by its subject, the value before, or a word of the user's own matter."""
    if case.genus and "{g}" not in form and "{o}" not in form:
        return False
    words = _words([form])
    return re.search(r"\{(xs?|o)\}", form) is not None or (case.mine and bool(words & (asking(case) | frozenset().union(*keys(case)))))  # fmt: skip


def apart(one: Case, about: Subject, other: Case, whom: Subject) -> bool:
    """Whether two cases, about these subjects, share nothing."""
    if one.mine and other.mine:
        return not (asks_what_tells(one, other) or asks_what_tells(other, one))
    if not one.mine and not other.mine:
        return one is not other or about.key != whom.key
    mine, theirs, thing = (one, other, whom) if one.mine else (other, one, about)
    named = _words([thing.text])
    return theirs.somebody or not (asking(mine) & named or any(key & named for key in keys(mine)))
