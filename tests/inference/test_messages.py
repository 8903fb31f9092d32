"""Both chat formats, compared with strings written by hand after the published formats, and with transformers."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepseek_v32.inference.text.answer import parse_assistant
from deepseek_v32.inference.text.errors import MessageError
from deepseek_v32.inference.text.messages import encode_messages, v32_pieces
from deepseek_v32.inference.text.tokenizer import Special
from deepseek_v32.kernels.errors import ArgumentError
from support.tokenizers import BOS, EOS, MARKUP, PAD, definition, make_tokenizer

# A template like V3.2-Exp's, after the description of its format.
EXP_TEMPLATE = """
{%- if not thinking is defined %}{% set thinking = false %}{% endif -%}
{{- bos_token -}}
{%- for message in messages %}
  {%- if message['role'] == 'system' %}{{ message['content'] }}{% endif %}
  {%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{% endif %}
  {%- if message['role'] == 'assistant' %}
    {%- set content = message['content'] %}
    {%- if '</think>' in content %}{% set content = content.split('</think>', 1)[1] %}{% endif %}
    {{- '<｜Assistant｜></think>' + content + '<｜end▁of▁sentence｜>' }}
  {%- endif %}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' + ('<think>' if thinking else '</think>') }}{% endif %}
"""
PLAIN, EXP = make_tokenizer(), make_tokenizer(EXP_TEMPLATE)
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
CALL = {
    "id": "a",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Genève", "days": 3, "at": ["8h", null]}'},
}
DSML_CALL = (
    "\n\n<｜DSML｜function_calls>\n"
    '<｜DSML｜invoke name="get_weather">\n'
    '<｜DSML｜parameter name="city" string="true">Genève</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="at" string="false">["8h", null]</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
    "</｜DSML｜function_calls>"
)


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(text, **more):
    return {"role": "tool", "content": text, **more}


def written(messages, thinking=False, tools=None):
    return "".join(p if isinstance(p, str) else p.text for p in v32_pieces(messages, thinking, tools))


TALK = [system("Be brief."), user("Hi"), assistant("Hello!", reasoning_content="greet"), user("1+1?")]
CASES = {
    "one": ([user("Hi")], False, f"{BOS}<｜User｜>Hi<｜Assistant｜></think>"),
    "one-thinking": ([user("Hi")], True, f"{BOS}<｜User｜>Hi<｜Assistant｜><think>"),
    "talk": (
        TALK,
        False,
        f"{BOS}Be brief.<｜User｜>Hi<｜Assistant｜></think>Hello!{EOS}<｜User｜>1+1?<｜Assistant｜></think>",
    ),
    "talk-thinking-forgets-old-reasoning": (
        TALK,
        True,
        f"{BOS}Be brief.<｜User｜>Hi<｜Assistant｜></think>Hello!{EOS}<｜User｜>1+1?<｜Assistant｜><think>",
    ),
    "answered-thinking": (
        [*TALK, assistant("2", reasoning_content="add")],
        True,
        f"{BOS}Be brief.<｜User｜>Hi<｜Assistant｜></think>Hello!{EOS}"
        f"<｜User｜>1+1?<｜Assistant｜><think>add</think>2{EOS}",
    ),
    "answered": (
        [user("1+1?"), assistant("2", reasoning_content="add")],
        False,
        f"{BOS}<｜User｜>1+1?<｜Assistant｜></think>2{EOS}",
    ),
    "call-thinking-keeps-reasoning-of-this-turn": (
        [user("Rain?"), assistant(None, reasoning_content="look", tool_calls=[CALL]), tool("no")],
        True,
        f"{BOS}<｜User｜>Rain?<｜Assistant｜><think>look</think>{DSML_CALL}{EOS}"
        "\n\n<function_results>\n<result>no</result>\n</function_results>\n\n<think>",
    ),
    "call": (
        [user("Rain?"), assistant("Wait.", tool_calls=[CALL]), tool("no")],
        False,
        f"{BOS}<｜User｜>Rain?<｜Assistant｜></think>Wait.{DSML_CALL}{EOS}"
        "\n\n<function_results>\n<result>no</result>\n</function_results>\n\n</think>",
    ),
    "old-call-thinking": (
        [user("Rain?"), assistant(None, tool_calls=[CALL]), tool("no"), assistant("No."), user("Ok")],
        True,
        f"{BOS}<｜User｜>Rain?<｜Assistant｜></think>{DSML_CALL}{EOS}"
        "\n\n<function_results>\n<result>no</result>\n</function_results>\n\n</think>"
        f"No.{EOS}<｜User｜>Ok<｜Assistant｜><think>",
    ),
    "two-results": (
        [
            user("Rain?"),
            assistant(None, tool_calls=[CALL, {**CALL, "id": "b"}]),
            tool("second", tool_call_id="b"),
            tool("first", tool_call_id="a"),
        ],
        False,
        f"{BOS}<｜User｜>Rain?<｜Assistant｜></think>"
        + DSML_CALL.replace("</｜DSML｜function_calls>", "")
        + DSML_CALL.replace("\n\n<｜DSML｜function_calls>\n", "")
        + f"{EOS}\n\n<function_results>\n<result>first</result>\n<result>second</result>\n</function_results>\n\n</think>",
    ),
    "developer": (
        [{"role": "developer", "content": "Find it."}],
        True,
        f"{BOS}<｜User｜>\n\n# The user's message is: Find it.<｜Assistant｜><think>",
    ),
    "no-arguments": (
        [user("?"), assistant(None, tool_calls=[{"function": {"name": "now", "arguments": "{}"}}]), tool("8h")],
        False,
        f"{BOS}<｜User｜>?<｜Assistant｜></think>\n\n<｜DSML｜function_calls>\n"
        '<｜DSML｜invoke name="now">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'
        f"{EOS}\n\n<function_results>\n<result>8h</result>\n</function_results>\n\n</think>",
    ),
    "response-format": (
        [{**system("S"), "response_format": {"type": "json_object"}}, user("Hi")],
        False,
        f"{BOS}S\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
        '{"type": "json_object"}<｜User｜>Hi<｜Assistant｜></think>',
    ),
}


@pytest.mark.parametrize(("messages", "thinking", "expected"), CASES.values(), ids=CASES)
def test_v32_writes_what_the_published_program_writes(messages, thinking, expected):
    assert written(messages, thinking) == expected
    # The same, with control tokens as tokens.
    if messages[-1]["role"] != "assistant":
        assert encode_messages(messages, PLAIN, thinking) == PLAIN.encode(expected, parse_special=True)


@pytest.mark.parametrize("messages", [[system("Be brief."), user("Hi")], [user("Hi")]], ids=["system", "no-system"])
def test_tools_hang_on_the_system_message_one_a_line(messages):
    text = written(messages, True, [WEATHER, WEATHER])
    line = json.dumps(WEATHER["function"])
    start = (
        f"{BOS}{messages[0]['content'] if len(messages) == 2 else ''}\n\n## Tools\n\nYou have access to a set of tools"
    )
    assert text.startswith(start)
    assert text.endswith(
        "Here are the functions available in JSONSchema format:\n<functions>\n"
        f"{line}\n{line}\n</functions>\n<｜User｜>Hi<｜Assistant｜><think>"
    )
    assert encode_messages(messages, PLAIN, True, [WEATHER, WEATHER]) == PLAIN.encode(text, parse_special=True)


def test_parts_of_text_are_joined_and_other_parts_refused():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert encode_messages([user(parts)], PLAIN) == encode_messages([user("a\nb")], PLAIN)
    with pytest.raises(MessageError, match=r"messages\[0\]\.content.*only text"):
        encode_messages([user([{"type": "image_url", "image_url": {}}])], PLAIN)


BAD = {
    "empty": ([], "messages is empty"),
    "ends-in-assistant": ([user("a"), assistant("b")], "expected the last message"),
    "role": ([{"role": "boss", "content": "a"}], r"messages\[0\]\.role.*boss"),
    "no-content": ([{"role": "user"}], r"messages\[0\]\.content"),
    "not-an-object": (["Hi"], r"messages\[0\]"),
    "stray-result": ([user("a"), tool("b")], r"messages\[1\] starts 1 tool messages; expected 0"),
    "result-first": ([tool("b")], r"messages\[0\] starts 1 tool messages; expected 0"),
    "missing-result": (
        [user("a"), assistant("", tool_calls=[CALL, CALL]), tool("b")],
        "starts 1 tool messages; expected 2",
    ),
    "arguments": (
        [user("a"), assistant("", tool_calls=[{"function": {"name": "f", "arguments": '{"a": NaN}'}}]), tool("b")],
        r"messages\[1\]\.tool_calls has arguments .*NaN.*; expected a JSON object",
    ),
    "list-arguments": (
        [user("a"), assistant("", tool_calls=[{"function": {"name": "f", "arguments": "[1]"}}]), tool("b")],
        "JSON object",
    ),
    "older-call": (
        [user("a"), assistant(None, function_call={"name": "f", "arguments": "{}"}), user("b")],
        r"messages\[1\]\.function_call is .*; expected tool_calls",
    ),
    "nameless": ([user("a"), assistant("", tool_calls=[{"function": {}}]), tool("b")], "function with a name"),
}


def named(name, **arguments):
    return {"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


A, B, R, S = named("a", x=1), named("b"), tool("1", tool_call_id="a"), tool("2", tool_call_id="b")
BETWEEN = {
    "user": (
        [user("q"), assistant("", tool_calls=[A]), user("now"), R],
        [user("q"), assistant("", tool_calls=[A]), R, user("now")],
    ),
    "system": (
        [user("q"), assistant("", tool_calls=[A]), system("s"), R, user("p")],
        [user("q"), assistant("", tool_calls=[A]), R, system("s"), user("p")],
    ),
    "result": (
        [user("q"), assistant("", tool_calls=[A, B]), S, user("now"), R],
        [user("q"), assistant("", tool_calls=[A, B]), R, S, user("now")],
    ),
    "text": (
        [user("q"), assistant("c", reasoning_content="r", tool_calls=[A]), assistant("d"), R],
        [user("q"), assistant("cd", reasoning_content="r", tool_calls=[A]), R],
    ),
    "text-and-user": (
        [user("q"), assistant(None, tool_calls=[A]), assistant("d"), user("now"), R],
        [user("q"), assistant("d", tool_calls=[A]), R, user("now")],
    ),
    "same-id-again": (
        [user("q"), assistant("", tool_calls=[A]), R, assistant("", tool_calls=[A]), user("now"), R],
        [user("q"), assistant("", tool_calls=[A]), R, assistant("", tool_calls=[A]), R, user("now")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "ordered"), BETWEEN.values(), ids=BETWEEN)
@pytest.mark.parametrize("thinking", [False, True])
def test_a_result_follows_its_call_whatever_is_between_them(messages, ordered, thinking):
    assert encode_messages(messages, PLAIN, thinking) == encode_messages(ordered, PLAIN, thinking)


CUT_ARGUMENTS = {
    "{": [],
    '{"city": ': [],
    '{"city": "Gen': [("city", "Gen", "true")],
    '{"city": "Genève"': [("city", "Genève", "true")],
    '{"city": "a \\"b\\" \\n': [("city", 'a "b" \n', "true")],
    '{"city": "a", "days": ': [("city", "a", "true")],
    '{"at": [1,2], "city": "': [("at", "[1, 2]", "false"), ("city", "", "true")],
    '{"n": 1e999, "m": 1.50}': [("n", "1e999", "false"), ("m", "1.5", "false")],
}


@pytest.mark.parametrize(("arguments", "expected"), CUT_ARGUMENTS.items(), ids=CUT_ARGUMENTS)
def test_arguments_that_max_tokens_cut_are_encoded_as_far_as_they_go(arguments, expected):
    call = {"id": "a", "function": {"name": "f", "arguments": arguments}}
    text = written([user("?"), assistant("", tool_calls=[call]), tool("cut")])
    block = "\n".join(f'<｜DSML｜parameter name="{k}" string="{s}">{v}</｜DSML｜parameter>' for k, v, s in expected)
    assert f'<｜DSML｜invoke name="f">\n{block}\n</｜DSML｜invoke>' in text


@given(
    st.dictionaries(st.sampled_from(["text", "int", "any"]), st.text(max_size=6), min_size=1),
    st.integers(0, 400),
    st.booleans(),
)
def test_every_call_that_a_cut_answer_returns_is_accepted_in_the_history(values, end, thinking):
    pieces = v32_pieces([user("q"), assistant("", tool_calls=[named("f", **values)])], False)
    text = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces).partition("</think>")[2]
    for call in parse_assistant(text[:end], is_cut=True).tool_calls:
        again = {"id": "x", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        assert encode_messages(
            [user("q"), assistant("", tool_calls=[again]), tool("r", tool_call_id="x")], PLAIN, thinking
        )


@pytest.mark.parametrize(("messages", "reason"), BAD.values(), ids=BAD)
def test_bad_conversations_are_refused_in_one_line(messages, reason):
    with pytest.raises(MessageError, match=reason) as error:
        encode_messages(messages, PLAIN)
    assert "\n" not in str(error.value)


NESTED: list = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(("tool", "reason"), [
    ({}, "expected a list of functions with names"),
    ({"type": "function", "function": {"name": 5}}, "expected a list of functions with names"),
    ({"name": "f", "parameters": {1}}, "expected JSON, and this is not"),
    ({"name": "f", "parameters": {"maximum": float("nan")}}, "expected JSON, and this is not"),
    ({"name": "f", "parameters": NESTED}, "expected JSON, and this is not"),
    ({"parameters": NESTED}, "expected a list of functions with names"),
])  # fmt: skip
def test_functions_without_a_name_or_a_form_are_refused(tool, reason):
    for messages, tools in (([user("Hi")], [tool]), ([user("Hi") | {"tools": [tool]}], None)):
        with pytest.raises(MessageError, match=reason) as error:
            encode_messages(messages, EXP, tools=tools)
        assert "\n" not in str(error.value)


def test_the_template_is_rendered_as_transformers_renders_it():
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(definition()),
        chat_template=EXP_TEMPLATE,
        bos_token=BOS,
        eos_token=EOS,
    )
    talk = [*TALK[:2], assistant("so<think>x</think>Hello!"), TALK[3]]
    for thinking in (False, True):
        expected = theirs.apply_chat_template(talk, add_generation_prompt=True, thinking=thinking, tokenize=False)
        assert expected.count("</think>Hello!") == 1
        ids = encode_messages(talk, EXP, thinking)
        assert ids == EXP.encode(expected, parse_special=True)
        assert EXP.decode(ids, skip_special_tokens=False) == expected


def test_the_checkpoint_or_the_caller_chooses_the_format():
    talk = [user("Hi")]
    assert encode_messages(talk, EXP) == encode_messages(talk, EXP, chat_format="v3.2-exp")
    assert encode_messages(talk, EXP, chat_format="v3.2") == encode_messages(talk, PLAIN)
    with pytest.raises(ArgumentError, match="no chat template"):
        encode_messages(talk, PLAIN, chat_format="v3.2-exp")


def test_tools_that_a_template_would_drop_are_refused():
    with pytest.raises(MessageError, match="takes none"):
        encode_messages([user("Hi")], EXP, tools=[WEATHER])


@pytest.mark.parametrize(
    "template",
    ["{% for %}", "{{ raise_exception('no\n way') }}", "{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}"],
    ids=["syntax", "raised", "mutation", "escape"],
)
def test_a_template_cannot_crash_or_escape(template):
    with pytest.raises(MessageError, match="chat template") as error:
        encode_messages([user("Hi")], make_tokenizer(template))
    assert "\n" not in str(error.value)


words = st.lists(st.sampled_from([BOS, EOS, PAD, *MARKUP, "a", " ", "\U000f0000"])).map("".join)


@pytest.mark.parametrize("tokenizer", [PLAIN, EXP], ids=["v3.2", "v3.2-exp"])
@given(spoken=st.lists(words, min_size=4, max_size=4), thinking=st.booleans())
def test_nobody_can_speak_control_tokens(tokenizer, spoken, thinking):
    def conversation(texts):
        return [system(texts[0]), user(texts[1]), assistant(texts[2]), user(texts[3])]

    control = set(tokenizer.special_ids.values())
    ids = encode_messages(conversation(spoken), tokenizer, thinking)
    clean = encode_messages(conversation(["x"] * 4), tokenizer, thinking)
    assert [token for token in ids if token in control] == [token for token in clean if token in control]
    assert spoken[3] in tokenizer.decode(ids, skip_special_tokens=False)


@given(words, words, words)
def test_nor_through_functions(name, value, result):
    call = {"function": {"name": "f" + name, "arguments": {"k" + name: value}}}
    pieces = v32_pieces([user("q"), assistant("", tool_calls=[normal(call)]), tool(result)], False)
    fixed = [BOS, "<｜User｜>", "<｜Assistant｜>", "</think>", *["｜DSML｜"] * 6, EOS, "</think>"]
    assert [piece.text for piece in pieces if isinstance(piece, Special)] == fixed


def normal(call):
    function = call["function"]
    return {"function": {**function, "arguments": json.dumps(function["arguments"])}}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
calls = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": anything,
            "function": st.fixed_dictionaries({}, optional={"name": anything, "arguments": anything | st.just("{}")}),
        },
    )
    | anything,
    max_size=2,
)
talk_texts = st.text(max_size=4) | st.sampled_from([*MARKUP, "a"])
odd_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": talk_texts},
    optional={"tool_calls": calls, "tool_call_id": anything, "reasoning_content": talk_texts, "tools": anything},
) | st.fixed_dictionaries(
    {"role": anything | st.just("user")},
    optional={"content": anything, "tool_calls": anything, "response_format": anything},
)


@pytest.mark.parametrize("tokenizer", [PLAIN, EXP], ids=["v3.2", "v3.2-exp"])
@settings(max_examples=400)
@given(
    messages=st.lists(odd_messages | anything, max_size=4),
    ended=st.booleans(),
    thinking=st.booleans(),
    tools=st.none() | st.lists(st.just(WEATHER) | anything, max_size=2) | anything,
)
def test_whatever_arrives_is_encoded_or_refused(tokenizer, messages, ended, thinking, tools):
    try:
        ids = encode_messages([*messages, *([user("q")] if ended else [])], tokenizer, thinking, tools)
    except MessageError as error:
        assert "\n" not in str(error)
    else:
        assert ids[0] == tokenizer.bos_id


def test_characters_that_stand_for_control_tokens_survive_beside_them():
    tokenizer = make_tokenizer("{% for m in messages %}{{ m.content }}{% endfor %}")
    for text in ("\U000f0000<think>\U000f0001", "<think>\U000f0000</think>", "plain \U000f0000", "<think>"):
        ids = encode_messages([{"role": "user", "content": text}], tokenizer)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert not set(ids) & set(tokenizer.special_ids.values())


def call_of(result):
    return [user("Rain?"), assistant(None, tool_calls=[CALL]), result]


@pytest.mark.parametrize(
    ("messages", "equal"),
    [
        ([user("Hi"), system("Brief.")], [system("Brief."), user("Hi")]),
        ([system("A."), user("Hi"), system("B.")], [system("A.\n\nB."), user("Hi")]),
        ([user("Hi"), system("A."), system("B.")], [system("A.\n\nB."), user("Hi")]),
        ([user("Hi"), user("Ho"), system("A."), assistant("Yes"), user("Bye")],
         [system("A."), user("Hi"), user("Ho"), assistant("Yes"), user("Bye")]),
        ([*TALK, system("A.")], [*TALK[:-1], system("A."), TALK[-1]]),
        ([*TALK, assistant("2"), system("A.")], [*TALK, assistant("2"), user("A.")]),
        ([*call_of(tool("no")), system("A.")], [*call_of(tool("no")), user("A.")]),
        ([*call_of(tool("no")), system("A."), *TALK[2:]], [*call_of(tool("no")), user("A."), *TALK[2:]]),
        ([system("A.")], [user("A.")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("thinking", [False, True])
def test_system_messages_anywhere(messages, equal, thinking):
    """No format has a place for a system's text between a user's message and its answer: aider sends it there."""
    tokenizer = make_tokenizer()
    prompt = encode_messages(messages, tokenizer, thinking)
    assert prompt == encode_messages(equal, tokenizer, thinking)
    ending = [Special("<｜Assistant｜>"), Special("<think>" if thinking else "</think>")]
    assert prompt[-2:] == tokenizer.encode_pieces(ending)
