"""Structured outputs, forced calls and vLLM's and DeepSeek's fields, over HTTP. The model follows a script or generates noise."""

import json
import re

import httpx
import jsonschema_rs
import openai
import pydantic
import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.server.api.fields import sampling_params
from deepseek_v32.inference.server.api.protocol import ChatRequest
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.text.tokenizer import END_THINK, Special
from support.server import MODEL, serving, stand_in_llm
from support.tiny import tiny_checkpoint

ASK = [{"role": "user", "content": "Hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 30}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}
FUNCTION = {"name": "adopt", "strict": True, "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}, {"type": "function", "function": {**FUNCTION, "name": "sell"}}]
LIMITS = {"max_model_len": 4096, "page_count": 128}  # the description of functions is long


class Animal(pydantic.BaseModel):
    kind: str = pydantic.Field(pattern="^(cat|dog)$")
    age: int = pydantic.Field(ge=0, le=30)


def answer(http, **fields):
    response = http.post("/v1/chat/completions", json={"messages": ASK, "max_tokens": 200, "seed": 1, **fields})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def is_animal(text):
    return jsonschema_rs.is_valid(SCHEMA, json.loads(text))


FORMS = {
    "json_schema": ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}, is_animal),
    "guided_json": ({"guided_json": SCHEMA}, is_animal),
    "guided_json-text": ({"guided_json": json.dumps(SCHEMA)}, is_animal),
    "guided_regex": ({"guided_regex": "[a-c]{4}"}, re.compile("[a-c]{4}").fullmatch),
    "guided_choice": ({"guided_choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
    "guided_grammar": ({"guided_grammar": 'root ::= "a" [0-9]'}, re.compile("a[0-9]").fullmatch),
    "json": ({"structured_outputs": {"json": SCHEMA}}, is_animal),
    "regex": ({"structured_outputs": {"regex": "[a-c]{4}"}}, re.compile("[a-c]{4}").fullmatch),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "holds"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("thinking", [False, True], ids=["", "thinking"])
def test_answers_have_the_form_that_is_asked_for(server, http, fields, holds, thinking):
    schema = SCHEMA if "response_format" in fields else None
    if thinking:
        messages = [{"role": "system", "content": "", "response_format": schema}, *ASK]
        server.say(["Hm.", Special(END_THINK), "no"], messages, thinking=True)
        fields = {**fields, "thinking": {"type": "enabled"}}
    choice = answer(http, **fields)
    assert choice["finish_reason"] == "stop" and holds(choice["message"]["content"])
    assert choice["message"].get("reasoning_content") == ("Hm." if thinking else None)
    if not thinking:
        text = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 200, "seed": 2, **fields}).json()
        assert holds(text["choices"][0]["text"])


def test_a_form_in_a_stream(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=200, stream=True, response_format={"type": "json_object"}, seed=4,
        logit_bias={}, extra_body={"guided_json": None},
    )  # fmt: skip
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream).startswith("{")


def test_parse(client):
    """The model is shown the schema, in the chat format's own words."""
    parsed = client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Animal, max_tokens=200, seed=3)
    animal = parsed.choices[0].message.parsed
    assert isinstance(animal, Animal)
    plain = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=1)
    assert parsed.usage.prompt_tokens > plain.usage.prompt_tokens + 50


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "sell"}}], ids=["required", "named"]
)
def test_noise_becomes_calls_that_keep_their_schemas(http, choice):
    message = answer(http, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)["message"]
    [call] = message["tool_calls"]
    assert message["content"] is None and is_animal(call["function"]["arguments"])
    assert call["function"]["name"] == "sell" or choice == "required"


TEXT = {"type": "string"}
PARAMETERS = {  # schemas of texts that say more than one thing
    "length and pattern": {**TEXT, "pattern": "^[ab]+$", "minLength": 2, "maxLength": 3},
    "length next to a reference": {"$ref": "#/$defs/text", "maxLength": 2},
    "type next to a reference": {**TEXT, "$ref": "#/$defs/word"},
    "enumeration next to a reference": {"$ref": "#/$defs/text", "enum": ["a", "bc"]},
    "type next to choices": {**TEXT, "anyOf": [{"const": "a"}, {"const": "bc"}]},
    "length next to choices": {"anyOf": [TEXT, {"type": "null"}], "maxLength": 1},
    "choices and all": {"anyOf": [TEXT, {"type": "integer"}], "allOf": [{"enum": ["a", 5]}]},
    "enumeration of another type": {"type": "integer", "enum": ["a", 5]},
    "enumeration of two types": {"type": ["integer", "null"], "enum": ["a", 5, None]},
    "enumeration and length": {**TEXT, "enum": ["a", "bcd"], "minLength": 2},
    "enumeration and pattern": {"enum": ["a", "bcd"], "pattern": "^b"},
    "a dollar at the end": {**TEXT, "pattern": "^a{1,2}\\$$"},
}


