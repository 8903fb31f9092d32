"""/v1/responses through OpenAI's own client. Its types, which are generated from OpenAI's document, check every object."""

import json

import openai
import pydantic
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from deepseek_v32.inference.server.api.errors import ApiError
from deepseek_v32.inference.server.api.response_api.request import ResponseRequest
from deepseek_v32.inference.server.api.response_api.route import KeptResponses
from deepseek_v32.inference.text.tokenizer import END_THINK, Special
from support.server import MODEL
from support.weather import ASK, CALL, CHAT_TOOLS, FUNCTION, QUESTION

TOOLS = [{"type": "function", **FUNCTION}]
LIMITS = {"max_model_len": 4096, "page_count": 128}  # a round of calls fits

EVENT = pydantic.TypeAdapter(ResponseStreamEvent)


def events_of(http, **body):
    """The events of a stream as they are sent, each checked by the client's types."""
    raw = http.post("/v1/responses", json={"stream": True, "temperature": 0, **body}).text
    pairs = [block.split("\n") for block in raw.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    assert [name for name, _ in pairs] == [f"event: {event['type']}" for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        EVENT.validate_python(event)
    return events


def grown(events):
    """Build the items from only the events, as a client does."""
    items = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append({"item": event["item"], "text": ""})
        elif kind in ("output_text.delta", "reasoning_text.delta", "function_call_arguments.delta"):
            assert event["item_id"] == items[event["output_index"]]["item"]["id"]
            items[event["output_index"]]["text"] += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert event["text"] == items[-1]["text"]
        elif kind == "output_item.done":
            item = event["item"]
            assert items[-1]["text"] == (item["arguments"] if "arguments" in item else item["content"][0]["text"])
            assert item["id"] == items[-1]["item"]["id"]
            items[-1]["item"] = item
    return [item["item"] for item in items]


def test_what_codex_sends(server, http, caplog):
    """The fields and the tools of codex 0.171, with fewer words."""
    server.say(["Hi."], ASK, tools=CHAT_TOOLS)
    namespace = {"type": "namespace", "name": "agents", "description": "…", "tools": TOOLS}
    others = [
        namespace,
        {"type": "web_search", "external_web_access": False},
        {"type": "custom", "name": "apply_patch"},
    ]
    ask = {
        "model": MODEL, "input": [{"type": "message", "id": "msg_1", **ASK[0]}], "tools": [*TOOLS, *others],
        "tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"summary": "detailed"}, "store": False,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "text": {"verbosity": "low"},
        "client_metadata": {"session_id": "s"}, "temperature": 0,
    }  # fmt: skip
    for stream in (False, True):
        answer = http.post("/v1/responses", json={**ask, "stream": stream})
        assert answer.status_code == 200 and "Hi." in answer.text
        skipped = [
            f"tools.{place}, of type {kind}" for place, kind in ((1, "namespace"), (2, "web_search"), (3, "custom"))
        ]
        assert all(each in answer.headers["warning"] for each in skipped)
    assert Response.model_validate(http.post("/v1/responses", json=ask).json()).tools[0].name == "get_weather"
    assert any("of type namespace" in record.message for record in caplog.records)
    assert "warning" not in http.post("/v1/responses", json={**ask, "tools": TOOLS}).headers


def without_ids(items):
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in items]


def test_a_text(server, client, http):
    server.say(["Attention to a few tokens. 稀疏 🙂"], [{"role": "system", "content": "Be brief."}, *ASK])
    ask = {"model": MODEL, "input": QUESTION, "instructions": "Be brief.", "temperature": 0, "metadata": {"a": "b"}}
    response = client.responses.create(**ask, store=False, user="me")
    assert response.output_text == "Attention to a few tokens. 稀疏 🙂"
    assert (response.status, response.model, response.object) == ("completed", MODEL, "response")
    assert response.id.startswith("resp_") and response.output[0].id.startswith("msg_")
    assert (response.instructions, response.metadata, response.temperature) == ("Be brief.", {"a": "b"}, 0)
    usage = response.usage
    assert usage.input_tokens == len(server.llm.chat_token_ids([{"role": "system", "content": "Be brief."}, *ASK]))
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.output_tokens_details.reasoning_tokens == 0
    raw = http.post("/v1/responses", json=ask).json()
    Response.model_validate(raw)  # the client itself builds objects without a check


def test_the_stream_of_a_text(server, client, http):
    server.say(["Attention to a few tokens. 稀疏 🙂"], ASK)
    with client.responses.stream(model=MODEL, input=QUESTION, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "Attention to a few tokens. 稀疏 🙂"
    events = events_of(http, input=QUESTION)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert [kind for kind in kinds if kind != "output_text.delta"] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert grown(events) == events[-1]["response"]["output"] and events[0]["response"]["output"] == []
    plain = [event for event in client.responses.create(model=MODEL, input=QUESTION, temperature=0, stream=True)]
    assert plain[-1].response.output_text == text


@pytest.mark.parametrize("effort", ["none", "low"])
def test_reasoning(server, http, effort):
    thinks = effort != "none"
    server.say(["Hm, sparse…", Special(END_THINK), "It is faster."] if thinks else ["It is."], ASK, thinking=thinks)
    body = {"input": QUESTION, "reasoning": {"effort": effort, "summary": "auto"}, "temperature": 0}
    response = Response.model_validate(http.post("/v1/responses", json=body).json())
    assert [item.type for item in response.output] == (["reasoning", "message"] if thinks else ["message"])
    if thinks:
        [part] = response.output[0].content
        assert part.text == "Hm, sparse…" and response.output_text == "It is faster."
        tokens = len(server.llm.tokenizer.encode_pieces(["Hm, sparse…", Special(END_THINK)]))
        assert response.usage.output_tokens_details.reasoning_tokens == tokens
    events = events_of(http, **body)
    assert without_ids(grown(events)) == without_ids(events[-1]["response"]["output"])
    assert without_ids(grown(events)) == without_ids(response.model_dump(exclude_unset=True)["output"])


def test_a_call_and_its_result(server, client, http):
    server.say(CALL, ASK, tools=CHAT_TOOLS)
    ask = {"model": MODEL, "tools": TOOLS, "temperature": 0}
    first = client.responses.create(**ask, input=ASK)
    message, call = first.output
    assert message.content[0].text == "Let me look." and (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments) == {"city": "Köln", "days": 3} and call.status == "completed"
    events = events_of(http, **ask, input=ASK)
    assert without_ids(grown(events)) == without_ids(first.model_dump(exclude_unset=True)["output"])
    with client.responses.stream(**ask, input=ASK) as stream:
        assert stream.get_final_response().output[1].arguments == call.arguments

    turn = {"role": "assistant", "content": "Let me look."}
    turn["tool_calls"] = [{"id": "x", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}]
    plain = [*ASK, turn, {"role": "tool", "tool_call_id": "x", "content": "rain"}]
    server.say(["It rains."], plain, tools=CHAT_TOOLS)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    again = client.responses.create(**ask, input=[*ASK, *first.output, result])
    assert again.output_text == "It rains." and again.usage.input_tokens == len(
        server.llm.chat_token_ids(plain, tools=CHAT_TOOLS)
    )


def chat_stream(http, **body):
    """What a client puts together from the chunks of a chat completion."""
    message, arguments = {"content": "", "reasoning_content": ""}, {}
    for line in http.post("/v1/chat/completions", json={**body, "stream": True}).text.split("\n"):
        if not line.startswith("data: {"):
            continue
        [choice] = json.loads(line.removeprefix("data: "))["choices"]
        for name in message:
            message[name] += choice["delta"].get(name) or ""
        for call in choice["delta"].get("tool_calls", ()):
            function = call["function"]
            arguments.setdefault(call["index"], [function.get("name"), ""])[1] += function["arguments"]
    return {**message, "calls": [*arguments.values()], "reason": choice["finish_reason"]}


TALK = ["Hm.", Special(END_THINK), *CALL, "\n\nNow wait: 3 < 4."]


def test_every_cut_of_an_answer_begins_the_whole_and_is_the_same_streamed(server, http):
    """Items come in the order of their tokens, and no cut shows a piece of a mark."""
    server.say(TALK, ASK, thinking=True, tools=CHAT_TOOLS)
    ask = {"input": ASK, "tools": TOOLS, "temperature": 0, "reasoning": {"effort": "low"}, "store": False}
    chat = {"messages": ASK, "tools": CHAT_TOOLS, "temperature": 0, "reasoning_effort": "low"}
    kinds = ["reasoning", "message", "function_call", "message"]
    whole = http.post("/v1/responses", json=ask).json()["output"]
    assert [item["type"] for item in whole] == kinds
    texts = [item["arguments"] if "arguments" in item else item["content"][0]["text"] for item in whole]
    assert texts == ["Hm.", "Let me look.", '{"city": "Köln", "days": 3}', "\n\nNow wait: 3 < 4."]
    for most in range(1, len(server.llm.tokenizer.encode_pieces(TALK)) + 1, 2):
        body = {**ask, "max_output_tokens": most}
        events = events_of(http, **body)
        output = events[-1]["response"]["output"]
        assert without_ids(grown(events)) == without_ids(output)
        assert [item["type"] for item in output] == kinds[: len(output)]
        cut = [item["arguments"] if "arguments" in item else item["content"][0]["text"] for item in output]
        assert cut[:-1] == texts[: len(cut)][:-1] and texts[len(cut) - 1].startswith(cut[-1]), most
        if most % 3:  # a part of the cuts, because requests take their time
            continue
        assert without_ids(http.post("/v1/responses", json=body).json()["output"]) == without_ids(output)
        streamed = chat_stream(http, **chat, max_tokens=most)
        [choice] = http.post("/v1/chat/completions", json={**chat, "max_tokens": most}).json()["choices"]
        message = choice["message"]
        calls = [[call["function"][name] for name in ("name", "arguments")] for call in message.get("tool_calls", ())]
        whole_message = {"content": message["content"] or "", "reasoning_content": message["reasoning_content"]}
        assert streamed == {**whole_message, "calls": calls, "reason": choice["finish_reason"]}
        assert [arguments for _, arguments in calls] == cut[2:3]
        assert streamed["content"] == "".join([*cut[1:2], *cut[3:]])
        assert streamed["reasoning_content"] == "".join(cut[:1])


def called(arguments):
    return {"type": "function_call", "call_id": arguments, "name": "f", "arguments": arguments}


def answered(call_id):
    return {
        "type": "function_call_output",
        "call_id": call_id,
        "output": [{"type": "input_text", "text": f"of {call_id}"}],
    }


def reasoned(text):
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def said(text, role="assistant"):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text, "annotations": []}]}


