"""Two functions that a chat can switch on, so that function calls can be tried: the weather and a calculator, from fixed tables."""

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, DivisionByZero, InvalidOperation
from typing import Any

from ..text.dsml import ToolCall

WEATHER = {
    "berlin": "11 degrees, cloudy",
    "cairo": "31 degrees, sunny",
    "lima": "19 degrees, foggy",
    "london": "13 degrees, rainy",
    "oslo": "4 degrees, snowy",
    "paris": "18 degrees, cloudy",
    "tokyo": "22 degrees, windy",
}
OPERATIONS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    **dict.fromkeys(("+", "plus"), operator.add),
    **dict.fromkeys(("-", "−", "minus"), operator.sub),
    **dict.fromkeys(("*", "x", "×", "times"), operator.mul),
    **dict.fromkeys(("/", "÷", ":", "by"), operator.truediv),
}
_CALCULATION = re.compile(r"\s*(-?[\d.]{1,20})\s*(?:divided\s+)?([^\s\d.]+)\s*(-?[\d.]{1,20})\s*[=?.]*\s*")


@dataclass(frozen=True)
class Tool:
    title: str  # on the page
    name: str
    description: str
    parameter: str
    run: Callable[[str], str]

    def schema(self) -> dict[str, Any]:
        """The function in the shape of OpenAI's API."""
        schema = {"type": "object", "properties": {self.parameter: {"type": "string"}}, "required": [self.parameter]}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": schema},
        }


def weather(city: str) -> str:
    return WEATHER.get(city.strip().lower(), f"unknown; known are {', '.join(map(str.title, WEATHER))}")


def calculate(expression: str) -> str:
    """The result of one operation on two numbers."""
    found = _CALCULATION.fullmatch(expression)
    try:
        first, name, second = found.groups() if found else ("", "", "")
        result = OPERATIONS[name.lower()](Decimal(first), Decimal(second))
    except (KeyError, InvalidOperation, DivisionByZero):
        return "no result; expected two numbers with +, -, * or / between them"
    return f"{round(result, 8).normalize():f}"


TOOLS = (
    Tool("Weather", "get_weather", "The weather in a city", "city", weather),
    Tool("Calculator", "calculate", "Calculate an expression", "expression", calculate),
)


def chosen_tools(titles: Any) -> list[Tool]:
    """The tools that are switched on in the page."""
    return [tool for tool in TOOLS if isinstance(titles, Sequence) and tool.title in titles]


def call_tool(tools: Sequence[Tool], call: ToolCall) -> str:
    """Run a function that the model calls; a call that cannot be run is told so."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        return f"no function is called {call.name}"
    try:
        values = json.loads(call.arguments)
    except ValueError:
        values = None
    value = values.get(tool.parameter) if isinstance(values, Mapping) else None
    return tool.run(str(value)) if value is not None else f"{tool.parameter} is missing"