@pytest.mark.parametrize("schema", PARAMETERS.values(), ids=PARAMETERS)
def test_all_that_a_schema_says_about_a_text_is_kept(http, schema):
    """As another validator reads it. Annotations change nothing."""
    own = {"text": TEXT, "word": {"enum": ["a", "bc"]}}
    parameters = {
        "type": "object",
        "properties": {"k": schema},
        "required": ["k"],
        "additionalProperties": False,
        "$defs": own,
    }
    functions = [{"name": "f", "parameters": parameters}]
    functions += [
        {"name": "f", "strict": True, "parameters": {**parameters, "properties": {"k": {**schema, "title": "K"}}}}
    ]
    for function in functions:
        for seed in range(3):
            tools = [{"type": "function", "function": function}]
            fields = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False, "seed": seed}
            [call] = answer(http, **fields)["message"]["tool_calls"]
            assert jsonschema_rs.is_valid(parameters, json.loads(call["function"]["arguments"])), call


@pytest.mark.parametrize("strict", [True, False])
def test_a_strict_function_keeps_its_schema_where_the_model_chooses_to_call(server, http, strict):
    tools = [{"type": "function", "function": {**FUNCTION, "strict": strict}}]
    mark = Special("｜DSML｜")
    call = ["I <3 it.\n\n<", mark, "function_calls>\n<", mark, 'invoke name="adopt">\n<', mark]
    call += ['parameter name="kind" string="true">cow</', mark, "parameter>\n"]
    server.say(call, ASK, tools=tools)
    choice = answer(http, tools=tools, temperature=0)
    assert choice["message"]["content"] == "I <3 it."
    arguments = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"kind": "cow"} if not strict else is_animal(json.dumps(arguments))


def test_tools_and_a_form_give_one_of_both(http):
    kinds = set()
    for seed in range(6):
        choice = answer(
            http,
            tools=TOOLS,
            response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}},
            seed=seed,
            parallel_tool_calls=False,
        )
        calls = choice["message"].get("tool_calls", [])
        texts = [call["function"]["arguments"] for call in calls] or [choice["message"]["content"]]
        assert choice["finish_reason"] != "length" and all(map(is_animal, texts))
        kinds.add(bool(calls))
    assert kinds


BAD = {"type": "objectt"}
BAD_SCHEMA = {"type": "json_schema", "json_schema": {"schema": BAD}}
MALFORMED = {
    "two": ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "expected one in all"),
    "none": ({"structured_outputs": {}}, "expected one of"),
    "regex": ({"guided_regex": "a(b"}, "cannot be compiled"),
    "schema": ({"guided_json": {"type": "objectt"}}, "cannot be compiled"),
    "grammar": ({"guided_grammar": "start: b"}, "cannot be compiled"),
    "grammar without a text": ({"guided_grammar": 'start: a\na: a "x"'}, "guided_grammar cannot be compiled"),
    "grammar with a dead end": ({"guided_grammar": 'start: "a" b\nb: "x" b'}, "guided_grammar cannot be compiled"),
    "regex too large": ({"guided_regex": "(a{1000}){1000}"}, "guided_regex cannot be compiled: lexer error: too many"),
    "regex without a text": ({"guided_regex": "a[^\\s\\S]"}, "guided_regex cannot be compiled"),
    "response_format": ({"response_format": BAD_SCHEMA}, "response_format cannot be compiled"),
    "min_tokens": ({"min_tokens": 9, "max_tokens": 3}, "min_tokens is 9"),
    "prompt_logprobs": ({"prompt_logprobs": 1, "stream": True}, "null with stream"),
}