def calls(*arguments):
    return [{"id": each, "type": "function", "function": {"name": "f", "arguments": each}} for each in arguments]


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        (
            [
                *ASK,
                reasoned("a"),
                reasoned("b"),
                said("c"),
                called('{"x": 1}'),
                called("{}"),
                answered("{}"),
                answered('{"x": 1}'),
            ],
            [
                *ASK,
                {"role": "assistant", "reasoning_content": "ab", "content": "c", "tool_calls": calls('{"x": 1}', "{}")},
                {"role": "tool", "tool_call_id": "{}", "content": "of {}"},
                {"role": "tool", "tool_call_id": '{"x": 1}', "content": 'of {"x": 1}'},
            ],
        ),
        (
            [*ASK, called("{}"), answered("{}"), reasoned("then"), called("{}"), answered("{}")],
            [
                *ASK,
                {"role": "assistant", "tool_calls": calls("{}")},
                {"role": "tool", "tool_call_id": "{}", "content": "of {}"},
                {"role": "assistant", "reasoning_content": "then", "tool_calls": calls("{}")},
                {"role": "tool", "tool_call_id": "{}", "content": "of {}"},
            ],
        ),
        (
            [said("s", "system"), said("a", "user"), said("b"), said("c"), said("d", "developer")],
            [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "assistant", "content": "c"},
                {"role": "developer", "content": "d"},
            ],
        ),
    ],
    ids=["reasoning, text and calls are one turn", "two rounds of calls", "roles"],
)
def test_items_become_the_turns_that_they_were(server, client, items, messages):
    """The oracle is the prompt: the model continues only where the chat's encoding of these turns ends."""
    server.say(["Here."], messages, thinking=True)
    response = client.responses.create(
        model=MODEL, input=items, temperature=0, reasoning={"effort": "high"}, max_output_tokens=9
    )
    assert response.usage.input_tokens == len(server.llm.chat_token_ids(messages, thinking=True))
    assert response.output[0].content[0].text == "Here."


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_continued(server, client, stream):
    """The oracle is the prompt, as above; instructions do not carry over."""
    server.say(["Once.", Special(END_THINK), "Upon."], [{"role": "system", "content": "s"}, *ASK], thinking=True)
    ask = {"model": MODEL, "temperature": 0, "reasoning": {"effort": "high"}, "max_output_tokens": 20}
    if stream:
        *_, last = client.responses.create(**ask, input=QUESTION, instructions="s", stream=True)
        first = last.response
    else:
        first = client.responses.create(**ask, input=QUESTION, instructions="s", store=True)
    turn = {"role": "assistant", "reasoning_content": "Once.", "content": "Upon."}
    messages = [*ASK, turn, {"role": "user", "content": "And?"}]
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    for again in (
        {"previous_response_id": first.id, "input": "And?"},
        {"input": [*ASK, *references, {"role": "user", "content": "And?"}]},
    ):
        server.say(["A time."], messages, thinking=True)
        second = client.responses.create(**ask, **again, store=False)
        assert second.usage.input_tokens == len(server.llm.chat_token_ids(messages, thinking=True))
        assert second.output[0].content[0].text == "A time." and second.store is False
        with pytest.raises(openai.BadRequestError, match="previous_response_id is"):
            client.responses.create(**ask, input="Then?", previous_response_id=second.id)


