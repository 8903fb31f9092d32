"""The server, used through OpenAI's own client."""

import asyncio
import json

import openai
import pytest

from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.text.tokenizer import END_THINK, Special
from support.server import MODEL, serving, stand_in_llm
from support.weather import ASK, CALL
from support.weather import CHAT_TOOLS as TOOLS

LIMITS = {"max_model_len": 4096, "page_count": 128}  # a round of calls fits


def joined(chunks, field):
    """A field of the first choice's deltas, joined."""
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    return "".join(getattr(delta, field, None) or "" for delta in deltas)


def test_models(client):
    [model] = client.models.list().data
    assert (model.id, model.object) == (MODEL, "model")
    assert client.models.retrieve(MODEL).id == MODEL


def test_chat(server, client):
    server.say(["Attention to a few tokens. 稀疏 🙂"], ASK)
    answer = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Attention to a few tokens. 稀疏 🙂", "stop")
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion" and answer.model == MODEL
    assert answer.usage.prompt_tokens == len(server.llm.chat_token_ids(ASK))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id.startswith("req_")


def test_chat_stream(server, client):
    server.say(["Attention to a few tokens. 稀疏 🙂"], ASK)
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert joined(chunks, "content") == "Attention to a few tokens. 稀疏 🙂"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.id for chunk in chunks} == {chunks[0].id} and chunks[0].object == "chat.completion.chunk"
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 5
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("kwargs", [{"thinking": True}, {"enable_thinking": True}], ids=str)
def test_thinking(server, client, kwargs):
    server.say(["Hm, sparse…", Special(END_THINK), "It is faster."], ASK, thinking=True)
    ask = {"model": MODEL, "messages": ASK, "temperature": 0, "extra_body": {"chat_template_kwargs": kwargs}}
    message = client.chat.completions.create(**ask).choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm, sparse…", "It is faster.")
    chunks = list(client.chat.completions.create(**ask, stream=True))
    assert joined(chunks, "reasoning_content") == "Hm, sparse…"
    assert joined(chunks, "content") == "It is faster."


def test_without_thinking_there_is_no_reasoning(server, client):
    server.say(["Yes."], ASK)
    message = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0).choices[0].message
    assert not hasattr(message, "reasoning_content")


def test_tools(server, client):
    server.say(CALL, ASK, tools=TOOLS)
    [choice] = client.chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS, temperature=0).choices
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me look."
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Köln", "days": 3}
    answered = [
        *ASK,
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    plain = [*ASK, {"role": "assistant", "content": "Let me look.", "tool_calls": [call.model_dump()]}, answered[-1]]
    server.say(["It rains."], plain, tools=TOOLS)
    final = client.chat.completions.create(model=MODEL, messages=answered, tools=TOOLS, temperature=0)
    assert final.choices[0].message.content == "It rains."


def test_tools_in_a_stream(server, client):
    server.say(CALL, ASK, tools=TOOLS)
    stream = client.chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS, temperature=0, stream=True)
    chunks = list(stream)
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert {call.index for call in calls} == {0}
    assert [(call.id is not None, call.type, call.function.name) for call in calls] == [
        (True, "function", "get_weather"),
        *[(False, None, None)] * (len(calls) - 1),
    ]
    assert json.loads("".join(call.function.arguments for call in calls)) == {"city": "Köln", "days": 3}
    assert joined(chunks, "content") == "Let me look."
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_tool_choice_none_forbids_calls(server, client, choice):
    """No function is called, even by a model that has called one before and would go on."""
    server.say(CALL, ASK, tools=TOOLS if choice == "auto" else None)
    ask = {"model": MODEL, "messages": ASK, "tools": TOOLS, "temperature": 0, "max_tokens": 60}
    [answer] = client.chat.completions.create(**ask, tool_choice=choice).choices
    assert bool(answer.message.tool_calls) == (choice == "auto")
    assert answer.message.content.startswith("Let me look.") and "DSML" not in answer.message.content


def test_tool_choice_none_hides_the_tools(server, client):
    # The model answers the prompt without tools.
    server.say(["No."], ASK)
    answer = client.chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS, tool_choice="none", temperature=0)
    assert answer.choices[0].message.content == "No."


FORCED = {"required": "required", "named": {"type": "function", "function": {"name": "get_weather"}}}


