"""Fields about parts of an answer: stop strings, the number of calls, numbers of tokens while it is written, earlier reasoning."""

import json
import math
import re

import httpx
import pytest

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.server.service import engine_thread
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.text.tokenizer import DSML, END_THINK, Special
from support.server import serving, stand_in_llm

ASK = [{"role": "user", "content": "Hi"}]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
D, END = Special(DSML), Special(END_THINK)
LIMITS = {"max_model_len": 4096, "page_count": 128}  # the description of functions is long
STREAMS = {  # by path: a request, and the name of the text in its events
    CHAT: ({"messages": ASK}, "content"),
    "/v1/completions": ({"prompt": stand_in_llm().chat_token_ids(ASK)}, "text"),
    RESPONSES: ({"input": "Hi"}, "delta"),
    "/v1/messages": ({"messages": ASK, "max_tokens": 90}, "text"),
}


@pytest.mark.parametrize("path", STREAMS)
def test_text_that_comes_with_a_failure_is_streamed(monkeypatch, path):
    """The first token comes by itself; the next ones wait for their delivery until the fifth step fails."""
    monkeypatch.setattr(engine_thread, "LONGEST_PAUSE", 1000.0)
    steps = []

    def fail():
        steps.append(0)
        if len(steps) > 5:
            raise RuntimeError("secret")

    body, name = STREAMS[path]
    with serving(Service(stand_in_llm(), delivery=1000.0)) as server:
        server.say(["one two three four five six seven eight nine ten"], ASK)
        server.model.before_step = fail
        answer = httpx.post(server.url + path, json={**body, "stream": True}, timeout=30).text
        said = "".join(re.findall(rf'"{name}": "([^"]+)"', answer))
    assert "this answer failed" in answer and said.startswith("one"), (said, answer)


def calls(*values):
    """A block of calls of `f`, as the model writes it."""
    pieces = ["\n\n<", D, "function_calls>\n"]
    for value in values:
        pieces += [
            "<",
            D,
            'invoke name="f">\n<',
            D,
            f'parameter name="a" string="true">{value}</',
            D,
            "parameter>\n</",
            D,
            "invoke>\n",
        ]
    return [*pieces, "</", D, "function_calls>"]


def ask(http, body, stream):
    """(reasoning, content, arguments of each call, finish_reason) of a chat answer."""
    if not stream:
        [choice] = http.post(CHAT, json=body).json()["choices"]
        message = choice["message"]
        found = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
        return message.get("reasoning_content") or "", message["content"] or "", found, choice["finish_reason"]
    reasoning = content = ""
    found: list[str] = []
    for chunk in chunks(http, CHAT, body):
        [choice] = chunk["choices"]
        delta = choice["delta"]
        reasoning, content = reasoning + delta.get("reasoning_content", ""), content + delta.get("content", "")
        for call in delta.get("tool_calls", []):
            found += [""] * (call["index"] + 1 - len(found))
            found[call["index"]] += call["function"]["arguments"]
    return reasoning, content, found, choice["finish_reason"]


def chunks(http, path, body):
    lines = http.post(path, json={**body, "stream": True}).text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


