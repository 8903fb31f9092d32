"""Grammars in llguidance's dialect of Lark: whether some beginning of a text has no end."""

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .schemas import has_end

if TYPE_CHECKING:
    from llguidance import LLMatcher

# Comments, texts, expressions, tokens, and the beginnings of blocks in JSON.
_WORD = re.compile(
    r'(?P<comment>(?://|#)[^\n]*)|"(?:[^"\\\n]|\\.)*"|/(?:[^/\\\n]|\\.)+/[a-z]*|<[^<>\s]+>|%(?P<block>json|regex)\s*(?=\{)'
)
_STATEMENT = re.compile(r"^[ \t]*(?:(?P<name>[!?]?\w+)(?:\[[^]]*\])?\s*:|%\w+)", re.MULTILINE)
_MAY_BE_EMPTY = re.compile(r"\[\^|&&|\\[pP]")  # in an expression: a class that may hold no character
_MOST_CHECKED = 32  # terminals and expressions; compiling each takes a millisecond


def json_schemas(grammar: str) -> Iterator[Any]:
    """Yield the schemas in a grammar, up to one that is no JSON."""
    at = 0
    while found := _WORD.search(grammar, at):
        at = found.end()
        if found["block"]:
            try:
                schema, at = json.JSONDecoder().raw_decode(grammar, at)
            except (ValueError, RecursionError):
                return
            yield schema


def has_dead_end(grammar: str, compiled: Callable[[str], "LLMatcher"]) -> bool:
    """Tell whether a grammar, which can be compiled, has a rule or a terminal that no finite text matches.

    Such a rule would end an answer with an error, after a beginning that seems to fit. With every terminal replaced by the empty
    text, all rules in a row match the empty text only if each of them ends.
    """
    pieces: list[str] = []  # the grammar with blanks in place of its words, at the same places
    doubtful: list[str] = []
    at = 0
    while found := _WORD.search(grammar, at):
        pieces.append(grammar[at : found.start()])
        at, word = found.end(), found.group()
        if found["block"]:
            schema, at = json.JSONDecoder().raw_decode(grammar, at)
            if found["block"] == "json" and not has_end(schema):
                return True
        if word.startswith("/") and not found["comment"] and _MAY_BE_EMPTY.search(word):
            doubtful.append(word)
        size = at - found.start()
        pieces.append(" " * size if found["comment"] else f'"{"_" * (size - 2)}"')
    plain = "".join([*pieces, grammar[at:]])
    statements = list(_STATEMENT.finditer(plain))
    ends = [each.start() for each in statements[1:]] + [len(plain)]
    rules, terminals = {}, []
    for statement, end in zip(statements, ends, strict=True):
        name = statement["name"]
        if name is None:
            continue
        if name.lstrip("!?_")[:1].islower():
            body = re.sub(r'"_*"i?|\b_*[A-Z]\w*', '""', plain[statement.end() : end])
            rules[name.lstrip("!?")] = re.sub(r"\bstart\b", "start__", body)
        else:
            terminals.append(grammar[statement.start() : end])
            if re.search("[&~]", plain[statement.end() : end]):
                doubtful.append(name)
    names = [re.sub(r"^start$", "start__", name) for name in rules]
    rows = [f"{name}: {body}" for name, body in zip(names, rules.values(), strict=True)]
    whole = compiled("\n".join([f"start: {' '.join(names)}", *rows]))
    if not whole.is_accepting() and not whole.is_error():  # else it goes beyond this reading of Lark
        return True
    return any(_is_empty(compiled("\n".join([f"start: {each}", *terminals]))) for each in doubtful[:_MOST_CHECKED])


def _is_empty(matcher: "LLMatcher") -> bool:
    matcher.compute_bitmask()
    return matcher.is_error()