def test_the_oldest_responses_are_forgotten():
    kept = KeptResponses(max_characters=5000)

    def keep(name, text):
        asked = kept.conversation(ResponseRequest(input="a"))
        kept.keep({"id": name, "output": [{"id": f"{name} item", **said(text)}]}, asked)

    def follows(name):
        try:
            return len(kept.conversation(ResponseRequest(input="b", previous_response_id=name)))
        except ApiError:
            with pytest.raises(ApiError):
                kept.conversation(ResponseRequest(input=[{"type": "item_reference", "id": f"{name} item"}]))
            return None

    for name in "abcd":
        keep(name, "t" * 1000)
    assert [follows(name) for name in "abcd"] == [None, 3, 3, 3]
    keep("e", "t" * 6000)
    assert [follows(name) for name in "abcde"] == [None] * 5 and kept._size == 0 and not kept._items


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_retrieved_and_deleted(server, client, stream):
    server.say(["Upon a time."], ASK)
    ask = {"model": MODEL, "input": QUESTION, "temperature": 0, "metadata": {"for": "me"}}
    first = [*client.responses.create(**ask, stream=True)][-1].response if stream else client.responses.create(**ask)
    assert client.responses.retrieve(first.id) == first
    with pytest.raises(openai.BadRequestError, match="stream is true; expected false"):
        client.responses.retrieve(first.id, stream=True)
    again = {"model": MODEL, "input": "And?", "previous_response_id": first.id, "max_output_tokens": 3}
    second = client.responses.create(**again)
    client.responses.delete(first.id)
    for call in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match=r"response_id is .*; expected that of a response"):
            call(first.id)
    with pytest.raises(openai.BadRequestError, match="previous_response_id is"):
        client.responses.create(**again)
    assert client.responses.retrieve(second.id) == second  # the conversation that follows it goes on
    client.responses.create(**{**again, "previous_response_id": second.id})


