"""Answers that end anywhere, and values that the model has not closed."""

import json

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepseek_v32.inference.text.answer import AnswerDelta, AnswerParser, AssistantMessage, parse_assistant
from deepseek_v32.inference.text.dsml import ToolCall
from support.answers import BLOCK, CLOSE, END_INVOKE, INVOKE, OPEN, SCHEMA, answers, invoke, parameter, schema_tools

TWO = (
    OPEN + invoke("\n" + parameter("a <b> c\n") + "\n" + parameter("[1, 2]", "false", "l") + "\n") + "\n" + invoke("\n")
)
CUT = {
    "call": (False, f"Let me look.\n\n{BLOCK}"),
    "text-after": (False, f"Let me look.\n\n{BLOCK}\n\nDone: 3 < 4."),
    "two-calls": (True, f"so\n\nthen</think>Look.\n\n{TWO}\n{CLOSE}"),
    "call-in-reasoning": (True, f"use\n\n{BLOCK}</think>\n\nDone"),
    "prose-inside": (False, OPEN + invoke("so: " + parameter("v") + "and" + parameter("5.0", "false", "int") + " ok") + CLOSE),
    "json-body": (False, "a\n\n" + OPEN + invoke('\n{"int": "4", "text": 5}\n') + CLOSE),
    "wrapper": (False, OPEN + invoke(parameter('{"int": "1"}', "false", "arguments") + "\n") + CLOSE),
    "wrapper-and-more": (False, OPEN + invoke(parameter('{"int": 1}', name="input") + parameter("x", name="text")) + CLOSE),
    "repaired": (False, OPEN + invoke(parameter("5.0", "false", "int") + parameter("abc", "false", "flag")) + CLOSE),
    "open-values": (False, OPEN + invoke(parameter("v")[:-18] + "\n" + parameter("w", name="l")) + "\n" + CLOSE),
    "quoted": (False, OPEN + invoke(parameter(f"see {OPEN}{INVOKE}{END_INVOKE} ok")) + CLOSE),
    "no-call": (False, "x\n\n" + OPEN + invoke("words") + CLOSE + " y"),
}  # fmt: skip


def in_order(parts):
    """The kinds and texts of an answer, as they came."""
    found = []
    for part in parts:
        calls = [(f"call {each.index}", each.arguments) for each in part.call_deltas]
        for kind, text in [("reasoning", part.reasoning_content), ("content", part.content), *calls]:
            if text and found and found[-1][0] == kind:
                found[-1] = (kind, found[-1][1] + text)
            elif text:
                found.append((kind, text))
    return found


def begins(cut, whole):
    """Whether one answer begins another one."""
    if not cut:
        return True
    *before, (kind, text) = cut
    if len(whole) < len(cut) or before != whole[: len(before)]:
        return False
    same_kind, longer = whole[len(before)]
    return kind == same_kind and longer.startswith(text)


@pytest.mark.parametrize(("thinking", "text"), CUT.values(), ids=CUT)
def test_an_answer_cut_anywhere_is_the_beginning_of_the_whole_one(thinking, text):
    tools = schema_tools(SCHEMA)
    parser = AnswerParser(thinking, tools)
    whole = in_order([*parser.push_parts(text), *parser.finish_parts()])
    names = [call.name for call in parse_assistant(text, thinking, tools).tool_calls]
    for end in range(len(text)):
        streamed = AnswerParser(thinking, tools)
        parts = [part for character in text[:end] for part in streamed.push_parts(character)]
        parts += streamed.finish_parts(is_cut=True)
        assert begins(in_order(parts), whole), end
        cut = parse_assistant(text[:end], thinking, tools, is_cut=True)
        total = sum(parts, AnswerDelta())
        assert (total.content, total.reasoning_content, total.tool_calls) == (
            cut.content,
            cut.reasoning_content or "",
            cut.tool_calls,
        )
        for index, call in enumerate(cut.tool_calls):
            assert (f"call {index}", call.arguments) in in_order(parts) and call.name == names[index]
            if "</｜DSML｜invoke>" not in text[:end]:
                with pytest.raises(ValueError):
                    json.loads(call.arguments)


