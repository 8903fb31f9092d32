"""A question, the function that it is asked with, and a call of this function as the model writes it."""

from typing import Any

from deepseek_v32.inference.text.tokenizer import DSML, Special

QUESTION = "What is sparse attention?"
ASK = [{"role": "user", "content": QUESTION}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "The weather of a city"}
FUNCTION = {**WEATHER, "parameters": SCHEMA}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
D = Special(DSML)
CALL = [
    *("Let me look.\n\n<", D, "function_calls>\n<", D, 'invoke name="get_weather">\n<', D),
    *('parameter name="city" string="true">Köln</', D, "parameter>\n<", D, 'parameter name="days" string="false">3</', D),
    *("parameter>\n</", D, "invoke>\n</", D, "function_calls>"),
]  # fmt: skip
