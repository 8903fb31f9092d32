"""DSML: DeepSeek-V3.2's format for the description and the call of functions (the release's encoding/encoding_dsv32.py)."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .tokenizer import DSML, END_THINK, THINK, Special

OPEN_CALLS = f"<{DSML}function_calls>"
CLOSE_CALLS = f"</{DSML}function_calls>"

# The words are part of the format: the model was trained on exactly these.
_TOOLS_BEFORE = f"""## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "{OPEN_CALLS}" block like the following as part of your reply to the user:
{OPEN_CALLS}
<{DSML}invoke name="$FUNCTION_NAME">
<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>
...
</{DSML}invoke>
<{DSML}invoke name="$FUNCTION_NAME2">
...
</{DSML}invoke>
{CLOSE_CALLS}

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should \
use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types \
(numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. \
Here is an example:

{OPEN_CALLS}
...
{CLOSE_CALLS}

<function_results>
...
</function_results>

{THINK}...thinking about results{END_THINK}

Here are the functions available in JSONSchema format:
<functions>
"""
_TOOLS_AFTER = "\n</functions>\n"

_CONTROL = re.compile(f"({'|'.join(map(re.escape, (THINK, END_THINK, DSML)))})")


@dataclass(frozen=True)
class ToolCall:
    """A function call by the model; ``arguments`` is the text of a JSON object, or its beginning if the answer ended in a value."""

    name: str
    arguments: str


def control(text: str) -> list[str | Special]:
    """Text of the format itself, in which every control token is a ``Special``."""
    return [Special(part) if i % 2 else part for i, part in enumerate(_CONTROL.split(text)) if part]


def tools_pieces(tools: Sequence[Mapping[str, Any]]) -> list[str | Special]:
    """The section of the system prompt on functions, one JSON object per line; ``tools`` has OpenAI's shape."""
    schemas = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    return [*control(_TOOLS_BEFORE), schemas, _TOOLS_AFTER]


def call_pieces(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str | Special]:
    """A block of calls, each (name, arguments). String arguments are written as they are, other values as JSON."""
    pieces: list[str | Special] = control(OPEN_CALLS + "\n")
    for name, arguments in calls:
        pieces += [*control(f"<{DSML}invoke name="), f'"{name}">\n']
        for count, (key, value) in enumerate(arguments.items()):
            is_string = isinstance(value, str)
            pieces += [
                *control(f"{chr(10) if count else ''}<{DSML}parameter name="),
                f'"{key}" string="{"true" if is_string else "false"}">',
                value if is_string else json.dumps(value, ensure_ascii=False),
                *control(f"</{DSML}parameter>"),
            ]
        pieces += control(f"\n</{DSML}invoke>\n")
    return [*pieces, *control(CLOSE_CALLS)]
