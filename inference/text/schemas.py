"""JSON schemas: whether a value is one, where a `$ref` leads, what a value may be, and whether any value has an end."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# Keywords that hold a schema, a list of schemas, and schemas by free names.
_SCHEMAS = {
    *("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties"),
}
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


# What other values, and values of other types, of a keyword must be.
_VALUES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(NAMED, ("an object", lambda _: False)),
    **dict.fromkeys(_LISTS, ("a list of schemas", lambda _: False)),
    **dict.fromkeys(("$ref", "$id", "$anchor", "pattern"), ("a text", lambda value: isinstance(value, str))),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), ("a count", _is_count)),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), ("a count", _is_count)),
    **dict.fromkeys(("minimum", "maximum"), ("a number", _is_number)),
    # In the fourth draft these are true or false, and in the third each property says whether it is required.
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"), ("a number", lambda value: isinstance(value, int | float))
    ),
    "required": (
        "a list of texts",
        lambda value: isinstance(value, bool) or (isinstance(value, list) and set(map(type, value)) <= {str}),
    ),
    "multipleOf": ("a number above 0", lambda value: _is_number(value) and value > 0),
    "enum": ("a list", lambda value: isinstance(value, list)),
    "uniqueItems": ("true or false", lambda value: isinstance(value, bool)),
}


# Keywords that say something about a value.
CONSTRAINTS = {*_SCHEMAS, *_LISTS, *_VALUES, "type", "enum", "const"} - {"$id", "$anchor", "$defs", "definitions"}


def schema_fault(schema: Any) -> str | None:
    """Say why a value is no JSON schema of any draft since the fourth; None if it is one. Annotations are not looked at."""
    parts: list[tuple[Any, Any]] = [((), schema)]  # (the way to it, a schema)
    for way, part in parts:
        if not isinstance(part, Mapping):
            if isinstance(part, bool):
                continue
            return f"{place_name(way) or 'it'} must be an object or boolean"
        for key, value in part.items():
            if key in NAMED and isinstance(value, Mapping):
                free = (way, key)
                parts += [
                    ((free, name), one)
                    for name, one in value.items()
                    if one != {} and (key != "dependencies" or not isinstance(one, list))
                ]
            elif ((key in _LISTS and value) or key == "items") and isinstance(value, list):
                parts += [(((way, key), index), one) for index, one in enumerate(value)]
            elif key in _SCHEMAS:
                parts.append(((way, key), value))
            elif key == "type":
                names = value if isinstance(value, list) and value else [value]
                if unknown := [name for name in names if name not in TYPES]:
                    return f"Invalid type: {ascii(str(unknown[0]))[1:-1][:100]}"
            elif key in _VALUES and not _VALUES[key][1](value):
                return f"{place_name((way, key))} must be {_VALUES[key][0]}"
    return None


def place_name(way: Any) -> str:
    """Write the way to a place in a JSON value, in ASCII: (((), "tools"), 0) is tools.0."""
    names: list[str] = []
    while way:
        way, name = way
        names.append(str(name)[:100])
    return ascii(".".join(reversed(names)))[1:-1].lstrip(".")[:200]


class References:
    """Where the references of a schema lead."""

    def __init__(self, root: Any) -> None:
        self._bases: dict[int, str] = {}  # of schemas by id, the names of the documents in which they are
        self._named: dict[str, Any] = {}  # documents, and places with an anchor
        waiting = [(root, "")]
        while waiting:
            part, base = waiting.pop()
            if isinstance(part, Mapping):
                if isinstance(name := part.get("$id"), str):
                    base = _joined(base, name)[0]
                    self._named.setdefault(base, part)
                if isinstance(anchor := part.get("$anchor"), str):
                    self._named.setdefault(f"{base}#{anchor}", part)
                if "$ref" in part:
                    self._bases[id(part)] = base
            waiting += [
                (each, base)
                for each in (part.values() if isinstance(part, Mapping) else part)
                if isinstance(each, Mapping | list)
            ]
        self._named.setdefault("", root)

    def place(self, schema: Mapping[str, Any]) -> Any:
        """Return what the `$ref` of a schema names; None without one, for nothing, and for another document's part."""
        if not isinstance(reference := schema.get("$ref"), str):
            return None
        document, path = _joined(self._bases.get(id(schema), ""), reference)
        if path and path[0] != "/":
            return self._named.get(f"{document}#{path}")
        place = self._named.get(document)
        for key in path.split("/")[1:]:
            key = unquote(key).replace("~1", "/").replace("~0", "~")
            if isinstance(place, list):
                index = int(key) if key.isdecimal() and len(key) < 10 else len(place)
                place = place[index] if index < len(place) else None
            else:
                place = place.get(key) if isinstance(place, Mapping) else None
        return place


