"""What an answer must look like: JSON, a regular expression, one of several texts, or a grammar."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("json", "json_object", "regex", "choice", "grammar")
# Characters of a description: a compiled grammar takes some hundred times as much memory.
_MOST_CHARACTERS = 2**18
# Of one text or pattern in it: the automaton of a literal makes a mask in about 2 µs for each of its characters.
_LONGEST_LITERAL = 4096
# Keywords of schemas: of texts and patterns, and of objects whose names are no keywords.
_LITERALS = ("const", "enum", "pattern")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


@dataclass(frozen=True)
class StructuredOutputsParams:
    """A constraint on the text of an answer: exactly one of the fields. Names and meanings are vLLM's."""

    json: str | Mapping[str, Any] | None = None  # a JSON schema
    json_object: bool = False  # any JSON object
    regex: str | None = None  # the whole text matches; Rust's syntax, without look-around and back-references
    choice: Sequence[str] | None = None  # one of these, kept as a tuple
    grammar: str | None = None  # Lark's or GBNF's notation, with the rule `start` or `root`
    # The constraint begins after </think>, and the answer cannot end before. LLM.chat and the server set it.
    after_thinking: bool = False

    def __post_init__(self) -> None:
        if self.choice is not None:
            if (
                isinstance(self.choice, str)
                or not self.choice
                or not all(isinstance(each, str) for each in self.choice)
            ):
                raise ValueError(f"structured_outputs.choice is {self.choice!r:.100}; expected a list of texts")
            object.__setattr__(self, "choice", tuple(self.choice))
        given = [kind for kind in KINDS if getattr(self, kind) not in (None, False)]
        if len(given) != 1:
            raise ValueError(
                f"structured_outputs has {', '.join(given) or 'nothing'}; expected one of {', '.join(KINDS)}"
            )
        for kind in ("regex", "grammar"):
            if not isinstance(getattr(self, kind), str | None):
                raise ValueError(f"structured_outputs.{kind} is {getattr(self, kind)!r:.100}; expected a text")
        if not isinstance(self.json, str | Mapping | None):
            raise ValueError(f"structured_outputs.json is {self.json!r:.100}; expected a JSON schema")

    def description(self) -> tuple[str, str]:
        """(kind, text), by which a compiled grammar is found again. ValueError for a schema that is no JSON object."""
        if self.json_object:
            return "json", '{"type": "object"}'
        if self.choice is not None:
            kind, text, literals = "choice", json.dumps(self.choice), list(self.choice)
        elif self.json is not None:
            kind, text = "json", self.json if isinstance(self.json, str) else _dump(self.json)
            literals = _literals(schema := _load(text))
            if not isinstance(schema, dict):
                raise ValueError(
                    f"structured_outputs.json is {text[:100]!r}; expected a JSON schema, which is an object"
                )
        else:
            kind, text = ("regex", self.regex) if self.regex is not None else ("grammar", self.grammar or "")
            literals = [self.regex] if self.regex is not None else []
        if (longest := max(map(len, literals), default=0)) > _LONGEST_LITERAL:
            raise ValueError(
                f"structured_outputs.{kind} has a text of {longest} characters; expected at most {_LONGEST_LITERAL}"
            )
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(
                f"structured_outputs.{kind} has {len(text)} characters; expected at most {_MOST_CHARACTERS}"
            )
        return kind, text


def _dump(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"structured_outputs.json cannot be written as JSON ({error}); expected a JSON schema"
        ) from None


def _literals(schema: Any) -> list[str]:
    """The patterns of a schema and the texts that its values may be."""
    found: list[str] = []
    values = [(schema, False, False)]  # (value, whether its texts are such, whether its names are a client's)
    while values:
        value, is_literal, is_named = values.pop()
        if isinstance(value, str):
            found += [value] * is_literal
        elif isinstance(value, dict):
            values += [
                (each, is_literal or (not is_named and name in _LITERALS), not is_named and name in _NAMED)
                for name, each in value.items()
            ]
        elif isinstance(value, list):
            values += [(each, is_literal, False) for each in value]
    return found


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