@pytest.mark.parametrize("choice", FORCED.values(), ids=FORCED)
@pytest.mark.parametrize("thinking", [False, True], ids=["", "thinking"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_can_be_required(server, client, choice, stream, thinking):
    """A model that would talk must call a function; the arguments are free."""
    thought = ["Hm.", Special(END_THINK)] if thinking else []
    server.say([*thought, "Let me l", *CALL[1:]], ASK, tools=TOOLS, thinking=thinking)
    ask = {"model": MODEL, "messages": ASK, "tools": TOOLS, "tool_choice": choice, "temperature": 0, "max_tokens": 300}
    answer = client.chat.completions.create(**ask, stream=stream, reasoning_effort="low" if thinking else "none")
    if stream:
        chunks = list(answer)
        [call, *more] = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
        call.function.arguments += "".join(each.function.arguments for each in more if each.index == 0)
        assert joined(chunks, "content") == "" and joined(chunks, "reasoning_content") == "".join(thought[:1])
    else:
        [call, *more] = answer.choices[0].message.tool_calls
        assert answer.choices[0].message.content is None
    assert call.function.name == "get_weather"
    if choice != "required":
        assert not [each for each in more if each.index]
    assert call.function.arguments.startswith("{")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tool_choice": "required"}, "expected a function in tools, which has none"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}, "tools": TOOLS}, "which has get_weather"),
        ({"tool_choice": "required", "tools": TOOLS, "response_format": {"type": "json_object"}}, "cannot be both"),
        ({"tool_choice": "sometimes", "tools": TOOLS}, "tool_choice"),
    ],
    ids=["no tools", "another function", "json", "another word"],
)
def test_calls_that_cannot_be_required(client, options, message):
    with pytest.raises(openai.BadRequestError, match=message) as error:
        client.chat.completions.create(model=MODEL, messages=ASK, **options)
    assert error.value.param.startswith("tool_choice")


def test_chat_logprobs(server, client):
    server.say(["the fox 🙂"], ASK)
    ask = {"model": MODEL, "messages": ASK, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    answer = client.chat.completions.create(**ask)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert content[0].logprob == pytest.approx(0, abs=1e-3) and len(content[0].top_logprobs) == 3
    assert content[0].top_logprobs[0].token == content[0].token
    assert bytes(content[0].bytes).decode() == content[0].token
    streamed = [
        entry for c in client.chat.completions.create(**ask, stream=True) if c.choices[0].logprobs
        for entry in c.choices[0].logprobs.content
    ]  # fmt: skip
    assert [entry.token for entry in streamed] == [entry.token for entry in content]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_stop(server, client, stream):
    server.say(["The quick brown fox jumps"], ASK)
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, temperature=0, stop=["own f", "never"], stream=stream
    )
    if stream:
        chunks = list(answer)
        assert (joined(chunks, "content"), chunks[-1].choices[0].finish_reason) == ("The quick br", "stop")
    else:
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("The quick br", "stop")


def test_max_tokens_and_seed_and_n(client):
    ask = {"model": MODEL, "messages": ASK, "max_completion_tokens": 12, "n": 3, "temperature": 1.5}
    first = client.chat.completions.create(**ask, seed=7)
    again = client.chat.completions.create(**ask, seed=7)
    other = client.chat.completions.create(**ask, seed=-8)
    texts = [[choice.message.content for choice in answer.choices] for answer in (first, again, other)]
    assert texts[0] == texts[1] != texts[2] and len(set(texts[0])) == 3
    assert [choice.finish_reason for choice in first.choices] == ["length"] * 3
    assert first.usage.completion_tokens == 36
    streamed = {0: "", 1: "", 2: ""}
    for chunk in client.chat.completions.create(**ask, seed=7, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert list(streamed.values()) == texts[0]


def test_completion(server, client):
    prompt = "The quick"
    tokens = server.llm.tokenizer.encode(prompt)
    server.model.say(server.llm.tokenizer.encode(" brown fox"), len(tokens))
    answer = client.completions.create(model=MODEL, prompt=prompt, temperature=0)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (" brown fox", "stop")
    assert answer.id.startswith("cmpl-") and answer.usage.prompt_tokens == len(tokens)
    by_ids = client.completions.create(model=MODEL, prompt=tokens, temperature=0, echo=True)
    assert by_ids.choices[0].text == "The quick brown fox"
    streamed = client.completions.create(model=MODEL, prompt=prompt, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == " brown fox"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_several_prompts(client, stream):
    prompts = ["The quick", [5, 6, 7]]
    one_by_one = [
        choice.text
        for prompt in prompts
        for choice in client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, seed=1, n=2).choices
    ]
    tokens = client.post("/../tokenize", body={"prompt": "The quick"}, cast_to=dict[str, object])["tokens"]
    together = client.completions.create(
        model=MODEL, prompt=[tokens, [5, 6, 7]], max_tokens=4, seed=1, n=2, stream=stream
    )
    texts = ["", "", "", ""]
    for choice in [choice for part in (together if stream else [together]) for choice in part.choices]:
        texts[choice.index] += choice.text
    assert texts == one_by_one


def test_completion_logprobs_with_echo(server, client):
    prompt = "quick 🙂 fox"
    tokens = server.llm.tokenizer.encode(prompt)
    answer = client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=3, temperature=0, logprobs=2, echo=True
    ).choices[0]
    logprobs = answer.logprobs
    count = len(tokens) + 3
    assert [len(getattr(logprobs, name)) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [
        count
    ] * 4
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    assert all(value < 0 for value in logprobs.token_logprobs[1:])
    assert all(2 <= len(top) <= 3 for top in logprobs.top_logprobs[1:])
    for token, value, top in list(zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True))[
        -3:
    ]:
        assert top.get(token, max(top.values())) == max(top.values()) == value  # greedy
    for offset, token in zip(logprobs.text_offset, logprobs.tokens, strict=True):
        if "\N{REPLACEMENT CHARACTER}" not in token:
            assert answer.text[offset:].startswith(token)
    assert answer.text.startswith(prompt)
    only_prompt = client.completions.create(model=MODEL, prompt=prompt, max_tokens=0, logprobs=2, echo=True).choices[0]
    assert only_prompt.text == prompt and len(only_prompt.logprobs.tokens) == len(tokens)
    assert only_prompt.logprobs.token_logprobs == logprobs.token_logprobs[: len(tokens)]


