"""Arguments of function calls, written as JSON while a call is read, and made to fit the function's JSON schema.

What is written can be read by Python and JavaScript alike: `portable` says how.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from .schemas import References, alternatives

_EXACT = 2**53  # floats up to here are whole numbers exactly
# Models sometimes wrap all arguments in one of these.
_WRAPPERS = ("arguments", "input")
_MOST_PARTS = 100  # schemas that lead to each other by allOf, by recursion; a type that is farther away is not known
_NO_JSON = object()
_LONGEST_INTEGER = 4300  # digits: Python refuses to read longer ones
# Of JSON: a text, whose escapes may be halves of surrogate pairs, or an integer that Python refuses.
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_BRACKETS = re.compile(rf"{_TEXT.pattern}|[][{{}}]")
# Levels of a value: OpenAI's and Anthropic's clients, with their jiter, read one more, and Python's json as many as its stack has.
_DEEPEST = 200
_LONG_INTEGER = re.compile(rf"({_TEXT.pattern})|(?<![\d.eE+-])(-?\d)(\d{{{_LONGEST_INTEGER},}}+)(?![.eE])")
_HEX = "[0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf"\\u[dD][89abAB]{_HEX}\\u[dD][c-fC-F]{_HEX}|(\\u[dD][89a-fA-F]{_HEX})|\\.")


class ToolSchema:
    """The schema of a function's arguments, which repairs them. Without a schema nothing is repaired."""

    def __init__(self, schema: Any = None) -> None:
        self._schema: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        properties = self._schema.get("properties")
        self._properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}

    @cached_property
    def _references(self) -> References:
        return References(self._schema)

    def is_text(self, name: str) -> bool:
        """Tell whether any text is a value for this parameter, as far as is known."""
        types = self._types(self._properties.get(name))
        return types is None or "string" in types

    def may_wrap(self, name: str) -> bool:
        """Tell whether a parameter of this name may hold all arguments."""
        return name in _WRAPPERS and bool(self._properties) and name not in self._properties

    def value(self, name: str, text: str, is_string: bool) -> str:
        """Write a parameter's value as JSON. Numbers keep their spelling, unless the schema expects a whole number."""
        return _value(text, is_string, self._types(self._properties.get(name)))

    def unwrapped(self, text: str) -> str | None:
        """Read the arguments in a wrapping parameter's text; None if they are not this function's."""
        value = _parse(text)
        if isinstance(value, str):
            text, value = value, _parse(value)
        return (
            self.body(text)
            if isinstance(value, dict) and 0 < len(value.keys() & self._properties) == len(value)
            else None
        )

    def body(self, text: str) -> str | None:
        """Read arguments that are one JSON object; None for another text."""
        if (members := _members(text := portable(text))) is None:
            return None
        repaired = [(name, self._repaired(name, written)) for name, written in members]
        if all(new == written for (_, new), (_, written) in zip(repaired, members, strict=True)):
            return text.strip()
        return "{" + ", ".join(f"{_dump(name)}: {value}" for name, value in repaired) + "}"

    def _repaired(self, name: str, written: str) -> str:
        """Repair a value that is written as JSON. A value that fits keeps its spelling."""
        value = _parse(written)
        if isinstance(value, str) and self.is_text(name):
            return written
        return self.value(name, value if isinstance(value, str) else written, isinstance(value, str))

    def _types(self, schema: Any, seen: set[int] | None = None) -> frozenset[str] | None:
        """Return the names of the JSON types that a schema accepts; None if they are not known. seen: schemas that lead to it."""
        seen = set() if seen is None else seen
        found: set[str] = set()
        for each in alternatives(schema, self._references):
            types = self._own_types(each, seen) if isinstance(each, Mapping) and id(each) not in seen else None
            if types is None:
                return None
            found.update(types)
        return frozenset(found) or None

    def _own_types(self, schema: Mapping[str, Any], seen: set[int]) -> Iterable[str] | None:
        seen.add(id(schema))
        if isinstance(kind := schema.get("type"), str | list):
            return [kind] if isinstance(kind, str) else [name for name in kind if isinstance(name, str)]
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list):
            return map(_type, values)
        parts = schema.get("allOf") if len(seen) < _MOST_PARTS else None
        each = (self._types(part, seen) for part in (parts if isinstance(parts, list) else ()))
        return next((types for types in each if types is not None), None)


