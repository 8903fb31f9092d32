"""Arguments of calls are JSON that Python and JavaScript read alike."""

import json
import math
import shutil
import subprocess

import pytest

from deepseek_v32.inference.text.answer import parse_assistant
from support.answers import CLOSE, OPEN, SCHEMA, invoke, parameter, schema_tools

PORTABLE = [
    ("number", "false", "1e999", "1e999"), ("number", "true", "-1e999", "-1e999"), ("int", "true", "1e999", "1e999"),
    ("int", "false", "1e999", "1e999"), ("other", "false", "1e999", "1e999"), ("text", "false", "1e999", '"1e999"'),
    ("list", "false", "[1e999, 1.50]", "[1e999, 1.50]"), ("object", "true", '{"a": -1e400}', '{"a": -1e400}'),
    ("int", "true", "7" * 5000, "7.7777777777777777e4999"), ("int", "false", "7" * 400, "7" * 400),
    ("list", "false", f'[-{"9" * 5000}, "{"9" * 5000}"]', f'[-9.9999999999999999e4999, "{"9" * 5000}"]'),
    ("number", "false", f"1{'0' * 5000}.5", f"1{'0' * 5000}.5"), ("int", "false", str(2**53 + 1), str(2**53 + 1)),
    ("number", "false", "NaN", '"NaN"'), ("number", "false", "-Infinity", '"-Infinity"'), ("list", "false", "[NaN]", '"[NaN]"'),
    ("other", "false", r'"\ud83d"', r'"\ufffd"'), ("list", "false", r'["\ud83d\ude42", "\ude42"]', r'["\ud83d\ude42", "\ufffd"]'),
    ("other", "false", r'{"\uDBFF": "\\ud83d \u00e9\n"}', r'{"\ufffd": "\\ud83d \u00e9\n"}'),
    ("text", "true", r'"\ud83d"', r'"\"\\ud83d\""'), ("text", "false", r'"\ud83d!"', r'"\ufffd!"'),
    ("other", "false", '{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
    ("list", "false", "[" * 5000 + "]" * 5000, f'"{"[" * 5000 + "]" * 5000}"'),
]  # fmt: skip


@pytest.fixture(scope="module")
def read_by_javascript():
    """Reads JSON texts as a browser does, with numbers as texts."""
    if (node := shutil.which("node")) is None:
        pytest.skip("needs node")

    def read(texts):
        program = """
            const named = (key, value) => (typeof value === "number" ? "number " + value : value);
            const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
            console.log(JSON.stringify(texts.map((text) => JSON.parse(text)), named));
        """
        result = subprocess.run(
            [node, "-e", program], input=json.dumps(texts), capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    return read


def comparable(value):
    """A value with its numbers as floats; `read_by_javascript` has named them."""
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if type(value) in (int, float):
        return float(value) if abs(value) < 10**300 else math.inf * (1 if value > 0 else -1)
    is_number = isinstance(value, str) and value.startswith("number ")
    return float(value.removeprefix("number ")) if is_number else value


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_python_and_javascript_read_arguments_alike(read_by_javascript):
    texts = []
    for name, string, value, expected in PORTABLE:
        [call] = parse_assistant(
            OPEN + invoke(parameter(value, string, name)) + CLOSE, False, schema_tools(SCHEMA)
        ).tool_calls
        assert call.arguments == f'{{"{name}": {expected}}}'
        texts.append(call.arguments)
    for body in (
        r'{"text": 5, "number": 1e999, "any": ["\ud83d", 1e999]}',
        f'{{"int": "4", "other": {"8" * 5000}, "any": 1, "any": 2}}',
    ):
        [call] = parse_assistant(OPEN + invoke(body) + CLOSE, False, schema_tools(SCHEMA)).tool_calls
        assert "Infinity" not in call.arguments and "ud83d" not in call.arguments
        texts.append(call.arguments)
    for text in texts:
        text.encode()  # no lone surrogate
    assert [comparable(strict(text)) for text in texts] == [comparable(value) for value in read_by_javascript(texts)]


@pytest.mark.parametrize("last", [{"type": "integer"}, {"$ref": "#/$defs/d0"}], ids=["chain", "loop"])
def test_long_chains_of_schemas_fail_no_answer(last):
    chain = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(600)}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**chain, "d600": last}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    [call] = parse_assistant(OPEN + invoke(parameter(42, "false", "a")) + CLOSE, False, tools).tool_calls
    assert json.loads(call.arguments) == {"a": 42}