# By what the model writes, after the reasoning: the content, arguments and end of the answer with the stop string "STOP".
STOPS = {
    "content": (["Yes. ST", "OP no"], "Yes. ", [], "stop"),
    "no stop": (["Yes. STO"], "Yes. STO", [], "stop"),
    "arguments": (["Look STO", *calls("a STOP b", "c")], "Look STO", ["a STOP b", "c"], "tool_calls"),
    "before a call": (["Look STOP", *calls("a")], "Look ", [], "stop"),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("reasoning", ["", "First STOP, then ST"], ids=["", "thinking"])
@pytest.mark.parametrize(("written", "content", "values", "reason"), STOPS.values(), ids=STOPS)
def test_stop_strings_end_only_the_content(server, http, stream, reasoning, written, content, values, reason):
    """As for hosted models. "ST" before </think> and "OP" after it are no stop string either."""
    thinking = bool(reasoning)
    written = [reasoning, END, "OP, ", *written] if thinking else written
    content = f"OP, {content}" if thinking else content
    server.say(written, ASK, tools=TOOLS, thinking=thinking)
    body = {"messages": ASK, "tools": TOOLS, "temperature": 0, "stop": ["STOP"]}
    body |= {"thinking": {"type": "enabled"}} if thinking else {}
    found = ask(http, body, stream)
    assert found == (reasoning, content, [json.dumps({"a": value}) for value in values], reason)


def test_stop_strings_elsewhere(server, http):
    """A completion is all content; an answer that must be a call has none. Python's chats are as the server's."""
    prompt = server.llm.tokenizer.encode("a")
    server.model.say(server.llm.tokenizer.encode_pieces(["a", END, "b STOP c"]), len(prompt))
    body = {"prompt": prompt, "max_tokens": 50, "temperature": 0, "stop": f"{END_THINK}b"}
    assert http.post("/v1/completions", json=body).json()["choices"][0]["text"] == "a"
    body = {
        "messages": ASK,
        "tools": TOOLS,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "seed": 1,
        "stop": ["\n", "<"],
    }
    [choice] = http.post(CHAT, json={**body, "max_tokens": 200}).json()["choices"]
    assert choice["message"]["tool_calls"]
    llm = stand_in_llm()
    ids = llm.chat_token_ids(ASK, thinking=True)
    llm.model.say(llm.tokenizer.encode_pieces(["a STOP", END, "b STOP c"]), len(ids))
    message = llm.chat(ASK, SamplingParams(temperature=0, stop="STOP"), thinking=True).message
    assert (message.reasoning_content, message.content) == ("a STOP", "b ")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("thinking", [False, True], ids=["", "thinking"])
def test_one_call_if_calls_may_not_be_parallel(server, http, stream, thinking):
    written = ["Well. ", *calls("1", "2"), *calls("3")]
    written = ["Hm.", END, *written] if thinking else written
    body = {"messages": ASK, "tools": TOOLS, "temperature": 0, **({"reasoning_effort": "low"} if thinking else {})}
    for parallel, values in ((False, "1"), (True, "123"), (None, "123")):
        server.say(written, ASK, tools=TOOLS, thinking=thinking)
        _, content, found, reason = ask(http, {**body, "parallel_tool_calls": parallel}, stream)
        assert (content, found) == ("Well. ", [json.dumps({"a": value}) for value in values]) and reason == "tool_calls"
    asked = {"input": "Hi", "tools": [{"type": "function", **FUNCTION}], "parallel_tool_calls": False, "temperature": 0}
    asked |= {"reasoning": {"effort": "low"}} if thinking else {}
    if stream:
        output = chunks(http, RESPONSES, asked)[-1]["response"]["output"]
    else:
        output = http.post(RESPONSES, json=asked).json()["output"]
    assert [item["arguments"] for item in output if item["type"] == "function_call"] == ['{"a": "1"}']


def test_one_call_among_calls_in_reasoning_that_is_not_closed(server, http):
    server.say(["Hm.", *calls("1", "2")], ASK, tools=TOOLS, thinking=True)
    body = {"messages": ASK, "tools": TOOLS, "temperature": 0, "parallel_tool_calls": False, "reasoning_effort": "low"}
    assert ask(http, body, False)[2] == ['{"a": "1"}']


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize(
    ("options", "running", "last"),
    [
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
        ({"continuous_usage_stats": True}, True, True),
        ({"include_usage": True, "continuous_usage_stats": False}, False, True),
        ({"include_usage": False, "continuous_usage_stats": True}, False, False),
        ({}, False, False),
        ({"include_obfuscation": False}, False, False),
    ],
    ids=str,
)
def test_numbers_of_tokens_in_every_chunk(http, path, options, running, last):
    """As in vLLM, whose include_usage is true by default."""
    fields = {"messages": ASK} if path == CHAT else {"prompt": ["The", "Our"]}
    found = chunks(http, path, {**fields, "max_tokens": 9, "n": 2, "seed": 1, "stream_options": options})
    if last:
        *found, end = found
        assert end["choices"] == [] and end["usage"]["completion_tokens"] == (18 if path == CHAT else 36)
    assert found and all(bool(chunk.get("usage")) == running for chunk in found)
    if running:
        counts = [chunk["usage"]["completion_tokens"] for chunk in found]
        assert counts == sorted(counts) and len(set(counts)) > 2 and counts[-1] == end["usage"]["completion_tokens"]
        assert {chunk["usage"]["prompt_tokens"] for chunk in found} == {end["usage"]["prompt_tokens"]}
        assert all(chunk["usage"]["total_tokens"] == sum(list(chunk["usage"].values())[:2]) for chunk in found)


def test_reasoning_by_the_name_that_vllm_writes(server, http):
    def tokens(**reasoning):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        turn = {"role": "assistant", "content": "", "tool_calls": [call], **reasoning}
        history = [*ASK, turn, {"role": "tool", "tool_call_id": "1", "content": "x"}]
        body = {"messages": history, "chat_template_kwargs": {"thinking": True}}
        found = http.post("/tokenize", json=body).json()["tokens"]
        assert found == server.llm.chat_token_ids(history, thinking=True)
        return found

    expected = tokens(reasoning_content="I think")
    assert tokens() != expected
    for reasoning in (
        {"reasoning": "I think"},
        {"reasoning": "I think", "reasoning_content": None},
        {"reasoning": "b", "reasoning_content": "I think"},
    ):
        assert tokens(**reasoning) == expected
    begun = [*ASK, {"role": "assistant", "content": "", "reasoning": "Let me"}]
    prompt = [*server.llm.chat_token_ids(ASK, thinking=True), *server.llm.tokenizer.encode("Let me")]
    server.model.say(server.llm.tokenizer.encode_pieces([" see", END, "Yes"]), len(prompt))
    body = {"messages": begun, "continue_final_message": True, "thinking": {"type": "enabled"}, "temperature": 0}
    assert ask(http, body, False)[:2] == (" see", "Yes")


ODD_CALLS = {
    "a long name": ("n" * 300, "a", "true", "x", {"a": "x"}),
    "an infinite number": ("f", "b", "false", "-1e999", {"b": -math.inf}),
    "an infinite number inside": ("f", "b", "false", '{"c": [1e400, "é"]}', {"b": {"c": [math.inf, "é"]}}),
    "150 levels": ("f", "b", "false", "[" * 150 + "]" * 150, None),
    "250 levels": ("f", "b", "false", "[" * 250 + "]" * 250, {"b": "[" * 250 + "]" * 250}),
    "a name twice": ("f", "b", "false", '{"c": 1, "c": 2}', {"b": {"c": 2}}),
}


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize(("name", "key", "kind", "value", "expected"), ODD_CALLS.values(), ids=ODD_CALLS)
def test_odd_calls_are_the_same_for_every_endpoint_whole_and_streamed(
    server, http, name, key, kind, value, expected, cut
):
    """cut: max_tokens ends the answer with the value's mark, before the call's."""
    head = ["\n\n<", D, "function_calls>\n<", D, f'invoke name="{name}">\n<', D]
    written = [*head, f'parameter name="{key}" string="{kind}">{value}</', D, "parameter>"]
    limit = len(server.llm.tokenizer.encode_pieces(written)) if cut else 2000
    written += ["\n</", D, "invoke>\n</", D, "function_calls>"]
    plain = {"name": "f", "parameters": {"type": "object"}}
    shown = [{"type": "function", "function": plain}]
    server.say(written, ASK, tools=shown)
    body = {"temperature": 0, "messages": ASK, "max_tokens": limit}
    (*_, [arguments], reason), other = (ask(http, {**body, "tools": shown}, stream) for stream in (False, True))
    assert other[2:] == ([arguments], reason) and reason == ("length" if cut else "tool_calls")
    asked = {"temperature": 0, "input": "Hi", "max_output_tokens": limit, "tools": [{"type": "function", **plain}]}
    items = http.post(RESPONSES, json=asked).json()["output"], chunks(http, RESPONSES, asked)[-1]["response"]["output"]
    assert [[item["arguments"] for item in output] for output in items] == [[arguments]] * 2
    body |= {"tools": [{"name": "f", "input_schema": plain["parameters"]}]}
    [block] = http.post("/v1/messages", json=body).json()["content"]
    events = chunks(http, "/v1/messages", body)
    assert "".join(each["delta"].get("partial_json", "") for each in events if "delta" in each) == arguments
    assert block["name"] == name and block["input"] == json.loads(arguments + "}" * cut)
    assert expected is None or block["input"] == expected
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "1", "content": "x"}
    again = {"messages": [*ASK, {"role": "assistant", "content": "", "tool_calls": [call]}, result]}
    assert http.post("/tokenize", json=again).status_code == 200