def tool_schemas(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, ToolSchema]:
    """Return the schemas by the functions' names; `tools` has OpenAI's shape."""
    functions = [tool.get("function", tool) for tool in tools or () if isinstance(tool, Mapping)]
    named = [each for each in functions if isinstance(each, Mapping) and isinstance(each.get("name"), str)]
    return {each["name"]: ToolSchema(each.get("parameters")) for each in named}


def is_object(text: str) -> bool:
    """Tell whether a text is a JSON object."""
    return isinstance(_parse(text), dict)


# What ends the beginning of an object: nothing, after a whole value, inside a text, and after a name.
_ENDINGS = ("", "}", '"}', "null}")


def _begun(text: str) -> tuple[str, list[tuple[str, str]] | None]:
    """Read an object, or its beginning: what ends it, and its members up to there; None for other texts."""
    found = ((ending, members) for ending in _ENDINGS if (members := _members(text + ending)) is not None)
    return next(found, ("", None))


def whole_members(text: str) -> str:
    """Write an object of the members that are whole in the arguments of a call, which may have been cut."""
    ending, members = _begun(text or "{")
    if not ending or members is None:
        return text
    whole = members if ending == "}" else members[:-1]
    return "{" + ", ".join(f"{_dump(name)}: {value}" for name, value in whole) + "}"


def parameters(text: str) -> list[tuple[str, str, bool]] | None:
    """Read arguments as (name, value, whether it is a text); values that are not texts are JSON. None for other texts.

    Also reads the beginning of an object, as a call that was cut has it: its last text goes as far as it has come, and a name
    that has no value yet is left out.
    """
    ending, members = _begun(text)
    if members is None:
        return None
    read = []
    for name, written in members[:-1] if ending == "null}" else members:
        value = _parse(written)
        if isinstance(value, str):
            read.append((name, value, True))
        else:
            spelled = _dump(value)  # the format's spelling, unless a number is beyond the range of floats
            read.append((name, written if "Infinity" in spelled else spelled, False))
    return read


def portable(text: str) -> str:
    """Return JSON that Python and JavaScript read alike, for JSON that JavaScript reads.

    Integers keep all digits, as in OpenAI's answers, though JavaScript rounds those beyond 2^53; integers of more than 4,300
    digits, which Python refuses, get an exponent. Halves of surrogate pairs, which UTF-8 cannot write, become U+FFFD.
    """
    if len(text) > _LONGEST_INTEGER:
        text = _LONG_INTEGER.sub(lambda found: found[1] or f"{found[2]}.{found[3][:16]}e{len(found[3])}", text)
    if "\\u" in text:
        text = _TEXT.sub(
            lambda found: _ESCAPE.sub(lambda escape: "\\ufffd" if escape[1] else escape[0], found[0]), text
        )
    return text


def _value(text: str, is_string: bool, types: frozenset[str] | None) -> str:
    as_text = _dump(text)
    if is_string and (types is None or "string" in types):
        return as_text
    value = _parse(text)
    if value is not _NO_JSON and (alike := portable(text)) != text:
        text, value = alike, _parse(alike)
    if value is not _NO_JSON and (types is None or _fits(value, types)):
        if types is not None and type(value) is float and value.is_integer() and abs(value) <= _EXACT:
            return str(int(value))
        return text
    if types is not None and "boolean" in types and (word := text.strip().lower()) in ("true", "false"):
        return word
    if isinstance(value, str) and not is_string:
        return _value(value, True, types)
    if is_string or value is _NO_JSON or (types is not None and "string" in types):
        return as_text
    return text


def _fits(value: Any, types: frozenset[str]) -> bool:
    if type(value) is int:
        return not types.isdisjoint(("integer", "number"))
    if type(value) is float:
        # A number beyond the range of floats has no fraction.
        return "number" in types or ("integer" in types and (value.is_integer() or math.isinf(value)))
    return _type(value) in types


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(
    parse_constant=_refuse, parse_int=lambda digits: (int if len(digits) <= _LONGEST_INTEGER else float)(digits)
)


def _parse(text: str) -> Any:
    """Read a value; _NO_JSON for a text that is none, or is nested deeper than clients read."""
    try:
        return _NO_JSON if _depth(text) > _DEEPEST else _DECODER.decode(text)
    # RecursionError comes from thousands of nested brackets.
    except (ValueError, RecursionError):
        return _NO_JSON