def test_a_response_that_was_not_stored_is_not_found(server, client):
    server.say(["Upon."], ASK)
    response = client.responses.create(model=MODEL, input=QUESTION, temperature=0, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


class Animal(pydantic.BaseModel):
    kind: str = pydantic.Field(pattern="^(cat|dog)$")
    age: int = pydantic.Field(ge=0, le=30)


def test_parsed_answers(client):
    response = client.responses.parse(model=MODEL, input="Which animal?", text_format=Animal, max_output_tokens=300)
    assert response.output_parsed.kind in ("cat", "dog") and response.text.format.type == "json_schema"
    tool = openai.pydantic_function_tool(Animal)["function"]
    response = client.responses.parse(
        model=MODEL, input="Which?", tools=[{"type": "function", **tool}], tool_choice={"type": "function", "name": "Animal"},
        max_output_tokens=400,
    )  # fmt: skip
    assert Animal.model_validate(response.output[0].parsed_arguments)
    named = client.responses.create(
        model=MODEL, input="Any?", text={"format": {"type": "json_object"}}, max_output_tokens=3
    )
    assert named.output_text.startswith("{")


def test_an_answer_that_is_cut(client, http):
    body = {"input": "Go on", "max_output_tokens": 5}
    response = Response.model_validate(http.post("/v1/responses", json=body).json())
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.usage.output_tokens == 5 and response.output[-1].status == "incomplete"
    assert events_of(http, **body)[-1]["type"] == "response.incomplete"


def test_an_answer_that_fails(server, client, http):
    def fail():
        raise RuntimeError("secret detail")

    server.model.before_step = fail
    with pytest.raises(openai.InternalServerError, match="this answer failed"):
        client.responses.create(model=MODEL, input=QUESTION)
    last = events_of(http, input=QUESTION)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {
        "code": "server_error",
        "message": "this answer failed; the server's log says why",
    }


def test_leaving_a_stream_ends_the_request(server, client):
    stream = client.responses.create(model=MODEL, input="Go on", max_output_tokens=900, stream=True)
    next(event for event in stream if event.type == "response.output_text.delta")
    stream.close()  # the fixture waits until no request is open


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        (
            {"previous_response_id": "resp_1"},
            "previous_response_id",
            "expected the id of a response that this server still keeps",
        ),
        ({"conversation": "conv_1"}, "conversation", "this is not served"),
        ({"background": True}, "background", "this is not served; expected false"),
        ({"background": 0}, "background", "valid boolean"),
        ({"truncation": "auto"}, "truncation", "'disabled'"),
        ({"input": []}, "input", "at least 1"),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            "input.0.id",
            "expected the id of an item that this server still keeps",
        ),
        ({"input": [{"type": "shell_call"}]}, "input.0", "this type of item is not served; expected message"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type", "'input_text'"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input.0.call_id", "required"),
        (
            {"input": [{"role": "assistant", "content": "a"}]},
            "input",
            "expected the last message to be a user's or a tool's",
        ),
        ({"tools": [{"type": "function"}]}, "tools.0.name", "required"),
        ({"tool_choice": "required"}, "tool_choice", "expected a function in tools"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "expected schema with it"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": 5}}}}, "text.format", "cannot be compiled"),
        ({"include": ["message.output_text.logprobs"]}, "include.0", "reasoning.encrypted_content"),
        ({"model": "other"}, "model", "expected 'stand-in'"),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater"),
        ({"messages": ASK}, "messages", "not known here"),
        ({"input": "word " * 9000}, None, "maximum context length is 4096"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_refused(client, fields, param, message):
    with pytest.raises(openai.APIStatusError) as refused:
        client.post("/responses", body={"input": QUESTION, **fields}, cast_to=object)
    error = refused.value
    assert error.status_code == (404 if param == "model" else 400) and error.param == param
    assert any(part in error.body["message"] for part in message.split("|")) and "\n" not in error.body["message"]