@given(answers, st.booleans(), st.sampled_from([None, SCHEMA]), st.integers(0, 300))
def test_any_text_cut_anywhere_is_the_beginning_of_the_whole(text, thinking, schema, end):
    def read(pieces, is_cut):
        parser = AnswerParser(thinking, schema_tools(schema))
        parts = [part for piece in pieces for part in parser.push_parts(piece)]
        return in_order([*parts, *parser.finish_parts(is_cut)])

    cut = read(text[:end], is_cut=True)
    assert cut == read([text[:end]], is_cut=True)
    assert begins(cut, read([text], is_cut=False))


def test_what_the_model_has_ended_keeps_what_could_have_become_a_mark():
    for text in ("Less is <", "a </", "two\n\n"):
        assert parse_assistant(text).content == text
        assert text.startswith(parse_assistant(text, is_cut=True).content)


OPENED = '<｜DSML｜parameter name="k" string="true">v'
ODD = "v <｜DSML｜b> <｜DSML｜parameter> <｜DSML｜ w"
BOTH = ['{"k": "v"}', '{"k": "w"}']
OPEN_VALUES = {
    "parameter": (OPENED + "\n" + parameter("3", "false", "n"), ['{"k": "v", "n": 3}']),
    "number": ('<｜DSML｜parameter name="n" string="false">3\n' + parameter("v"), ['{"n": 3, "k": "v"}']),
    "without-kind": (OPENED + "\n" + parameter("w", name="l").replace(' string="true"', ""), ['{"k": "v", "l": "w"}']),
    "several": (OPENED * 3 + "\n", ['{"k": "v", "k": "v", "k": "v"}']),
    "call": (OPENED + '\n<｜DSML｜invoke name="f">\n' + parameter("w"), BOTH),
    "end-of-call": (OPENED + "\n" + END_INVOKE + INVOKE + parameter("w"), BOTH),
    "its-own-line-break": (parameter("v\n") + parameter("w\n", name="l"), ['{"k": "v\\n", "l": "w\\n"}']),
    "other-marks": (parameter(ODD), [json.dumps({"k": ODD}, ensure_ascii=False)]),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), OPEN_VALUES.values(), ids=OPEN_VALUES)
def test_a_value_that_is_not_closed_ends_before_the_next_parameter(body, expected):
    assert parse_assistant(OPEN + invoke(body) + CLOSE) == AssistantMessage(
        "", None, tuple(ToolCall("f", arguments) for arguments in expected)
    )


def test_parts_come_in_the_order_of_the_text():
    parser = AnswerParser(True)
    text = f"so</think>a\n\n{BLOCK}b {OPEN}{invoke('x' + parameter('v') + 'y')}c"
    parts = in_order([*parser.push_parts(text), *parser.finish_parts()])
    assert [kind for kind, _ in parts] == ["reasoning", "content", "call 0", "content", "call 1", "content"]
    assert "".join(parts[-1][1].split()) == "xyc"


LONG = {
    "function": OPEN + invoke(parameter("v"), name="n" * 1500) + CLOSE,
    "parameter": OPEN + invoke(parameter("v", name="n" * 3000)) + CLOSE,
    "at-the-limit": OPEN + invoke(parameter("v"), name="n" * 1010) + invoke("", name="n" * 1011) + CLOSE,
    "other-mark": f'a <｜DSML｜x "{"q" * 1500}"> b',
    "in-a-value": OPEN + invoke(parameter(f"v </｜DSML｜{'x' * 1500}> w")) + CLOSE,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_marks_are_read_alike_however_they_come(text):
    parser = AnswerParser(False)
    parts = [part for character in text for part in parser.push_parts(character)]
    total = sum([*parts, *parser.finish_parts()], AnswerDelta())
    whole = parse_assistant(text)
    assert (total.content, total.tool_calls) == (whole.content, whole.tool_calls)


def test_nested_values_are_read_alike_wherever_the_parser_is_called():
    def deeper(frames, text):
        return deeper(frames - 1, text) if frames else parse_assistant(text, False, schema_tools(SCHEMA))

    for depth in (200, 201, *range(800, 1000, 25)):
        value = "[" * depth + "]" * depth
        text = OPEN + invoke(parameter(value, "false", "list")) + CLOSE
        [call] = parse_assistant(text, False, schema_tools(SCHEMA)).tool_calls
        assert (call,) == deeper(80, text).tool_calls
        if depth <= 200:
            assert jiter.from_json(call.arguments.encode(), partial_mode=True)["list"]  # as OpenAI's client reads it
        else:
            assert json.loads(call.arguments) == {"list": value}