def test_errors(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4", messages=ASK)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="temperature") as range_error:
        client.chat.completions.create(model=MODEL, messages=ASK, temperature=-1)
    assert range_error.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError, match="maximum context length is") as too_long:
        client.completions.create(model=MODEL, prompt=[1] * 5000)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="expected the last message to be a user's"):
        client.chat.completions.create(model=MODEL, messages=[*ASK, {"role": "assistant", "content": "x"}])
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        client.chat.completions.create(model=MODEL, messages=ASK, logit_bias={"5000": 100})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_failing_step_is_an_error_of_its_request(server, client, stream, caplog):
    calls = iter([None, None, RuntimeError("secret detail")])

    def fail_later():
        if error := next(calls, None):
            raise error

    server.model.before_step = fail_later
    with pytest.raises(openai.APIError) as failure:
        list(client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=9, stream=stream))
    assert "secret detail" not in str(failure.value.body) and "Traceback" not in str(failure.value.body)
    assert "secret detail" in caplog.text
    assert client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=2).choices


def test_the_async_client_and_many_at_once(server, client):
    async def main():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as many:

            async def one(seed):
                stream = await many.completions.create(
                    model=MODEL, prompt="The quick", max_tokens=20, seed=seed, stream=True
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*map(one, range(16)))

    texts = asyncio.run(main())
    expected = [
        client.completions.create(model=MODEL, prompt="The quick", max_tokens=20, seed=seed).choices[0].text
        for seed in range(16)
    ]
    assert texts == expected


def test_the_api_key():
    with serving(Service(stand_in_llm()), api_key="a-long-secret") as server:
        ask = {"model": MODEL, "messages": ASK, "max_tokens": 1}
        for key in ("wrong", "a-long-secre", "a-long-secret!"):
            with pytest.raises(openai.AuthenticationError):
                openai.OpenAI(base_url=f"{server.url}/v1", api_key=key).chat.completions.create(**ask)
        good = openai.OpenAI(base_url=f"{server.url}/v1", api_key="a-long-secret")
        assert good.chat.completions.create(**ask).choices


@pytest.mark.parametrize("thinking", [False, True])
def test_reasoning_tokens(server, client, thinking):
    pieces = ["Hm, sparse…", Special(END_THINK), "Faster."] if thinking else ["Faster."]
    server.say(pieces, ASK, thinking=thinking)
    expected = len(server.llm.tokenizer.encode_pieces(pieces[:2])) if thinking else 0
    ask = {
        "model": MODEL,
        "messages": ASK,
        "temperature": 0,
        "extra_body": {"chat_template_kwargs": {"thinking": thinking}},
    }
    whole = client.chat.completions.create(**ask)
    *_, last = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    cut = client.chat.completions.create(**ask, max_tokens=2)  # in its reasoning
    for answer, count in ((whole, expected), (last, expected), (cut, 2 if thinking else 0)):
        assert answer.usage.completion_tokens_details.reasoning_tokens == count