def _joined(base: str, reference: str) -> tuple[str, str]:
    """Return (document, fragment) of a reference that stands in the document `base`."""
    try:
        return urldefrag(urljoin(base, reference))
    except ValueError:  # no URL
        return reference, ""


def inlined(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the `$ref` of a whole schema by what it names, as often as that has one."""
    references, seen = References(schema), set()
    while (reference := schema.get("$ref")) not in seen and isinstance(place := references.place(schema), Mapping):
        seen.add(reference)
        schema = {**{key: value for key, value in schema.items() if key != "$ref"}, **place}
    return schema


def alternatives(schema: Any, references: References, is_exact: bool = False) -> Iterator[Any]:
    """Yield the schemas of which a value must have one, without the `$ref`, `anyOf` and `oneOf` that lead to them; each once.

    is_exact: keep those that stand next to other keywords about the value.
    """
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        schema = waiting.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        keywords = schema if isinstance(schema, Mapping) else {}
        choices = [] if "type" in keywords else keywords.get("anyOf", keywords.get("oneOf"))
        if is_exact and len(CONSTRAINTS & keywords.keys()) > 1:
            yield schema
        elif (place := references.place(keywords)) is not None:
            waiting.append(place)
        elif isinstance(choices, list) and choices:
            waiting += reversed(choices)
        else:
            yield schema


# llguidance reads constants as 64-bit floats and bounds as 64-bit integers; one that has only the lowest integer ends the process.
_LARGEST = 2**63 - 1024
_BOUNDS = {"minimum": 1, "exclusiveMinimum": 1, "maximum": -1, "exclusiveMaximum": -1}
_MOST_REMAINDERS = 100_000  # of divisions by multipleOf: an automaton of a million takes six seconds


def number_fault(schema: Any) -> tuple[str, str] | None:
    """Return (a number of a schema that no grammar can keep, what is expected instead).

    That is a constant that is no float below 2^63, a bound beyond all integers, or a multipleOf with too many remainders.
    """
    values = [(schema, False, False)]  # (value, whether it is in a constant, whether its names are free)
    remainders = 1
    expected = "numbers that 64-bit floats hold exactly, below 2^63"
    while values:
        value, is_constant, is_named = values.pop()
        if isinstance(value, Mapping):
            for name, each in value.items():
                if not is_named and _is_number(each):
                    if each * _BOUNDS.get(name, 0) > _LARGEST:
                        return str(each), expected
                    if name == "multipleOf" and each > 0:
                        if each < 2**28:  # ten times more overflows 32 bits
                            digits = "".join(map(str, Decimal(str(each)).as_tuple().digits)).rstrip("0")
                            remainders = math.lcm(remainders, int(digits))
                        if each >= 2**28 or remainders > _MOST_REMAINDERS:
                            return f"multipleOf {each}", f"at most {_MOST_REMAINDERS} remainders in all"
                values.append(
                    (each, is_constant or (not is_named and name in ("const", "enum")), not is_named and name in NAMED)
                )
        elif isinstance(value, list):
            values += [(each, is_constant, False) for each in value]
        elif is_constant and _is_number(value) and (abs(value) > _LARGEST or value != float(value)):
            return str(value), expected
    return None


def has_end(schema: Any) -> bool:
    """Tell whether some value of a schema is finite. A schema that refers to itself at every turn has none."""
    references, waiting = References(schema), [schema]
    unmet: dict[
        int, set[int]
    ] = {}  # by the id of a schema inside of it: its needs, of which none is known to have an end
    needed: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by the id of a schema: those needs that it meets
    while waiting:
        part = waiting.pop()
        if id(part) in unmet:
            continue
        needs = _needs(part, references)
        unmet[id(part)] = set(range(len(needs)))
        for index, choices in enumerate(needs):
            waiting += choices
            for choice in choices:
                needed[id(choice)].append((id(part), index))
    ended = [part for part, needs in unmet.items() if not needs]
    for part in ended:
        for other, index in needed[part]:
            if index in unmet[other]:
                unmet[other].remove(index)
                ended += [] if unmet[other] else [other]
    return not unmet[id(schema)]


def _needs(schema: Any, references: References) -> list[list[Any]]:
    """Return lists of schemas: of each list, one must have an end if this schema has."""
    if not isinstance(schema, Mapping):
        return []
    needs: list[list[Any]] = []
    if (place := references.place(schema)) is not None:
        needs.append([place])
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list) and choices:
            needs.append(choices)
    if isinstance(parts := schema.get("allOf"), list):
        needs += [[part] for part in parts]
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, Mapping) and isinstance(required, list) and types == ["object"]:
        needs += [[properties[name]] for name in required if isinstance(name, str) and name in properties]
    least = schema.get("minItems")
    if isinstance(least, int) and types == ["array"]:
        first = schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        needs += [[each] for each in first[:least]]
        if least > len(first) and "items" in schema:
            needs.append([schema["items"]])
    return needs
