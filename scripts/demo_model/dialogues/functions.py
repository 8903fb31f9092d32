"""Functions in the shape of OpenAI's API, requests that need them, their calls and results. Everything is drawn anew."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import names, values
from .splits import below, pick
from .texts import LISTS, listed, sections


@dataclass(frozen=True)
class Parameter:
    """kind: a kind of `values`, or integer, decimal, boolean, enum:a/b/c, list, names, object."""

    name: str
    kind: str
    json_type: str

    @property
    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": self.json_type}
        if self.kind.startswith("enum:"):
            found["enum"] = self.kind[5:].split("/")
        elif self.json_type == "array":
            found["items"] = {"type": "string"}
        elif self.json_type == "object":
            found["properties"] = {"street": {"type": "string"}, "city": {"type": "string"}}
        return found


@dataclass(frozen=True)
class Function:
    name: str
    description: str
    parameters: tuple[Parameter, ...]
    requests: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        properties = {p.name: p.schema for p in self.parameters}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }


def _parse(head: str, requests: tuple[str, ...]) -> Function:
    name, description, parameters = (part.strip() for part in head.split("|"))
    found = (part.split(" ", 1) for part in listed(parameters))
    return Function(name, description, tuple(Parameter(key, *rest.rsplit(" ", 1)) for key, rest in found), requests)


_SECTIONS = sections("functions")
_VERBS = _SECTIONS.pop("verbs")
FUNCTIONS = tuple(_parse(head, requests) for head, requests in _SECTIONS.items())
# Kinds of an invented parameter's value by a word in its name.
_BY_WORD = (
    ("password", "password"), ("colour", "colour"), ("time", "time"), ("date", "date"), ("email", "mail"), ("IP", "ip"), ("phone", "phone"), ("code", "code"), ("number", "code"),
    ("gate", "gate"), ("seat", "seatnumber"), ("room", "room"), ("floor", "floor"), ("address", "address"), ("street", "street"), ("food", "food"), ("drink", "drink"), ("title", "title"),
    ("price", "price"), ("cost", "price"), ("fee", "price"), ("rate", "percent"), ("temperature", "temperature"), ("weight", "weight"), ("length", "length"), ("version", "version"),
    ("country", "country"), ("city", "town"), ("name", "person"),
)  # fmt: skip
_FAILED = '{{"error": "{e}"}}|Error: {e}|error: {e}|{{"ok": false, "error": "{e}"}}|{e}'.split("|")
_REQUESTS = "{v} the {n} with {j}|please {v} the {n}, {j}|{v} {n}: {j}|can you {v} the {n} with {j}|{v} a {n} with {j}|I want you to {v} the {n}, {j}|{n}, {v}, {j}".split("|")  # fmt: skip


def _value(rng, split: str, parameter: Parameter) -> Any:
    kind = parameter.kind
    if kind == "integer":
        return below(rng, 90) + 1
    if kind == "decimal":
        return float(f"{below(rng, 90) + 1}.{below(rng, 9) + 1}")
    if kind == "boolean":
        return rng.random() < 0.5
    if kind.startswith("enum:"):
        return pick(rng, kind[5:].split("/"))
    if kind in ("list", "names"):
        make = partial(pick, rng, LISTS["foods"]) if kind == "list" else partial(names.given, rng, split)
        return list(dict.fromkeys(make() for _ in range(1 + below(rng, 4))))
    if kind == "object":
        return {"street": values.value(rng, split, "address"), "city": names.town(rng, split)}
    if kind == "sum":
        return f"{below(rng, 900)} {pick(rng, '+-*/')} {below(rng, 900)}"
    if kind == "money":
        return pick(rng, LISTS["money"])
    return names.given(rng, split) if kind == "given" else values.value(rng, split, kind)


def said(value: Any) -> str:
    """An argument as a request says it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return value[0] if len(value) == 1 else f"{', '.join(value[:-1])} and {value[-1]}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    return str(value)


def leaves(value: Any) -> list[str]:
    """The words and numbers of an argument that the request holds."""
    if isinstance(value, bool):
        return []
    if isinstance(value, list | dict):
        parts = value if isinstance(value, list) else list(value.values())
        return [leaf for part in parts for leaf in leaves(part)]
    return [str(value)]


def _invented_parameter(rng, name: str) -> Parameter:
    special = rng.random()
    if special < 0.08:
        return Parameter(name, "boolean", "boolean")
    if special < 0.16:
        options = dict.fromkeys(pick(rng, LISTS["adjectives"]) for _ in range(2 + below(rng, 4)))
        return Parameter(name, f"enum:{'/'.join(options)}", "string")
    if special < 0.24:
        return Parameter(name, pick(rng, ["list", "names"]), "array")
    if special < 0.3:
        return Parameter(name, "decimal", "number")
    if special < 0.33:
        return Parameter(name, "object", "object")
    if special < 0.5:
        return Parameter(name, "integer", "integer")
    kind = next((kind for part, kind in _BY_WORD if part in name.replace("_", " ")), None)
    return Parameter(name, kind or pick(rng, ("phrase", "number", "word", "code", "quantity", "title")), "string")


