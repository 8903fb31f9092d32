import json
import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepseek_v32.inference.text.answer import (
    AnswerDelta,
    AnswerParser,
    AssistantMessage,
    CallDelta,
    parse_assistant,
)
from deepseek_v32.inference.text.dsml import ToolCall
from deepseek_v32.inference.text.messages import v32_pieces
from support.answers import (
    BLOCK,
    CLOSE,
    END_INVOKE,
    INVOKE,
    NUMBER,
    OPEN,
    SCHEMA,
    answers,
    invoke,
    parameter,
    schema_tools,
)

CALL = ToolCall("f", '{"n": 1.50, "s": "a \\"b\\"\\n"}')
MARK = re.compile(r'</?｜DSML｜\w*(?:"[^"]*"|[^"<>])*>')


def message(content, *arguments, reasoning=None):
    return AssistantMessage(content, reasoning, tuple(ToolCall("f", text) for text in arguments))


@pytest.mark.parametrize(
    ("text", "thinking", "expected"),
    [
        ("Hello", False, AssistantMessage("Hello")),
        ("Hello<｜end▁of▁sentence｜>", False, AssistantMessage("Hello")),
        ("so</think>Hello", True, AssistantMessage("Hello", "so")),
        ("so on", True, AssistantMessage("", "so on")),
        ("a</think>b</think>c", True, AssistantMessage("b</think>c", "a")),
        ("", True, AssistantMessage("", "")),
        (f"Wait.\n\n{BLOCK}", False, AssistantMessage("Wait.", None, (CALL,))),
        (f"so</think>\n\n{BLOCK}", True, AssistantMessage("", "so", (CALL,))),
        (BLOCK, False, AssistantMessage("", None, (CALL,))),
        (f"\n\n\n{BLOCK}", False, AssistantMessage("\n", None, (CALL,))),
        (f"\n\n{BLOCK} and\n\n{BLOCK}", False, AssistantMessage(" and", None, (CALL, CALL))),
        (f"{BLOCK}\n   \n", False, AssistantMessage("", None, (CALL,))),
        (f"use {BLOCK} ok", True, AssistantMessage("", "use  ok", (CALL,))),
        (f"use\n\n{BLOCK}</think>\n\nDone", True, AssistantMessage("\n\nDone", "use", (CALL,))),
        (OPEN + INVOKE + "\n" + END_INVOKE + CLOSE, False, message("", "{}")),
        ("<think>so</think>Hello", True, AssistantMessage("Hello", "so")),
        ("\n<think>so</think>\nHello", True, AssistantMessage("\nHello", "so")),
        ("<think>so on", True, AssistantMessage("", "so on")),
        ("<thin", True, AssistantMessage("", "<thin")),
        ("a <｜DSM b ｜DSML｜ c", False, AssistantMessage("a <｜DSM b ｜DSML｜ c")),
    ],
    ids=lambda value: None if not isinstance(value, str) else repr(value)[:20],
)
def test_answers_are_taken_apart(text, thinking, expected):
    assert parse_assistant(text, thinking) == expected