def _depth(text: str) -> int:
    """Return how deep the lists and objects of a JSON text are nested, or a number below _DEEPEST."""
    depth = deepest = 0
    if text.count("[") + text.count("{") > _DEEPEST:
        for bracket in _BRACKETS.findall(text):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket, 0)
            deepest = max(deepest, depth)
    return deepest


def _members(text: str) -> list[tuple[str, str]] | None:
    """Return an object's names and values, as they are written; None if the text is not an object."""
    if not isinstance(_parse(text), dict):
        return None
    members: dict[str, str] = {}  # the last one of a name counts, as for other readers
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        start = _skip(text, text.index(":", at) + 1)
        _, at = _DECODER.raw_decode(text, start)
        members[name] = text[start:at]
        at = _skip(text, at)
    return list(members.items())


def _skip(text: str, at: int) -> int:
    """Skip white space and commas."""
    while text[at] in " \t\n\r,":
        at += 1
    return at


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class CallWriter:
    """Writes a call's arguments, parameter by parameter. What it has written is never taken back.

    A text is written as it comes. Other values are written once they are complete, because the schema may repair them.
    """

    def __init__(self, name: str, schema: ToolSchema | None) -> None:
        self.name = name
        self._schema = schema or ToolSchema()
        self.has_parameters = False
        self._written: list[str] = []
        self._taken = 0  # pieces of what is written
        self._key = ""
        self._is_string = False
        self._value: list[str] | None = None  # of the parameter that is open, unless it is written as it comes
        # A parameter that may hold all arguments, if it stays the only one.
        self._wrapper: tuple[str, str, bool] | None = None

    @property
    def arguments(self) -> str:
        return "".join(self._written)

    def take(self) -> str:
        """Return what has been written since the last call."""
        new, self._taken = self._written[self._taken :], len(self._written)
        return "".join(new)

    def open(self, key: str, is_string: bool) -> None:
        """Begin a parameter."""
        self._write_wrapper()
        self.has_parameters = True
        self._key, self._is_string = key, is_string
        if is_string and self._schema.is_text(key) and not self._may_wrap():
            self._write_key(key, '"')
        else:
            self._value = []

    def add(self, text: str) -> None:
        """Add a part of the open parameter's value."""
        if self._value is not None:
            self._value.append(text)
        elif text:
            self._written.append(json.dumps(text, ensure_ascii=False)[1:-1])

    def close(self) -> None:
        """End the open parameter."""
        if self._value is None:
            self._written.append('"')
            return
        text, self._value = "".join(self._value), None
        if self._may_wrap():
            self._wrapper = (self._key, text, self._is_string)
        else:
            self._write_key(self._key, self._schema.value(self._key, text, self._is_string))

    def end(self, body: str, is_closed: bool) -> bool:
        """End the call; `body` is its text besides parameters. False if the text makes no call.

        A call without parameters may give its arguments as one JSON object, or have none, if it is closed.
        """
        if self._wrapper is not None and (arguments := self._schema.unwrapped(self._wrapper[1])) is not None:
            self._written, self._wrapper = [arguments], None
            return True
        self._write_wrapper()
        if self._written:
            self._written.append("}")
            return True
        whole = self._schema.body(body) if body.strip() else "{}" if is_closed else None
        self._written += [] if whole is None else [whole]
        return whole is not None

    def cut(self) -> None:
        """End the call before its end. Its arguments stay the beginning of an object, so that no one takes them for whole.

        A value that is written only when it is complete is left out: it may become another one.
        """
        if self._value is not None and not self._may_wrap():
            self._write_wrapper()
            self._write_key(self._key, "")
        elif not self._written and self.has_parameters:
            self._written.append("{")

    def _may_wrap(self) -> bool:
        return not self._written and self._schema.may_wrap(self._key)

    def _write_wrapper(self) -> None:
        if self._wrapper is not None:
            key, text, is_string = self._wrapper
            self._wrapper = None
            self._write_key(key, self._schema.value(key, text, is_string))

    def _write_key(self, key: str, value: str) -> None:
        self._written.append(f"{', ' if self._written else '{'}{json.dumps(key, ensure_ascii=False)}: {value}")