def invented(rng, split: str) -> Function:
    """ "set_kettle_temperature(kettle_number, level)": a verb, a noun, one to three parameters."""
    verb = pick(rng, _VERBS)
    noun = pick(rng, LISTS["objects"]) if rng.random() < 0.8 else names.word(rng, split).lower()
    keys = dict.fromkeys(
        pick(rng, LISTS["attributes"]).lower().replace(" ", "_").replace("'", "") for _ in range(1 + below(rng, 3))
    )
    parameters = tuple(_invented_parameter(rng, key) for key in keys)
    spoken = [(key.replace("_", " "), "{" + key + "}") for key in keys]
    joined = (", ".join(map(" ".join, spoken)), " and ".join(map(" ".join, spoken)), "; ".join(map(": ".join, spoken)))
    requests = tuple(form.format(v=verb, n=noun, j=join) for join in joined for form in _REQUESTS)
    name = f"{verb} {noun}".replace(" ", "_").replace("-", "_")
    return Function(name, f"{verb.capitalize()} the {noun}", parameters, requests)


def toolbox(rng, split: str) -> list[Function]:
    """One to six functions, half of them well known."""
    functions: list[Function] = []
    for _ in range(1 + int(rng.random() ** 1.5 * 6)):
        function = pick(rng, FUNCTIONS) if rng.random() < 0.5 else invented(rng, split)
        if all(function.name != other.name for other in functions):
            functions.append(function)
    return functions


def arguments(rng, split: str, function: Function) -> dict[str, Any]:
    return {p.name: _value(rng, split, p) for p in function.parameters}


def request(rng, function: Function, given: dict[str, Any]) -> str:
    return pick(rng, function.requests).format(**{name: said(value) for name, value in given.items()})


def both(rng, split: str, function: Function) -> tuple[str, list[dict[str, Any]]] | None:
    """A request for two calls of a function of one parameter: "what is the weather in Oslo and in Rome"."""
    if len(function.parameters) != 1 or function.name == "calculate" or function.parameters[0].json_type not in ("string", "integer"):  # fmt: skip
        return None
    one, two = arguments(rng, split, function), arguments(rng, split, function)
    (name,) = one
    if one[name] == two[name]:
        return None
    joins = ["{a} and {b}", "{a} and then {b}", "{a}, and also {b}"]
    if "in {" in " ".join(function.requests):
        joins = ["{a} and {b}", "{a} and in {b}", "{a} and for {b}", "{a} and also {b}", "{a} and then {b}"]
    return request(rng, function, {name: pick(rng, joins).format(a=one[name], b=two[name])}), [one, two]


_STOP = frozenset(LISTS["not_serving"])


def serves(functions: Sequence[Function], text: str) -> bool:
    """Whether one of the functions might be wanted by the text: it has a word of their requests, or a number for arithmetic."""
    told = set(re.findall(r"[a-z]{4,}", text.lower())) - _STOP
    for function in functions:
        forms = " ".join((function.name.replace("_", " "), *function.requests))
        if told & set(re.findall(r"[a-z]{4,}", re.sub(r"\{\w+\}", " ", forms).lower())):
            return True
        if function.name == "calculate" and any(c.isdigit() for c in text):
            return True
        if function.name in ("get_route", "get_distance") and text.lower().startswith("how"):
            return True
    return False


def outside(rng, split: str, functions: Sequence[Function]) -> str | None:
    """A request that none of the functions serves."""
    for _ in range(8):
        function = pick(rng, FUNCTIONS)
        text = request(rng, function, arguments(rng, split, function))
        if function not in functions and not serves(functions, text):
            return text
    return None


def result(rng, split: str, function: Function) -> tuple[str, str]:
    """(the text that the function returns, the value in it that answers)."""
    if rng.random() < 0.06:
        found = pick(rng, LISTS["errors"])
        return pick(rng, _FAILED).format(e=found), found
    if rng.random() < 0.08:
        found = ", ".join(dict.fromkeys(values.value(rng, split, "word") for _ in range(2 + below(rng, 3))))
        return pick(rng, ["{}", "results: {}", "found: {}", '{{"result": "{}"}}']).format(found), found
    if function.name == "get_weather":
        found = f"{below(rng, 45) - 10} degrees and {pick(rng, LISTS['skies'])}"
    elif function.name in ("calculate", "convert_currency", "get_stock_price"):
        found = f"{below(rng, 90000) / pick(rng, [1, 10, 100])}"
    else:
        found = values.value(rng, split, "time" if function.name == "get_time" else pick(rng, LISTS["result_kinds"]))
    style = rng.random()
    if style < 0.35:
        return found, found
    key = pick(rng, [*LISTS["result_keys"], pick(rng, LISTS["attributes"]).replace(" ", "_")])
    if style > 0.8:
        return f"{key}: {found}", found
    record: dict[str, Any] = {key: found}
    if rng.random() < 0.4:
        record = {"ok": True, **record} if rng.random() < 0.5 else {**record, "took_ms": below(rng, 900)}
    return json.dumps(record, ensure_ascii=False), found