RECOVERED = {
    "no-block": ("Hm.\n\n" + invoke(parameter("v")), message("Hm.", '{"k": "v"}')),
    "v4-block": (invoke(parameter("v")).join(["<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"]), message("", '{"k": "v"}')),
    "self-closing": (f'{OPEN}<｜DSML｜invoke name="f"/>\n{CLOSE}', message("", "{}")),
    "single-quotes": (f"{OPEN}<｜DSML｜invoke name='f'>{parameter('v')}{END_INVOKE}{CLOSE}", message("", '{"k": "v"}')),
    "no-quotes": (f"{OPEN}<｜DSML｜invoke name=f>{parameter('v')}{END_INVOKE}{CLOSE}", message("", '{"k": "v"}')),
    "json-body": (OPEN + invoke('\n{"a": [1, {"b": null}]}\n') + CLOSE, message("", '{"a": [1, {"b": null}]}')),
    "bare-word": (OPEN + invoke(parameter("hello", "false")) + CLOSE, message("", '{"k": "hello"}')),
    "nan": (OPEN + invoke(parameter("NaN", "false")) + CLOSE, message("", '{"k": "NaN"}')),
    "deep": (OPEN + invoke(parameter("[" * 20_000, "false")) + CLOSE, message("", f'{{"k": "{"[" * 20_000}"}}')),
    "long": (OPEN + invoke(parameter("1" * 20_000, "false")) + CLOSE, message("", '{"k": 1.1111111111111111e19999}')),
    "open-block": (OPEN + invoke(parameter("v")), message("", '{"k": "v"}')),
    "open-call": (OPEN + INVOKE + parameter("v") + "\n", message("", '{"k": "v"}')),
    "open-call-in-block": (OPEN + INVOKE + parameter("v") + CLOSE, message("", '{"k": "v"}')),
    "open-call-before-another": (OPEN + INVOKE + parameter("v") + invoke("") + CLOSE, message("", '{"k": "v"}', "{}")),
    "open-value": (OPEN + INVOKE + parameter("v")[:-18] + END_INVOKE + CLOSE, message("", '{"k": "v"}')),
    "no-string-attribute": (OPEN + invoke(parameter("v").replace(' string="true"', "")) + CLOSE, message("", '{"k": "v"}')),
    "kind": (OPEN + INVOKE + NUMBER.replace("false", "maybe") + END_INVOKE + CLOSE, message("", '{"n": "1.50"}')),
    "twice": (OPEN + invoke(parameter(1) + parameter(2)) + CLOSE, message("", '{"k": "1", "k": "2"}')),
    "prose-around": (f"a\n\n{OPEN}b{invoke(parameter('v'))}c{CLOSE}d", message("a\n\n\nbcd", '{"k": "v"}')),
    "prose-inside": (OPEN + invoke("so: " + parameter("v") + " ok") + CLOSE, message("\nso:  ok", '{"k": "v"}')),
    "good-then-bad": (OPEN + invoke(parameter("v")) + invoke("x") + CLOSE, message("x", '{"k": "v"}')),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), RECOVERED.values(), ids=RECOVERED)
def test_what_breaks_the_format_is_recovered(text, expected):
    assert parse_assistant(text) == expected


UNRECOVERABLE = {
    "no-call": (OPEN + CLOSE, "\n"),
    "text": (OPEN + "hello" + CLOSE, "\nhello"),
    "json-list": (OPEN + invoke('["a"]') + CLOSE, '\n["a"]'),
    "cut-json": (OPEN + invoke('{"k": "a"') + CLOSE, '\n{"k": "a"'),
    "prose": (OPEN + invoke("\nenable it please\n") + CLOSE, "\n\nenable it please\n"),
    "json-then-prose": (OPEN + invoke('{"k": 1} ok') + CLOSE, '\n{"k": 1} ok'),
    "half-a-mark": (OPEN + invoke('<parameter name="k">v</｜DSML｜parameter>') + CLOSE, '\n<parameter name="k">v'),
    "empty-name": (OPEN + invoke(parameter("v"), name="") + CLOSE, "\nv"),
    "nameless": (OPEN + "<｜DSML｜invoke>" + parameter("v") + END_INVOKE + CLOSE, "\nv\n"),
    "other-mark": ("a <｜DSML｜b c> d", "a  d"),
    "no-mark": ("a <｜DSML｜ b <i> d", "a  b <i> d"),
    "endless-mark": ("a <｜DSML｜" + "b " * 1000, "a " + "b " * 1000),
    "cut-mark": ("a\n\n<｜DSML｜invoke na", "a\n\n"),
    "cut-quotes": ('a <｜DSML｜ "b\nc d', 'a  "b\nc d'),
    "cut-call": ("a\n\n" + OPEN + INVOKE, "a\n\n\n"),
}


@pytest.mark.parametrize(("text", "expected"), UNRECOVERABLE.values(), ids=UNRECOVERABLE)
@pytest.mark.parametrize("before", ["\n\n", "Hm.\n\n", ""])
def test_what_makes_no_call_is_content_without_its_marks(before, text, expected):
    assert parse_assistant(before + text) == AssistantMessage(before + expected)


def test_marks_inside_a_value_are_part_of_it():
    """The official parser reads a value up to the first end of a parameter."""
    quoted = f"see {OPEN}{INVOKE}{END_INVOKE}{CLOSE} <｜DSML｜parameter> ok"
    assert parse_assistant(OPEN + invoke(parameter(quoted)) + CLOSE) == message(
        "", json.dumps({"k": quoted}, ensure_ascii=False)
    )


