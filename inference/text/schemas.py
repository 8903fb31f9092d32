"""JSON schemas: where a `$ref` leads, what a value may be, and whether any value has an end."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote


def resolve(root: Any, reference: str) -> Any:
    """Return what "#/a/0/b" names in a schema; None for nothing, for another document's part, and for an anchor."""
    document, _, path = reference.partition("#")
    if document not in ("", root.get("$id")) or (path and path[0] != "/"):
        return None
    place = root
    for key in path.split("/")[1:]:
        key = unquote(key).replace("~1", "/").replace("~0", "~")
        if isinstance(place, list):
            index = int(key) if key.isdecimal() and len(key) < 10 else len(place)
            place = place[index] if index < len(place) else None
        else:
            place = place.get(key) if isinstance(place, Mapping) else None
    return place


def inlined(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the `$ref` of a whole schema by what it names, as often as that has one."""
    whole, seen = schema, set()
    while isinstance(reference := schema.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        place = resolve(whole, reference)
        if not isinstance(place, Mapping):
            break
        schema = {**{key: value for key, value in schema.items() if key != "$ref"}, **place}
    return schema


def alternatives(schema: Any, root: Any) -> Iterator[Any]:
    """Yield the schemas of which a value must have one, without the `$ref`, `anyOf` and `oneOf` that lead to them; each once."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        schema = waiting.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        keywords = schema if isinstance(schema, Mapping) else {}
        choices = [] if "type" in keywords else keywords.get("anyOf", keywords.get("oneOf"))
        reference = keywords.get("$ref")
        if isinstance(reference, str) and (place := resolve(root, reference)) is not None:
            waiting.append(place)
        elif isinstance(choices, list) and choices:
            waiting += reversed(choices)
        else:
            yield schema


def has_end(schema: Any) -> bool:
    """Tell whether some value of a schema is finite. A schema that refers to itself at every turn has none."""
    # The schemas inside of it, by id, each with lists of others.
    found: dict[int, list[list[int]]] = {}
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if id(part) not in found:
            needs = _needs(part, schema)
            found[id(part)] = [[id(one) for one in each] for each in needs]
            waiting += [one for each in needs for one in each]
    ended: set[int] = set()
    count = -1
    while count < len(ended):
        count = len(ended)
        for part, needs in reversed(found.items()):
            if part not in ended and all(not ended.isdisjoint(each) for each in needs):
                ended.add(part)
    return id(schema) in ended


def _needs(schema: Any, root: Any) -> list[list[Any]]:
    """Return lists of schemas: of each list, one must have an end if this schema has."""
    if not isinstance(schema, Mapping):
        return []
    needs: list[list[Any]] = []
    if isinstance(reference := schema.get("$ref"), str) and (place := resolve(root, reference)) is not None:
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
