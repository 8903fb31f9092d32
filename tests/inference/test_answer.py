import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepseek_v32.inference.text.answer import AnswerDelta, AnswerParser, AssistantMessage, parse_assistant
from deepseek_v32.inference.text.dsml import ToolCall
from deepseek_v32.inference.text.messages import v32_pieces

OPEN, CLOSE = "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"
INVOKE, END_INVOKE = '<｜DSML｜invoke name="f">\n', "</｜DSML｜invoke>\n"
NUMBER = '<｜DSML｜parameter name="n" string="false">1.50</｜DSML｜parameter>\n'
STRING = '<｜DSML｜parameter name="s" string="true">a "b"\n</｜DSML｜parameter>\n'
BLOCK = OPEN + INVOKE + NUMBER + STRING + END_INVOKE + CLOSE
CALL = ToolCall("f", '{"n": 1.50, "s": "a \\"b\\"\\n"}')


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
        (f"use {BLOCK} ok", True, AssistantMessage("", f"use {BLOCK} ok")),
        (OPEN + INVOKE + "\n" + END_INVOKE + CLOSE, False, AssistantMessage("", None, (ToolCall("f", "{}"),))),
    ],
    ids=lambda value: None if not isinstance(value, str) else repr(value)[:20],
)
def test_answers_are_taken_apart(text, thinking, expected):
    assert parse_assistant(text, thinking) == expected


@pytest.mark.parametrize(
    "block",
    [
        OPEN + CLOSE,
        OPEN + "hello" + CLOSE,
        OPEN + INVOKE + CLOSE,
        OPEN + INVOKE + NUMBER + NUMBER + END_INVOKE + CLOSE,
        OPEN + INVOKE + NUMBER.replace("1.50", "one") + END_INVOKE + CLOSE,
        OPEN + INVOKE + NUMBER.replace("1.50", "NaN") + END_INVOKE + CLOSE,
        OPEN + INVOKE + NUMBER.replace("1.50", "[" * 20_000) + END_INVOKE + CLOSE,
        OPEN + INVOKE + NUMBER.replace("1.50", "1" * 20_000) + END_INVOKE + CLOSE,
        OPEN + INVOKE + NUMBER.replace("false", "maybe") + END_INVOKE + CLOSE,
        OPEN + INVOKE.replace('"f"', "f") + END_INVOKE + CLOSE,
        OPEN + INVOKE + NUMBER + END_INVOKE,
        BLOCK[:-1],
    ],
    ids=["no-call", "text", "open-call", "twice", "word", "nan", "deep", "long", "kind", "quotes", "cut", "cut-by-one"],
)
@pytest.mark.parametrize("before", ["\n\n", "Hm.\n\n", ""])
def test_malformed_calls_are_content_as_written(before, block):
    assert parse_assistant(before + block) == AssistantMessage(before + block)


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
        BLOCK,
        "\n",
        "a",
        "<",
        "｜DSML｜",
        "/",
        ">",
    ]
)
answers = st.lists(fragments | st.text(max_size=3), max_size=12).map("".join)


@given(answers, st.booleans(), st.data())
def test_streaming_gives_what_the_whole_gives_and_never_crashes(text, thinking, data):
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    parser, total = AnswerParser(thinking), AnswerDelta()
    for a, b in zip([0, *places], [*places, len(text)], strict=True):
        total += parser.push(text[a:b])
    total += parser.finish()
    whole = parse_assistant(text, thinking)
    assert total == AnswerDelta(whole.content, whole.reasoning_content or "", whole.tool_calls)
    for call in whole.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)


def test_character_by_character_no_tag_leaks():
    parser = AnswerParser(thinking=True)
    deltas = [parser.push(character) for character in f"so</think>Wait.\n\n{BLOCK}Done <b>"]
    assert [delta.reasoning_content for delta in deltas if delta.reasoning_content] == ["s", "o"]
    assert "".join(delta.content for delta in deltas) == "Wait.Done <b>"
    assert [delta.tool_calls for delta in deltas if delta.tool_calls] == [(CALL,)]
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