def test_a_call_cut_in_a_value_has_incomplete_arguments_and_stays_out_of_the_conversation():
    for value, string, expected in (("va", "true", '{"k": "va'), ("[1, 2", "false", '{"k": ')):
        answer = parse_assistant(OPEN + INVOKE + parameter(value, string)[:-18])
        assert answer == message("", expected)
        assert "tool_calls" not in answer.to_message()


def test_no_shape_of_a_call_is_lost():
    """The grammar that found 211 of 455 shapes as content in SGLang (sgl-project/sglang#40236)."""
    bodies = [
        (parameter("v"), "</｜DSML｜invoke>"),
        (parameter("v"), ""),
        (parameter("3", "false") + "\n" + parameter("w", name="l"), "</｜DSML｜invoke>"),
        ('{"k": 1}', "</｜DSML｜invoke>"),
    ]
    blocks = [
        (f"<｜DSML｜{name}>", f"</｜DSML｜{name}>" * closed)
        for name in ("function_calls", "tool_calls")
        for closed in (0, 1)
    ]
    shapes = 0
    for (opening, closing), (body, end), count, before, between, after, thinking in product(
        [*blocks, ("", "")], bodies, (1, 2), ("", "Hm.\n\n"), ("\n", "then"), ("", "\n", "Done."), (False, True)
    ):
        calls = between.join(f'<｜DSML｜invoke name="f{i}">\n{body}\n{end}' for i in range(count))
        answer = parse_assistant(before + opening + calls + closing + after, thinking)
        assert [call.name for call in answer.tool_calls] == [f"f{i}" for i in range(count)]
        assert all("k" in json.loads(call.arguments) for call in answer.tool_calls)
        said = before + between * (count - 1) + after
        assert "".join(f"{answer.reasoning_content or ''}{answer.content}".split()) == "".join(said.split())
        shapes += 1
    assert shapes > 455


REPAIRED = [
    ("int", "true", "42", "42"), ("int", "false", "42", "42"), ("int", "false", "abc", '"abc"'), ("int", "false", '"7"', "7"),
    ("int", "true", "4.0", "4"), ("int", "true", "4.5", '"4.5"'), ("maybe_int", "false", "null", "null"),
    ("number", "false", "5.0", "5"), ("number", "false", "3.14", "3.14"), ("number", "true", "1e400", "1e400"),
    ("text", "false", "null", '"null"'), ("text", "false", "42", '"42"'), ("text", "false", '"a"', '"a"'),
    ("text", "true", "42", '"42"'), ("maybe_text", "false", "null", "null"), ("maybe_text", "false", "hello", '"hello"'),
    ("flag", "true", "true", "true"), ("flag", "false", "True", "true"), ("flag", "false", "maybe", '"maybe"'),
    ("object", "true", '{"a": 1}', '{"a": 1}'), ("object", "false", "[1]", "[1]"), ("list", "false", '[{"a": 1}]', '[{"a": 1}]'),
    ("choice", "true", "2", "2"), ("any", "true", "2", '"2"'), ("any", "false", "1.50", "1.50"), ("other", "false", "x", '"x"'),
    ("loop", "true", "1", '"1"'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "string", "value", "expected"), REPAIRED, ids=lambda value: value[:10])
def test_types_are_repaired_by_the_schema(name, string, value, expected):
    """Types are repaired by the schema as vLLM's parser repairs them, where its tests say how."""
    text = OPEN + invoke(parameter(value, string, name)) + CLOSE
    assert parse_assistant(text, False, schema_tools(SCHEMA)) == message("", f'{{"{name}": {expected}}}')


def test_a_value_of_unknown_kind_has_the_type_of_the_schema():
    text = (
        OPEN + invoke(parameter("4", name="int").replace(' string="true"', "") + parameter("4", "what", "text")) + CLOSE
    )
    assert parse_assistant(text, False, schema_tools(SCHEMA)) == message("", '{"int": 4, "text": "4"}')


def test_a_json_body_is_repaired_too():
    text = OPEN + invoke('{"int": "4", "text": 5,  "any": "6"}') + CLOSE
    assert parse_assistant(text, False, schema_tools(SCHEMA)) == message("", '{"int": 4, "text": "5", "any": "6"}')


