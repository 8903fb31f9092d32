"""Parts of answers in DSML, and answers put together from them at random."""

from hypothesis import strategies as st

OPEN, CLOSE = "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"
INVOKE, END_INVOKE = '<｜DSML｜invoke name="f">\n', "</｜DSML｜invoke>\n"
NUMBER = '<｜DSML｜parameter name="n" string="false">1.50</｜DSML｜parameter>\n'
STRING = '<｜DSML｜parameter name="s" string="true">a "b"\n</｜DSML｜parameter>\n'
BLOCK = OPEN + INVOKE + NUMBER + STRING + END_INVOKE + CLOSE


def invoke(body: str, name: str = "f") -> str:
    return f'<｜DSML｜invoke name="{name}">{body}</｜DSML｜invoke>'


def parameter(value: object, string: str = "true", name: str = "k") -> str:
    return f'<｜DSML｜parameter name="{name}" string="{string}">{value}</｜DSML｜parameter>'


SCHEMA = {
    "type": "object",
    "$defs": {"n": {"type": "number"}},
    "properties": {
        "text": {"type": "string"},
        "maybe_text": {"type": ["null", "string"]},
        "int": {"type": "integer"},
        "maybe_int": {"type": ["integer", "null"]},
        "number": {"$ref": "#/$defs/n"},
        "flag": {"type": "boolean"},
        "object": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "list": {"oneOf": [{"type": "array", "items": {"type": "object"}}, {"type": "null"}]},
        "choice": {"enum": [1, 2]},
        "any": {},
        "loop": {"$ref": "#/properties/loop"},
    },
}


def schema_tools(schema: object) -> list[dict[str, object]]:
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


fragments = st.sampled_from(
    [
        "</think>",
        "<think>",
        OPEN,
        CLOSE,
        INVOKE,
        END_INVOKE,
        NUMBER,
        STRING,
        STRING[:-20],
        NUMBER[:-20],
        '<｜DSML｜invoke name="g"/>',
        '<｜DSML｜parameter name="input" string="true">{"int": 1}</｜DSML｜parameter>',
        '{"a": "1"}',
        BLOCK,
        "\n",
        "a",
        "<",
        "｜DSML｜",
        "/",
        ">",
        '"',
    ]
)
answers = st.lists(fragments | st.text(max_size=3), max_size=12).map("".join)
