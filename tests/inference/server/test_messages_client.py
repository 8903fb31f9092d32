"""/v1/messages through Anthropic's own client. Its types, which are generated from Anthropic's document, check every object."""

import json
from typing import Literal

import httpx
import pydantic
import pytest

from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.text.tokenizer import END_THINK, Special
from support.server import MODEL, serving, stand_in_llm
from support.weather import ASK, CALL, CHAT_TOOLS, SCHEMA, WEATHER

anthropic = pytest.importorskip("anthropic")

TOOLS = [{**WEATHER, "input_schema": SCHEMA}]
EVENT = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent)
LIMITS = {"max_model_len": 4096, "page_count": 128}  # a round of calls fits


@pytest.fixture
def client(server):
    server.model.forget()
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0, timeout=30) as client:
        yield client
    assert server.idle()


def body(**more):
    return {"model": MODEL, "messages": ASK, "max_tokens": 300, "temperature": 0, **more}


def asked(**more):
    """The arguments of the client, whose latest versions have no temperature."""
    return {"model": MODEL, "messages": ASK, "max_tokens": 300, "extra_body": {"temperature": 0, "top_k": 5}, **more}


def events_of(http, **more):
    """The events of a stream as they are sent, each checked by the client's types, and the blocks that they make."""
    raw = http.post("/v1/messages", json=body(stream=True, **more)).text
    pairs = [block.split("\n") for block in raw.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    assert [name for name, _ in pairs] == [f"event: {event['type']}" for event in events]
    assert events.pop(1) == {"type": "ping"}
    open_block = None
    for event in events[1:-2]:
        EVENT.validate_python(event)
        assert (event["type"] == "content_block_start") == (open_block is None)  # one block at a time
        open_block = None if event["type"] == "content_block_stop" else event["index"]
    assert [event["type"] for event in (events[0], *events[-2:])] == ["message_start", "message_delta", "message_stop"]
    return events


def without_ids(blocks):
    return [{name: value for name, value in block.items() if name != "id" and value is not None} for block in blocks]


def test_a_text(server, client, http):
    system = [{"role": "system", "content": "Be brief."}]
    server.say(["Attention to a few tokens. 稀疏 🙂"], [*system, *ASK])
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1;"},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
    ]
    for given in ("Be brief.", blocks):
        ask = asked(system=given, metadata={"user_id": "me"})
        message = client.messages.create(
            **ask, extra_headers={"anthropic-beta": "a-1,b-2"}, extra_query={"beta": "true"}
        )
        assert [block.text for block in message.content] == ["Attention to a few tokens. 稀疏 🙂"]
        assert (message.stop_reason, message.stop_sequence, message.model) == ("end_turn", None, MODEL)
        prompt = len(server.llm.chat_token_ids([*system, *ASK]))
        assert message.usage.input_tokens + message.usage.cache_read_input_tokens == prompt
        assert client.messages.count_tokens(model=MODEL, messages=ASK, system=given).input_tokens == prompt
        anthropic.types.Message.model_validate(http.post("/v1/messages", json=body(system=given)).json())
    ended = client.messages.create(**asked(system="Be brief.", stop_sequences=[" few"]))
    assert (ended.stop_reason, ended.stop_sequence, ended.content[0].text) == (
        "stop_sequence",
        " few",
        "Attention to a",
    )
    assert client.messages.create(**asked(max_tokens=2)).stop_reason == "max_tokens"
    server.say([], ASK)
    assert [block.text for block in client.messages.create(**asked()).content] == [""]