@pytest.mark.parametrize(("name", "string"), [("arguments", "false"), ("input", "true")])
def test_a_wrapper_around_all_arguments_is_taken_off(name, string):
    def parsed(value, schema=SCHEMA, more=""):
        text = OPEN + invoke(parameter(value, string, name) + more) + CLOSE
        [call] = parse_assistant(text, False, schema_tools(schema)).tool_calls
        return json.loads(call.arguments)

    inner = '{"int": 1}'
    as_given = {name: inner if string == "true" else {"int": 1}}
    assert parsed(inner) == {"int": 1}
    assert parsed(inner, {"properties": {name: {}}}) == as_given
    assert parsed(inner, None) == as_given
    assert parsed(inner, more=parameter("x", name="text")) == {**as_given, "text": "x"}
    assert parsed('{"alien": 1}') == {name: '{"alien": 1}' if string == "true" else {"alien": 1}}


@given(answers, st.booleans(), st.sampled_from([None, SCHEMA]), st.data())
def test_streaming_gives_what_the_whole_gives_and_never_crashes(text, thinking, schema, data):
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    parser, total = AnswerParser(thinking, schema_tools(schema)), AnswerDelta()
    for a, b in zip([0, *places], [*places, len(text)], strict=True):
        total += parser.push(text[a:b])
    total += parser.finish()
    parser = AnswerParser(thinking, schema_tools(schema))
    assert total == parser.push(text) + parser.finish()
    whole = parse_assistant(text, thinking, schema_tools(schema))
    assert (total.content, total.tool_calls) == (whole.content, whole.tool_calls)
    assert total.reasoning_content == (whole.reasoning_content or "")
    assert [(delta.name, delta.arguments) for delta in total.call_deltas] == [
        (call.name, call.arguments) for call in whole.tool_calls
    ]
    assert [delta.index for delta in total.call_deltas] == list(range(len(whole.tool_calls)))
    for call in whole.tool_calls[:-1]:  # the last may have been cut
        assert isinstance(json.loads(call.arguments), dict)
    for said in (whole.content, total.reasoning_content):
        assert "<｜DSML｜" not in said and "</｜DSML｜" not in said
    if not whole.tool_calls and not thinking:
        # Except for broken marks, only marks are missing. An invoke without parameters is a mark.
        unmarked = MARK.sub("", text)
        if "｜DSML｜" not in unmarked:
            assert "".join(whole.content.split()) == "".join(unmarked.split())


def test_character_by_character_no_tag_leaks():
    parser = AnswerParser(thinking=True)
    deltas = [parser.push(character) for character in f"so</think>Wait.\n\n{BLOCK}Done <b>"]
    assert [delta.reasoning_content for delta in deltas if delta.reasoning_content] == ["s", "o"]
    assert "".join(delta.content for delta in deltas) == "Wait.Done <b>"
    assert [delta.tool_calls for delta in deltas if delta.tool_calls] == [(CALL,)]
    assert not parser.finish()


def test_arguments_stream_as_they_come():
    text = OPEN + invoke("\n" + parameter("Genève") + "\n" + parameter("3", "false", "n") + "\n") + CLOSE
    parser = AnswerParser(thinking=False)
    pieces = [piece for character in text for piece in parser.push(character).call_deltas]
    assert pieces == [
        CallDelta(0, "f", '{"k": "'),
        *(CallDelta(0, None, character) for character in "Genève"),
        CallDelta(0, None, '"'),
        CallDelta(0, None, ', "n": 3'),
        CallDelta(0, None, "}"),
    ]
    assert not parser.finish()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.text(st.characters(exclude_characters='"'), min_size=1, max_size=8)


@given(
    st.text(),
    st.text(),
    st.lists(st.tuples(names, st.dictionaries(names, json_values, max_size=3)), max_size=3),
    st.booleans(),
)
def test_what_is_encoded_is_read_back(content, reasoning, calls, thinking):
    expected = AssistantMessage(
        content,
        reasoning if thinking else None,
        tuple(ToolCall(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls),
    )
    question = [{"role": "user", "content": "q"}]
    pieces = v32_pieces([*question, expected.to_message()], thinking)
    text = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    start = "".join(piece if isinstance(piece, str) else piece.text for piece in v32_pieces(question, thinking))
    assert parse_assistant(text.removeprefix(start), thinking) == expected
