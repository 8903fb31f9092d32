"""Requests that need a function, the arguments of its call, and results."""

import json
import re
from collections.abc import Sequence
from typing import Any

from . import values
from .lexicon import ATTRIBUTES
from .splits import pick
from .tools import FUNCTIONS, Function, said, value


def arguments(rng, split: str, function: Function) -> dict[str, Any]:
    return {p.name: value(rng, split, p) for p in function.parameters}


def request(rng, function: Function, given: dict[str, Any]) -> str:
    return pick(rng, function.requests).format(**{name: said(value) for name, value in given.items()})


def both(rng, split: str, function: Function) -> tuple[str, list[dict[str, Any]]] | None:
    """A request for two calls of a function of one parameter: "what is the weather in Oslo and in Rome"."""
    if (
        len(function.parameters) != 1
        or function.name == "calculate"
        or function.parameters[0].json_type not in ("string", "integer")
    ):
        return None
    one, two = arguments(rng, split, function), arguments(rng, split, function)
    (name,) = one
    if one[name] == two[name]:
        return None
    joined = pick(
        rng,
        ["{a} and {b}", "{a} and in {b}", "{a} and for {b}", "{a} and also {b}", "{a} and then {b}"]
        if "in {" in " ".join(function.requests)
        else ["{a} and {b}", "{a} and then {b}", "{a}, and also {b}"],
    )
    return request(rng, function, {name: joined.format(a=one[name], b=two[name])}), [one, two]


_STOP = frozenset(
    "what that this have with from please tell want like about some today could would they them your name".split()
)


def serves(functions: Sequence[Function], text: str) -> bool:
    """Whether one of the functions might be wanted by the text: it has a word of their requests, or a number for arithmetic."""
    said_words = set(re.findall(r"[a-z]{4,}", text.lower())) - _STOP
    for function in functions:
        forms = " ".join((function.name.replace("_", " "), *function.requests))
        if said_words & set(re.findall(r"[a-z]{4,}", re.sub(r"\{\w+\}", " ", forms).lower())):
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
    style = rng.random()
    if rng.random() < 0.06:
        value = pick(
            rng,
            [
                "not found",
                "timeout",
                "permission denied",
                "no such city",
                "invalid date",
                "service unavailable",
                "too many requests",
                "unknown name",
                "no results",
                "fully booked",
                "not available",
            ],
        )
        return pick(
            rng, ['{{"error": "{e}"}}', "Error: {e}", "error: {e}", '{{"ok": false, "error": "{e}"}}', "{e}"]
        ).format(e=value), value
    if rng.random() < 0.08:
        found = ", ".join(dict.fromkeys(values.value(rng, split, "word") for _ in range(2 + int(rng.random() * 3))))
        return pick(rng, ["{}", "results: {}", "found: {}", '{{"result": "{}"}}']).format(found), found
    if function.name == "get_weather":
        value = f"{int(rng.random() * 45) - 10} degrees and {pick(rng, ['sunny', 'cloudy', 'rainy', 'windy', 'foggy', 'snowing', 'clear'])}"
    elif function.name in ("get_time",):
        value = values.value(rng, split, "time")
    elif function.name in ("calculate", "convert_currency", "get_stock_price"):
        value = f"{int(rng.random() * 90000) / pick(rng, [1, 10, 100])}"
    else:
        value = values.value(
            rng,
            split,
            pick(rng, ("code", "number", "phrase", "time", "price", "word", "date", "person", "url", "quantity")),
        )
    if style < 0.35:
        return value, value
    key = pick(
        rng,
        [
            "result",
            "value",
            "status",
            "answer",
            "output",
            "id",
            "info",
            "message",
            pick(rng, ATTRIBUTES).replace(" ", "_"),
        ],
    )
    if style < 0.8:
        record: dict[str, Any] = {key: value}
        if rng.random() < 0.4:
            record = {"ok": True, **record} if rng.random() < 0.5 else {**record, "took_ms": int(rng.random() * 900)}
        return json.dumps(record, ensure_ascii=False), value
    return f"{key}: {value}", value
