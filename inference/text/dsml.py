"""DSML: DeepSeek-V3.2's format for the description and the call of functions (the release's encoding/encoding_dsv32.py).

`call_grammar` writes a grammar of the calls that the official encoder writes when their arguments keep the functions' schemas, in
llguidance's dialect of Lark: `<[id]>` is a control token, which no other rule can reach; `%json` is a value of a JSON schema.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels.errors import ArgumentError
from .schemas import CONSTRAINTS, References, alternatives, inlined
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
    """Split text of the format itself, in which every control token is a ``Special``."""
    return [Special(part) if i % 2 else part for i, part in enumerate(_CONTROL.split(text)) if part]


def tools_pieces(tools: Sequence[Mapping[str, Any]]) -> list[str | Special]:
    """The section of the system prompt on functions, one JSON object per line; ``tools`` has OpenAI's shape."""
    schemas = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    return [*control(_TOOLS_BEFORE), schemas, _TOOLS_AFTER]


def call_pieces(calls: Sequence[tuple[str, Sequence[tuple[str, str, bool]]]]) -> list[str | Special]:
    """A block of calls, each (name, parameters), with parameters as tool_arguments.parameters reads them."""
    pieces: list[str | Special] = control(OPEN_CALLS + "\n")
    for name, arguments in calls:
        pieces += [*control(f"<{DSML}invoke name="), f'"{name}">\n']
        for count, (key, value, is_string) in enumerate(arguments):
            pieces += [
                *control(f"{chr(10) if count else ''}<{DSML}parameter name="),
                f'"{key}" string="{"true" if is_string else "false"}">',
                value,
                *control(f"</{DSML}parameter>"),
            ]
        pieces += control(f"\n</{DSML}invoke>\n")
    return [*pieces, *control(CLOSE_CALLS)]