@pytest.mark.parametrize(("fields", "message"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_is_a_400_in_one_line(http, fields, message):
    for path, ask in (("/v1/chat/completions", {"messages": ASK}), ("/v1/completions", {"prompt": "a"})):
        refused = http.post(path, json={**ask, **fields})
        text = refused.json()["error"]["message"]
        assert refused.status_code == 400 and message in text and "\n" not in text


FIELDS = {
    "response_format": {"response_format": BAD_SCHEMA},
    "guided_json": {"guided_json": BAD},
    "structured_outputs": {"structured_outputs": {"json": BAD}},
    "tools.0.function.parameters": {
        "tools": [{"type": "function", "function": {"name": "a", "parameters": {"properties": {"a": BAD}}}}],
        "tool_choice": "required",
    },
}


@pytest.mark.parametrize(("name", "fields"), FIELDS.items(), ids=FIELDS)
def test_a_schema_that_cannot_be_compiled_is_named_by_the_field_that_holds_it(http, name, fields):
    error = http.post("/v1/chat/completions", json={"messages": ASK, **fields}).json()["error"]
    assert error["param"] == name and error["message"].startswith(name) and "cannot be compiled" in error["message"]


def test_fields_that_change_no_text_are_accepted(http):
    ignored = {
        "user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "auto", "safety_identifier": "s",
        "prompt_cache_key": "k", "modalities": ["text"], "prediction": {"type": "content", "content": "x"}, "verbosity": "medium",
    }  # fmt: skip
    assert answer(http, **ignored) == answer(http)


@pytest.mark.parametrize("stream", [False, True])
def test_a_verbosity_that_is_not_served_is_told(http, stream, caplog):
    """OpenAI's values are taken; a header and the log tell that only medium is served."""
    for each in ("low", "medium", "high"):
        caplog.clear()
        body = {"messages": ASK, "max_tokens": 3, "stream": stream, "verbosity": each}
        response = http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200
        told = f"verbosity {each}" in caplog.text
        assert (f"verbosity {each}" in response.headers.get("warning", "")) == told == (each != "medium")


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({"thinking": {"type": "enabled"}}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, True),
        ({"reasoning_effort": "high"}, True),
    ],
    ids=str,
)
def test_thinking_is_asked_for_as_deepseek_and_openai_spell_it(server, http, fields, thinks):
    server.say(["a", *([Special(END_THINK), "b"] if thinks else [])], ASK, thinking=thinks)
    message = answer(http, **fields, temperature=0)["message"]
    assert (message.get("reasoning_content"), message["content"]) == (("a", "b") if thinks else (None, "a"))


def test_logit_bias_and_min_tokens(server, http):
    [token] = server.llm.tokenizer.encode("q")[:1]
    assert set(answer(http, logit_bias={str(token): 100}, temperature=0, max_tokens=5)["message"]["content"]) == {"q"}
    server.say([], ASK)
    assert answer(http, temperature=0)["message"]["content"] == ""
    long = http.post(
        "/v1/chat/completions", json={"messages": ASK, "temperature": 0, "min_tokens": 7, "max_tokens": 7}
    ).json()
    assert long["usage"]["completion_tokens"] == 7


def test_prompt_logprobs(server, http):
    tokens = server.llm.tokenizer.encode("The quick fox")
    body = {"prompt": tokens, "max_tokens": 2, "temperature": 0}
    choice = http.post("/v1/completions", json={**body, "prompt_logprobs": 3}).json()["choices"][0]
    echoed = http.post("/v1/completions", json={**body, "echo": True, "logprobs": 3}).json()["choices"][0]["logprobs"]
    first, *rest = choice["prompt_logprobs"]
    assert first is None and len(rest) == len(tokens) - 1
    for entry, token, logprob in zip(rest, tokens[1:], echoed["token_logprobs"][1:], strict=False):
        assert entry[str(token)]["logprob"] == pytest.approx(logprob) and 3 <= len(entry) <= 4
        assert entry[str(token)]["decoded_token"] == server.llm.tokenizer.decode([token])
        assert {1, 2, 3} <= {each["rank"] for each in entry.values()}
    chat = http.post("/v1/chat/completions", json={"messages": ASK, "max_tokens": 1, "prompt_logprobs": 0}).json()
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]


@pytest.mark.parametrize("how", ["prefix", "continue_final_message"])
def test_an_answer_is_continued(server, http, how):
    begun = {"role": "assistant", "content": "The quick"}
    prompt = [*server.llm.chat_token_ids(ASK), *server.llm.tokenizer.encode(begun["content"])]
    server.model.say(server.llm.tokenizer.encode(" brown fox"), len(prompt))
    fields = {"continue_final_message": True} if how != "prefix" else {}
    begun |= {"prefix": True} if how == "prefix" else {}
    response = http.post("/v1/chat/completions", json={"messages": [*ASK, begun], "temperature": 0, **fields}).json()
    assert response["choices"][0]["message"]["content"] == " brown fox"
    assert response["usage"]["prompt_tokens"] == len(prompt)
    # A turn with only reasoning is continued inside the reasoning. With content, the reasoning has ended.
    thinking = {**begun, "content": "", "reasoning_content": "Let me"}
    prompt = [*server.llm.chat_token_ids(ASK, thinking=True), *server.llm.tokenizer.encode("Let me")]
    server.model.say(server.llm.tokenizer.encode_pieces([" see", Special(END_THINK), "Yes"]), len(prompt))
    ask = {"messages": [*ASK, thinking], "temperature": 0, "thinking": {"type": "enabled"}, **fields}
    message = http.post("/v1/chat/completions", json=ask).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (" see", "Yes")
    refused = http.post("/v1/chat/completions", json={"messages": [*ASK, {**ASK[0], "prefix": True}]})
    assert refused.status_code == 400 and "to be continued" in refused.json()["error"]["message"]