@pytest.mark.parametrize("thinking", [None, "disabled", "enabled", "adaptive"])
def test_thinking(server, client, http, thinking):
    thinks = thinking in ("enabled", "adaptive")
    pieces = ["Hm, sparse…", Special(END_THINK), "It is faster."] if thinks else ["It is faster."]
    server.say(pieces, ASK, thinking=thinks)
    given = {} if thinking is None else {"thinking": {"type": thinking}}
    if thinking == "enabled":
        given["thinking"]["budget_tokens"] = 2048
    message = client.messages.create(**asked(**given))
    kinds = [block.type for block in message.content]
    assert kinds == (["thinking", "text"] if thinks else ["text"]) and message.content[-1].text == "It is faster."
    tokens = server.llm.tokenizer.encode_pieces(pieces[:2])
    assert message.usage.output_tokens_details.thinking_tokens == (len(tokens) if thinks else 0)
    if thinks:
        assert message.content[0].thinking == "Hm, sparse…" and message.content[0].signature
    with client.messages.stream(**asked(**given)) as stream:
        thought = "".join(event.thinking for event in stream if event.type == "thinking")
        final = stream.get_final_message()
    assert thought == ("Hm, sparse…" if thinks else "")
    assert without_ids(final.model_dump()["content"]) == without_ids(message.model_dump()["content"])
    events_of(http, **given)
    # The message goes back as it is.
    again = [*ASK, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Sure?"}]
    assert client.messages.count_tokens(model=MODEL, messages=again, **given).input_tokens > 0


def test_the_clients_loop_of_calls(server, client):
    @anthropic.beta_tool
    def get_weather(city: str, days: int) -> str:
        """The weather of a city."""
        return f"rain in {city} for {days} days"

    tool = get_weather.to_dict()
    chat_tool = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    chat_tools = [{"type": "function", "function": chat_tool}]
    server.say(CALL, ASK, tools=chat_tools)
    for is_streamed in (False, True):
        runner = client.beta.messages.tool_runner(**asked(), tools=[get_weather], max_iterations=2, stream=is_streamed)
        first, second = [turn.get_final_message() if is_streamed else turn for turn in runner]
        text, call = first.content
        assert (text.text, call.name, call.input) == ("Let me look.", "get_weather", {"city": "Köln", "days": 3})
        assert first.stop_reason == "tool_use" and call.id.startswith("toolu_")
        function = {"name": "get_weather", "arguments": json.dumps(call.input, ensure_ascii=False)}
        turn = {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        }
        result = {"role": "tool", "tool_call_id": "a", "content": "rain in Köln for 3 days"}
        prompt = len(server.llm.chat_token_ids([*ASK, turn, result], tools=chat_tools))
        assert second.usage.input_tokens + second.usage.cache_read_input_tokens == prompt


def test_a_call_at_every_length(server, client, http):
    """Whole and streamed answers agree, wherever max_tokens cuts them, and the client reads both."""
    server.say(CALL, ASK, tools=CHAT_TOOLS)
    count = len(server.llm.tokenizer.encode_pieces(CALL))
    for most in range(1, count + 2, 3):
        whole = client.messages.create(**asked(max_tokens=most), tools=TOOLS)
        with client.messages.stream(**asked(max_tokens=most), tools=TOOLS) as stream:
            final = stream.get_final_message()
        assert without_ids(final.model_dump()["content"]) == without_ids(whole.model_dump()["content"])
        assert whole.stop_reason == final.stop_reason == ("tool_use" if most > count else "max_tokens")
        assert all(isinstance(block.input, dict) for block in whole.content if block.type == "tool_use")
    events_of(http, tools=TOOLS)


@pytest.mark.parametrize(
    ("choice", "calls"), [({"type": "any"}, 1), ({"type": "tool", "name": "get_weather"}, 1), ({"type": "none"}, 0)]
)
def test_choices(client, choice, calls):
    """The model writes noise, which only the choice makes calls of."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Köln", "Bonn"]}}, "required": ["city"]}
    given = asked(
        tools=[{**WEATHER, "input_schema": schema}],
        tool_choice={**choice, **({"disable_parallel_tool_use": True} if calls else {})},
    )
    message = client.messages.create(**given | {"max_tokens": 300 if calls else 20})
    found = [block for block in message.content if block.type == "tool_use"]
    assert len(found) == calls and all(block.input["city"] in ("Köln", "Bonn") for block in found)


def test_a_form(client):
    class Animal(pydantic.BaseModel):
        kind: Literal["cat", "dog"]
        age: Literal[1, 2]

    config = {"format": {"type": "json_schema", "schema": Animal.model_json_schema()}, "effort": "low"}
    message = client.messages.create(**asked(max_tokens=1500), output_config=config)
    Animal.model_validate_json(message.content[0].text)
    assert client.messages.parse(**asked(max_tokens=1500), output_format=Animal).parsed_output.kind in ("cat", "dog")


def part(text):
    return {"type": "text", "text": text}


USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Köln"}}
CHAT_CALL = {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "x"}


@pytest.mark.parametrize(
    ("messages", "chat"),
    [
        ([{"role": "user", "content": [part("a"), part("b")]}], [{"role": "user", "content": "a\nb"}]),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], [{"role": "user", "content": "a\nb"}]),
        (
            [*ASK, {"role": "assistant", "content": [part("a"), part("b")]}, {"role": "user", "content": "c"}],
            [*ASK, {"role": "assistant", "content": "ab"}, {"role": "user", "content": "c"}],
        ),
        (
            [
                *ASK,
                {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "?"}, THOUGHT, part("a"), USE]},
                {"role": "user", "content": [
                    part("Go on."),
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [part("rain"), part("wind")], "is_error": False},
                ]},
            ],
            [
                *ASK,
                {"role": "assistant", "reasoning_content": "Hm.", "content": "a", "tool_calls": [CHAT_CALL]},
                {"role": "tool", "tool_call_id": "toolu_1", "content": "rain\nwind"},
                {"role": "user", "content": "Go on."},
            ],
        ),
        (
            [
                *ASK,
                {"role": "assistant", "content": [USE]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]},
            ],
            [
                *ASK,
                {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
                {"role": "tool", "tool_call_id": "toolu_1", "content": ""},
            ],
        ),
    ],
    ids=["parts", "users in a row", "answer's parts", "results before texts", "result without content"],
)  # fmt: skip
def test_the_model_sees_what_chat_shows_it(server, client, messages, chat):
    expected = len(server.llm.chat_token_ids(chat, tools=CHAT_TOOLS, thinking=True))
    given = {"model": MODEL, "tools": TOOLS, "thinking": {"type": "adaptive"}}
    assert client.messages.count_tokens(messages=messages, **given).input_tokens == expected


def test_an_answer_is_continued(server, client):
    begun = [*ASK, {"role": "assistant", "content": "It is"}]
    tokens = server.llm.tokenizer.encode(" faster.")
    server.model.say(tokens, client.messages.count_tokens(model=MODEL, messages=begun).input_tokens)
    assert client.messages.create(**asked(messages=begun)).content[0].text == " faster."


def test_tools_of_anthropics_servers_are_skipped(client, http, caplog):
    tools = [*TOOLS, {"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
    raw = client.messages.with_raw_response.create(**asked(max_tokens=2), tools=tools)
    assert "tools.1, of type web_search_20250305; tools.2, of type bash_20250124" in raw.headers["warning"]
    assert any("web_search_20250305" in record.message for record in caplog.records)
    with_them, without = [
        http.post("/v1/messages/count_tokens", json={"messages": ASK, "tools": t}) for t in (tools, TOOLS)
    ]
    assert with_them.json() == without.json() and "warning" not in without.headers


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"messages": [{"role": "user", "content": [part("a"), IMAGE]}]}, "messages.0.content.1"),
        ({"messages": [{"role": "user", "content": [USE]}]}, "messages.0.content.0 is of type tool_use; expected text or"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]}, "messages.0.content.0"),
        ({"messages": []}, "messages"),
        ({"messages": [*ASK, {"role": "assistant", "content": [USE]}]}, "messages"),
        ({"messages": [*ASK, {"role": "assistant", "content": [USE] * 200}, *ASK]}, "messages.1.tool_calls"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temprature": 1}, "temprature: not known"),
        ({"temperature": 11}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}, "tools": TOOLS}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "not": {}}}}}, "output_config.format"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.name"),
    ],
)  # fmt: skip
def test_refusals(client, http, more, named):
    refused = http.post("/v1/messages", json=body() | more)
    error = refused.json()
    assert refused.status_code == 400 and error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert error["error"]["message"].startswith(named), error


def test_errors_have_anthropics_shape(server, client, http):
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(**asked() | {"model": "claude"})
    assert unknown.value.body["error"]["type"] == "not_found_error" and unknown.value.body["type"] == "error"
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: "):  # the words that Claude Code looks for
        client.messages.create(**asked() | {"messages": [{"role": "user", "content": "a b " * 5000}]})
    for sent, kind in ((b"{", "invalid_request_error"), (b"a" * (9 * 2**20), "request_too_large")):
        try:
            answer = http.post("/v1/messages", content=sent, headers={"content-type": "application/json"})
        except httpx.WriteError:  # the server may disconnect before it has read everything
            continue
        assert answer.json()["type"] == "error" and answer.json()["error"]["type"] == kind
    missing = http.get("/v1/messages")
    assert missing.status_code == 405 and missing.json()["type"] == "error"

    def fail():
        raise RuntimeError("secret")

    server.model.before_step = fail
    with pytest.raises(anthropic.InternalServerError, match="this answer failed") as failed:
        client.messages.create(**asked())
    assert failed.value.body["error"]["type"] == "api_error"
    with (
        pytest.raises(anthropic.APIStatusError, match="this answer failed"),
        client.messages.stream(**asked()) as stream,
    ):
        stream.get_final_message()
    server.model.forget()


def test_a_full_context(server, client):
    def long(count):
        return [{"role": "user", "content": "the " * count}]

    few, many = (client.messages.count_tokens(model=MODEL, messages=long(n)).input_tokens for n in (100, 200))
    full = asked(messages=long(100 + (4080 - few) * 100 // (many - few)), max_tokens=10**6)
    assert client.messages.create(**full).stop_reason == "model_context_window_exceeded"


def test_a_dropped_stream_ends_its_request(server, client):
    with client.messages.stream(**asked() | {"max_tokens": 3000}) as stream:
        for event in stream:
            if event.type == "text":
                break
    assert server.idle()


def test_the_key_as_anthropics_clients_send_it():
    with serving(Service(stand_in_llm()), api_key="a-long-secret") as server:
        ask = asked(max_tokens=2)
        assert anthropic.Anthropic(base_url=server.url, api_key="a-long-secret").messages.create(**ask).content
        assert (
            anthropic.Anthropic(base_url=server.url, auth_token="a-long-secret", api_key=None)
            .messages.create(**ask)
            .content
        )
        for key in ("wrong", "a-long-secre", "clé", ""):
            refused = httpx.post(server.url + "/v1/messages", json=body(), headers={"x-api-key": key.encode()})
            assert refused.status_code == 401 and refused.json()["error"]["type"] == "authentication_error"