MOST_CHARACTERS = 2**18  # of a grammar or a schema: compiled, it takes some hundred times as much memory
_ANY_NAME = r'/[^"<>\n]{1,64}/'
_LONGEST_COUNTED = 2000  # characters: an automaton counts them one by one
_ANNOTATIONS = {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples"}
# Keywords that say something about all arguments together.
_WHOLE = {
    *("anyOf", "oneOf", "allOf", "not", "if", "enum", "const", "patternProperties", "propertyNames", "minProperties"),
    *("maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
}
_ROOT = "whole-schema"  # its name among the definitions of a part
_WRITABLE = re.compile(r'[^"<>]+')


def call_grammar(
    tools: Sequence[Mapping[str, Any]],
    control_id: int | None,
    *,
    one: bool = False,
    free: bool = False,
    answer: Mapping[str, Any] | None = None,
) -> str:
    """Write a grammar of calls of these functions (OpenAI's shape), as text for StructuredOutputsParams.grammar.

    control_id: of ｜DSML｜, if it is a token. one: exactly one call; else one or more. free: the answer may also be any text, or
    text that ends in calls; then only functions with `strict` must follow their schemas. answer: the schema of another answer.
    """
    rules = _Rules(f"<[{control_id}]>" if control_id is not None else json.dumps(DSML, ensure_ascii=False))
    functions = [tool.get("function", tool) for tool in tools]
    names = [
        rules.function(function, is_free=free and not function.get("strict"), lenient=not function.get("strict"))
        for function in functions
    ]
    calls = f"({' | '.join(names)}){'' if one else '+'}"
    lead, opening = OPEN_CALLS.split(DSML)
    block = (
        f"{rules.mark(opening + chr(10), closing=None)} {calls} {rules.mark(CLOSE_CALLS.split(DSML)[1], closing=True)}"
    )
    starts = [f"{_text(chr(10) * 2 + lead)} {block}"]
    if answer is not None:
        starts.append(f"%json {_json_schema(answer, {}, lenient=False)}")
    elif free:
        starts = ["FREE", f"LEAD {block}"]
        rules.lines += ["FREE: /(?s:.*)/", "LEAD: /(?s:.*)</"]
    return "\n".join([f"start: {' | '.join(starts)}", *rules.lines])


class _Rules:
    """The rules so far; each function and parameter has its own, by number."""

    def __init__(self, control: str) -> None:
        self.lines: list[str] = []
        self._control = control
        self._count = self._characters = 0

    def mark(self, rest: str, closing: bool | None) -> str:
        """Write a mark of the format. `closing` None: its first character is already written."""
        return f"{'' if closing is None else _text('</' if closing else '<')} {self._control} {_text(rest)}"

    def add(self, rule: str) -> str:
        self._count += 1
        self._characters += len(rule)
        if self._characters > MOST_CHARACTERS:
            raise ArgumentError("parameters", f"more than {MOST_CHARACTERS} characters", "fewer, as a grammar", "has")
        self.lines.append(f"r{self._count}: {rule}")
        return f"r{self._count}"

    def function(self, function: Mapping[str, Any], is_free: bool, lenient: bool) -> str:
        """The rule of calls of one function."""
        schema = inlined(function.get("parameters") or {})
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        is_whole = not isinstance(properties, Mapping) or not _WHOLE.isdisjoint(schema)
        if not is_whole:
            properties = {**properties, **{name: {} for name in _required(schema) if name not in properties}}
        if is_free or not (is_whole or properties or "properties" in schema or more not in (True, {})):
            body = f'"\\n" | {self._any_parameter()}+'
        elif (
            is_whole or not all(map(_WRITABLE.fullmatch, properties)) or (not properties and isinstance(more, Mapping))
        ):
            body = f'%json {_json_schema(schema, {}, lenient)} "\\n"'
        else:
            body = self._parameters(schema, properties, lenient)
        opening = self.mark(f'invoke name="{function["name"]}">\n', closing=False)
        return self.add(f"{opening} {self.add(body)} {self.mark('invoke>' + chr(10), closing=True)}")

    def _parameters(self, schema: Mapping[str, Any], properties: Mapping[str, Any], lenient: bool) -> str:
        """Parameters in the schema's order, each in a line; an empty line for none."""
        required, references = _required(schema), References(schema)
        rest, nonempty = self.add('""'), ""
        for name, value in reversed(list(properties.items())):
            rule = self._parameter(name, list(alternatives(value, references, is_exact=True)), schema, lenient)
            if rule is None:
                continue
            begins_here = f"{rule} {rest}"
            nonempty = self.add(f"{begins_here} | {nonempty}" if nonempty and name not in required else begins_here)
            rest = self.add(f"{rule}{'' if name in required else '?'} {rest}")
        return rest if required else f'"\\n" | {nonempty}' if nonempty else '"\\n"'

    def _parameter(self, name: str, choices: list[Any], root: Mapping[str, Any], lenient: bool) -> str | None:
        """The rule of one parameter, by the schemas of which it has one; None if it has no value."""
        texts, others = _split(choices)
        forms = []
        if texts:
            forms.append(f"{_text('true' + chr(34) + '>')} ({' | '.join(texts)})")
        if others:
            either = others[0] if len(others) == 1 else {"anyOf": others}
            forms.append(f'{_text("false" + chr(34) + ">")} %json {_json_schema(either, root, lenient)} "</"')
        if not forms:
            return None
        opening = self.mark(f'parameter name="{name}" string="', closing=False)
        return self.add(f"{opening} ({' | '.join(forms)}) {self.mark('parameter>' + chr(10), closing=None)}")

    def _any_parameter(self) -> str:
        opening = self.mark('parameter name="', closing=False)
        value = f'("true\\">" {_any_text({})} | "false\\">" %json {{}} "</")'
        return self.add(
            f'{opening} {_ANY_NAME} "\\" string=\\"" {value} {self.mark("parameter>" + chr(10), closing=None)}'
        )


def _required(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters that every call has."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _split(choices: list[Any]) -> tuple[list[str], list[Any]]:
    """Split schemas into rules of the texts that they accept, each with the "</" after it, and schemas of their other values."""
    texts: list[str] = []
    others: list[Any] = []
    for each in choices:
        if not isinstance(each, Mapping) or not each.keys() - _ANNOTATIONS:
            if each is not False:
                texts.append(_any_text({}))
                others.append({})
            continue
        values = [each["const"]] if "const" in each else each.get("enum")
        kinds = each.get("type", ())
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(values, list) and len(CONSTRAINTS & each.keys() - {"type"}) == 1:
            texts += [
                _text(value + "</") for value in values if isinstance(value, str) and (not kinds or "string" in kinds)
            ]
            rest = [value for value in values if not isinstance(value, str)]
            others += [{**each, "enum": rest} if "enum" in each else each] if rest else []
        elif "string" in kinds and _is_plain(each):
            texts.append(_any_text(each))
            rest = [name for name in kinds if name != "string"]
            others += [{**each, "type": rest}] if rest else []
        else:
            others.append(each)
    return texts, others


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Tell whether `_any_text` says all that a schema says about texts. Others are written as JSON."""
    lengths = [schema[name] for name in ("minLength", "maxLength") if name in schema]
    pattern = schema.get("pattern", "")
    return (
        schema.keys().isdisjoint(("const", "enum", "$ref", "anyOf", "oneOf", "allOf"))
        and not (pattern and lengths)
        and not re.search(r"(?<!\\)(\\\\)*\\\$$", pattern)  # not an anchor
        and all(type(length) is int and length <= _LONGEST_COUNTED for length in lengths)
    )


def _any_text(schema: Mapping[str, Any]) -> str:
    """Match texts by length and pattern, with the "</" after them, as one word: a text may hold "<" and "</", too."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        before, after = ("" if pattern.startswith("^") else "(?s:.*)"), ("" if pattern.endswith("$") else "(?s:.*)")
        body = f"{before}({pattern.removeprefix('^').removesuffix('$')}){after}"
    else:
        least, most = schema.get("minLength"), schema.get("maxLength")
        least = least or 0
        most = "" if most is None or most < least else most
        body = f"(?s:.{{{least},{most}}})" if least or most != "" else "(?s:.*)"
    slashes = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", body)
    return f"/{slashes}<\\//"


def _json_schema(schema: Mapping[str, Any], root: Mapping[str, Any], lenient: bool) -> str:
    """The schema in one line. root: the schema of which it is a part; its references lead there."""
    style = {"whitespace_pattern": r"[ \n\t]{0,20}", "lenient": lenient}
    if root and '"$ref"' in json.dumps(schema):
        own = {key: value for key, value in root.items() if key != "$id"}
        schema = _moved({**schema, "$defs": {_ROOT: own}})
    return json.dumps({**schema, "x-guidance": style})


def _moved(schema: Any) -> Any:
    """The same schema for a root that has moved below `$defs`."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {key: _moved(value) for key, value in schema.items()}
    if isinstance(reference := schema.get("$ref"), str) and reference.partition("/")[0] in ("", "#"):
        moved["$ref"] = f"#/$defs/{_ROOT}{reference[1:]}"
    return moved


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