def test_add_generation_prompt_agrees_with_whether_an_answer_is_continued(http):
    """add_generation_prompt must be false with continue_final_message, as vLLM's clients send it: its default is true."""
    begun = [*ASK, {"role": "assistant", "content": "The quick"}]

    def status(messages, **fields):
        answer = http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1, **fields})
        assert answer.status_code == 200 or answer.json()["error"]["param"] == "add_generation_prompt"
        return answer.status_code

    assert status(begun, continue_final_message=True, add_generation_prompt=False) == 200
    assert status(begun, continue_final_message=True, add_generation_prompt=True) == 400
    assert status(ASK, add_generation_prompt=True) == 200
    assert status(ASK, add_generation_prompt=False) == 400


def test_names_origins_probes_and_version():
    names = {"model_name": "first", "aliases": ["second"]}
    with serving(Service(stand_in_llm()), **names, origins=["https://a.example"], api_key="a long key") as server:
        key, site = {"authorization": "Bearer a long key"}, {"origin": "https://a.example"}
        with httpx.Client(base_url=server.url) as http:
            assert [http.get(path).status_code for path in ("/health", "/ready", "/version", "/metrics")] == [
                200,
                200,
                401,
                401,
            ]
            assert re.match(r"\d+\.\d+", http.get("/version", headers=key).json()["version"])
            assert [card["id"] for card in http.get("/v1/models", headers=key).json()["data"]] == ["first", "second"]
            for name, status in (("first", 200), ("second", 200), ("third", 404)):
                body = {"model": name, "messages": ASK, "max_tokens": 1}
                response = http.post("/v1/chat/completions", json=body, headers={**key, **site})
                assert response.status_code == status
                assert status == 200 or "expected 'first' or 'second'" in response.json()["error"]["message"]
                assert response.headers["access-control-allow-origin"] == "https://a.example"
                assert "Retry-After" in response.headers["access-control-expose-headers"]
            ask = {**site, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
            allowed = http.options("/v1/chat/completions", headers=ask)
            assert allowed.status_code == 200 and "POST" in allowed.headers["access-control-allow-methods"]
            other = {"origin": "https://b.example"}
            assert http.post("/v1/completions", json={"prompt": "a"}, headers={**key, **other}).status_code == 403
            assert http.options("/v1/chat/completions", headers={**ask, **other}).status_code == 400


def test_unknown_fields_are_named(client):
    with pytest.raises(openai.BadRequestError, match="temprature, top_q: not known") as refused:
        client.chat.completions.create(model=MODEL, messages=ASK, extra_body={"temprature": 1, "top_q": 2})
    assert refused.value.param == "temprature"


def test_generation_config_sets_the_defaults(tmp_path):
    """generation_config sets defaults, as in vLLM; the request's own values win."""
    model = tiny_checkpoint(tmp_path)
    (model / "generation_config.json").write_text('{"temperature": 0.6, "top_p": 0.95, "do_sample": true}')
    llm = LLM(model, device="cpu", max_model_len=128)
    assert llm.default_params == SamplingParams(temperature=0.6, top_p=0.95)
    for fields, expected in (({}, (0.6, 0.95)), ({"top_p": 1}, (0.6, 1)), ({"temperature": None}, (0.6, 0.95))):
        params = sampling_params(ChatRequest(messages=ASK, **fields), 9, None, llm.default_params)
        assert (params.temperature, params.top_p, params.max_tokens) == (*expected, 9)
    (model / "generation_config.json").write_text(
        '{"do_sample": false, "temperature": 0.6, "max_new_tokens": 5, "min_p": 0.1}'
    )
    llm = LLM(model, device="cpu", max_model_len=512)
    assert llm.default_params == SamplingParams(temperature=0, max_tokens=5, min_p=0.1)
    with serving(Service(llm)) as server, httpx.Client(base_url=server.url) as http:
        for fields, expected in (({}, 5), ({"max_tokens": 7}, 7), ({"max_completion_tokens": 3}, 3)):
            body = {"messages": ASK, "ignore_eos": True, **fields}
            first, second = (http.post("/v1/chat/completions", json=body).json() for _ in range(2))
            assert first["usage"]["completion_tokens"] == expected and first["choices"] == second["choices"]
        text = http.post("/v1/completions", json={"prompt": [5], "ignore_eos": True}).json()
        assert text["usage"]["completion_tokens"] == 5
