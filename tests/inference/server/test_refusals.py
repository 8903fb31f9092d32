"""Requests that are refused: in one line, by the client's own name of what is wrong, before anything is queued."""

import json

import jsonschema_rs
import pytest

from deepseek_v32.inference.params import MAX_SEED
from deepseek_v32.inference.server.api.protocol import FUNCTION_NAME

ASK = [{"role": "user", "content": "Hi"}]
CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
LIMITS = {"max_model_len": 4096, "page_count": 128}  # the description of functions is long


def refusal(http, path, body):
    """(field, message) of a refusal."""
    content = body if isinstance(body, str) else json.dumps(body)
    response = http.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert "\n" not in error["message"] and ".py" not in error["message"]
    return error["param"], error["message"]


USER = '[{"role": "user", "content": "Hi"}]'
FUNCTION = '{"type": "function", "function": {"name": "f", "parameters": {"a": [0, %s]}}}'
TOOLS = f'{{"messages": {USER}, "tools": [{FUNCTION}]}}'
PLACES = {  # the value's name, and a body with a place for it
    CHAT: {
        "metadata.a": '{"messages": [{"role": "user", "content": "Hi"}], "metadata": {"a": %s}}',
        "messages.0.content": '{"messages": [{"role": "user", "content": %s}]}',
        "messages.0.unknown": '{"messages": [{"role": "user", "content": "Hi", "unknown": %s}]}',
        "tools.0.function.parameters.a.1": TOOLS,
        "unknown": '{"messages": [{"role": "user", "content": "Hi"}], "unknown": %s}',
        "logit_bias.5": '{"messages": [{"role": "user", "content": "Hi"}], "logit_bias": {"5": %s}}',
    },
    TEXT: {
        "prompt": '{"prompt": %s}',
        "prompt.1": '{"prompt": [5, %s]}',
        "guided_json.const": '{"prompt": "a", "guided_json": {"const": %s}}',
        "seed": '{"prompt": "a", "seed": %s}',
    },
    RESPONSES: {
        "metadata.a.0.b": '{"input": "a", "metadata": {"a": [{"b": %s}]}}',
        "input.0.id": '{"input": [{"role": "user", "content": "a", "id": %s}]}',
    },
    "/tokenize": {"tools.0.function.parameters.a.1": TOOLS},
    "/detokenize": {"tokens.1": '{"tokens": [5, %s]}'},
}  # fmt: skip
UNWRITABLE = ['"\\ud83d"', '"a\\udc00b"', "1e999", "-1e999", "NaN", "Infinity", "1" + "0" * 400]


@pytest.mark.parametrize("value", UNWRITABLE, ids=[value[:12] for value in UNWRITABLE])
def test_what_cannot_be_written_back(server, http, value):
    """Values that json.dumps, or a client in another language, could not write or read again."""
    before = server.service.stats().engine.prompt_tokens
    for path, places in PLACES.items():
        for name, body in places.items():
            param, message = refusal(http, path, body % value)
            assert param == name and message.startswith(f"{name} ") and "; expected " in message
    assert server.service.stats().engine.prompt_tokens == before


def test_names_that_cannot_be_written_back(http):
    for place, name in (('"\\ud83d": 1', "\\ud83d"), ('"metadata": {"\\udc00": 1}', "metadata.\\udc00")):
        assert refusal(http, TEXT, f'{{"prompt": "a", {place}}}')[0] == name


ENDLESS = {
    "itself": {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}},
    "the whole": {"$ref": "#"},
    "the whole by nothing": {"$ref": ""},
    "the whole by name": {"$id": "https://example.com/a", "$ref": "https://example.com/a#"},
    "two": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    "anchor": {"$anchor": "a", "$ref": "#a"},
    "anchor of a part": {"$ref": "#n", "$defs": {"n": {"$anchor": "n", "allOf": [{"$ref": "#n"}]}}},
    "anchor of an object": {
        "$ref": "#n",
        "$defs": {"n": {"$anchor": "n", "type": "object", "properties": {"a": {"$ref": "#n"}}, "required": ["a"]}},
    },
    "name of a part": {"$ref": "n", "$defs": {"n": {"$id": "n", "anyOf": [{"$ref": "n"}, {"$ref": "#"}]}}},
    "name relative to the whole": {
        "$id": "https://example.com/a", "$ref": "b", "$defs": {"b": {"$id": "b", "$ref": "https://example.com/b#"}}
    },
    "choices": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "all": {"allOf": [{"$ref": "#"}]},
    "required": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "array": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "tuple": {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
}  # fmt: skip


GOOD = [{"type": "function", "function": {"name": "good", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("schema", ENDLESS.values(), ids=ENDLESS)
def test_schemas_without_an_end(http, schema):
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    for path, body, name in (
        (CHAT, {"messages": ASK, "response_format": wanted}, "response_format"),
        (CHAT, {"messages": ASK, "response_format": wanted, "tools": GOOD}, "response_format"),
        (TEXT, {"prompt": "a", "guided_json": schema}, "guided_json"),
        (TEXT, {"prompt": "a", "guided_json": json.dumps(schema)}, "guided_json"),
        (RESPONSES, {"input": "a", "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}, "text.format"),
    ):  # fmt: skip
        param, message = refusal(http, path, body)
        assert param == name and "refers to itself without an end; expected" in message
    if schema.keys().isdisjoint(("$defs", "$id")):  # a part of a function's schema, which the others are not
        schema = {"type": "object", "properties": {"a": {"anyOf": [schema]}}, "required": ["a"]}
    tool = {"name": "f", "parameters": {**schema, "type": "object"}}
    body = {"messages": ASK, "tools": [{"type": "function", "function": tool}], "tool_choice": "required"}
    assert refusal(http, CHAT, body)[0] == "tools.0.function.parameters"


NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
REFERENCES = {
    "recursive": {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
    "into an array": {
        "$defs": {"kinds": {"anyOf": [{"enum": ["cat", "dog"]}, {"enum": [1, 2]}]}},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/kinds/anyOf/1"}, "b": {"$ref": "#/$defs/kinds/anyOf/0"}},
        "required": ["a", "b"],
    },
    "into a part's array": {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"enum": [True]}, {"enum": [7]}]},
            "b": {"type": "array", "items": {"$ref": "#/properties/a/anyOf/1"}, "maxItems": 2},
        },
        "required": ["a", "b"],
    },
    "escaped": {
        "$id": "https://example.com/schema",
        "$defs": {"a/b": {"enum": [3]}, "c d": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}, "maxItems": 2}},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/c%20d"}},
        "required": ["a"],
    },
}


@pytest.mark.parametrize("schema", REFERENCES.values(), ids=REFERENCES)
def test_references_lead_where_another_validator_finds_them(http, schema):
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    forced = {"type": "function", "function": {"name": "f"}}
    body = {"messages": ASK, "max_tokens": 300, "tools": tools, "tool_choice": forced, "logit_bias": {}}
    wanted = {"messages": ASK, "max_tokens": 300, "guided_json": schema}
    for seed in range(3):
        [choice] = http.post(CHAT, json={**body, "seed": seed}).json()["choices"]
        [call] = choice["message"]["tool_calls"]
        texts = [call["function"]["arguments"]] if choice["finish_reason"] == "tool_calls" else []
        [choice] = http.post(CHAT, json={**wanted, "seed": seed}).json()["choices"]
        texts += [choice["message"]["content"]] if choice["finish_reason"] == "stop" else []
        assert all(jsonschema_rs.is_valid(schema, json.loads(text)) for text in texts), texts


BAD_PARAMETERS = {
    "unknown type": ({"type": "not-a-type"}, "Invalid type: not-a-type"),
    "unknown type inside": ({"properties": {"a": {"type": ["string", "not-a-type"]}}}, "Invalid type"),
    "array": ({"type": "array"}, "JSON schema of objects"),
    "choices": ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "JSON schema of objects"),
    "constant": ({"const": 5}, "JSON schema of objects"),
    "all": ({"allOf": [{"type": "array"}]}, "JSON schema of objects"),
    "reference": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "JSON schema of objects"),
    "regex": ({"properties": {"a": {"type": "string", "pattern": "a("}}}, "unclosed group"),
    "no schema": ({"properties": {"a": 5}}, "must be an object or boolean"),
    "nowhere": ({"properties": {"a": {"$ref": "#/$defs/zz"}}}, "does not exist"),
    "keyword": ({"properties": {"a": {"type": "string", "minLength": "x"}}}, "minLength"),
}


@pytest.mark.parametrize(("parameters", "reason"), BAD_PARAMETERS.values(), ids=BAD_PARAMETERS)
def test_a_function_that_cannot_be_called_is_named(http, parameters, reason):
    """With a choice of the model only if its parameters are no schema."""
    functions = [{"name": "good", "parameters": {}}, {"name": "bad", "parameters": parameters}]
    tools = [{"type": "function", "function": function} for function in functions]
    named = {"type": "function", "function": {"name": "bad"}}
    strict = [tools[0], {"type": "function", "function": {**functions[1], "strict": True}}]
    for fields in (
        {"tool_choice": "required", "tools": tools},
        {"tool_choice": named, "tools": tools},
        {"tools": strict},
    ):
        param, message = refusal(http, CHAT, {"messages": ASK, **fields})
        assert param == "tools.1.function.parameters" and message.startswith(f"{param} of 'bad' ") and reason in message
    tools = [{"type": "function", **function} for function in functions]
    param, message = refusal(http, RESPONSES, {"input": "a", "tools": tools, "tool_choice": "required"})
    assert param == "tools.1.parameters" and message.startswith(f"{param} of 'bad' ")
    if jsonschema_rs.meta.is_valid(parameters) and parameters.get("type") != "array":
        return
    shaped = [{"type": "function", "function": function} for function in functions]
    custom = [{"name": each["name"], "input_schema": each["parameters"]} for each in functions]
    for path, body, field in (
        (CHAT, {"messages": ASK, "tools": shaped}, "tools.1.function.parameters"),
        (CHAT, {"messages": ASK, "tools": shaped, "tool_choice": "none"}, "tools.1.function.parameters"),
        ("/tokenize", {"messages": ASK, "tools": shaped}, "tools.1.function.parameters"),
        (RESPONSES, {"input": "a", "tools": tools}, "tools.1.parameters"),
        ("/v1/messages", {"messages": ASK, "max_tokens": 1, "tools": custom}, "tools.1.input_schema"),
        ("/v1/messages/count_tokens", {"messages": ASK, "tools": custom}, "tools.1.input_schema"),
    ):
        refused = http.post(path, json=body)
        message = refused.json()["error"]["message"]
        assert refused.status_code == 400 and message.startswith(f"{field} of 'bad' ") and reason in message


ACCEPTED = {
    "nothing": {},
    "true and false": {"properties": {"a": True, "b": False}, "additionalProperties": True},
    "a pattern of another dialect": {"properties": {"a": {"type": "string", "pattern": "^(?!x)y$"}}},
    "unknown keywords": {"type": "object", "nullable": True, "x-order": 1, "properties": {"a": {"format": "uint8"}}},
    "draft 4": {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}, "definitions": {"b": {"id": "c"}}},
    "draft 7": {"properties": {"a": {"items": [{"const": 1}], "additionalItems": False}}, "dependencies": {"a": ["b"]}},
    "keywords as names": {"properties": {"type": {"type": "string"}, "items": {"enum": []}, "properties": {"const": {"type": 5}}}},
    "what no text can be": {"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}},
    "a whole float": {"properties": {"a": {"maxLength": 4.0, "multipleOf": 0.5}}},
    "nowhere": {"properties": {"a": {"$ref": "#/$defs/zz"}}},
    "no URL": {"$id": "http://[", "properties": {"a": {"$ref": "//["}}},
    "itself": {"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": ["object", "null"]},
}  # fmt: skip


@pytest.mark.parametrize("parameters", ACCEPTED.values(), ids=ACCEPTED)
def test_what_json_schema_permits_is_shown_to_a_model_that_may_choose(http, parameters):
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    assert http.post(CHAT, json={"messages": ASK, "max_tokens": 1, "tools": tools}).status_code == 200


NO_SCHEMAS = [
    {"type": "a\n🙂"}, {"properties": {"a\nb": 1}},
    {"type": 5}, {"type": None}, {"type": []}, {"type": ["object", "any"]}, {"type": "Object"}, {"properties": []},
    {"properties": {"a": None}}, {"properties": {"a": {"items": "string"}}}, {"items": [1]}, {"required": "a"},
    {"required": [1]}, {"enum": "a"}, {"anyOf": {}}, {"allOf": [[]]}, {"oneOf": []}, {"prefixItems": {}}, {"not": 1},
    {"additionalProperties": "no"}, {"minItems": -1}, {"maxLength": 1.5}, {"minimum": "1"}, {"pattern": 1}, {"$ref": 1},
    {"$defs": {"a": 1}}, {"multipleOf": 0}, {"uniqueItems": 1}, {"patternProperties": {"a": []}}, {"dependentSchemas": []},
    {"if": {"type": "x"}}, {"definitions": {"a": {"type": "x"}}}, {"dependencies": {"a": 1}}, {"propertyNames": []},
]  # fmt: skip


def test_what_no_draft_takes_for_a_schema_is_none(http):
    drafts = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
    for parameters in NO_SCHEMAS:
        assert not all(jsonschema_rs.meta.is_valid({"$schema": draft, **parameters}) for draft in drafts)
        body = {"messages": ASK, "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]}
        assert refusal(http, CHAT, body)[0] == "tools.0.function.parameters"


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "[1]"}}
RESULT = {"role": "tool", "tool_call_id": "1", "content": ""}
MESSAGES = {
    "messages[1].tool_calls": [*ASK, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT],
    "messages[1] starts": [*ASK, RESULT],
    "messages[2].content": [*ASK, *ASK, {"role": "user"}],
}
WANTED = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
CALLABLE = {"name": "f", "parameters": {"type": "object"}}
SECTIONS = [{}, {"response_format": WANTED}, {"tools": [{"type": "function", "function": CALLABLE}]}]


@pytest.mark.parametrize("with_system_section", SECTIONS, ids=["", "response_format", "tools"])
def test_messages_are_counted_as_the_client_does(http, with_system_section):
    for name, messages in MESSAGES.items():
        param, message = refusal(http, CHAT, {"messages": messages, **with_system_section})
        assert param == "messages" and message.startswith(name)


@pytest.mark.parametrize("more", [{}, {"instructions": "Be kind."}, {"tools": [{"type": "function", **CALLABLE}]}])
def test_responses_name_items_of_their_input(http, more):
    user, said = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a"}
    reasoning = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "b"}]}
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "[1]"}
    output = {"type": "function_call_output", "call_id": "1", "output": "c"}
    for name, items in (
        ("input[2].tool_calls", [user, reasoning, call, output]),
        ("input[1] starts", [user, output]),
        ("input[3].role", [user, said, user, said]),
    ):
        param, message = refusal(http, RESPONSES, {"input": items, **more})
        assert param == "input" and message.startswith(name)


SENTENCES = {
    "seed above": ({"seed": 2**64}, f"seed is {2**64}; expected between {-(2**63)} and {MAX_SEED}"),
    "seed below": ({"seed": -(2**63) - 1}, f"seed is {-(2**63) - 1}; expected between {-(2**63)} and {MAX_SEED}"),
    "thinking": ({"thinking": True}, 'thinking is true; expected {"type": "enabled"} or {"type": "disabled"}'),
    "thinking, a text": ({"thinking": "on"}, 'thinking is "on"; expected {"type": "enabled"} or {"type": "disabled"}'),
    "response_format": ({"response_format": "json_object"}, 'response_format is "json_object"; expected an object'),
    "stream_options": ({"stream_options": 1}, "stream_options is 1; expected an object"),
    "tools": ({"tools": [[]]}, "tools.0 is a list; expected an object"),
    "temperature": ({"temperature": 11}, "temperature is 11; expected less than or equal to 10"),
    "empty list": ({"messages": []}, "messages has 0 items; expected at least 1 item"),
    "empty text": ({"stop": ["a", ""]}, 'stop.1 is ""; expected at least 1 character'),
    "top_logprobs": ({"top_logprobs": 3}, "top_logprobs is 3; expected null or 0 unless logprobs is true"),
    "name": (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        f'tools.0.function.name is "a b"; expected match pattern \'{FUNCTION_NAME}\'',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_the_sentence_has_the_value_and_what_is_expected(http, fields, sentence):
    assert refusal(http, CHAT, {"messages": ASK, **fields})[1] == sentence


MESSAGES_API = "/v1/messages"
NAMELESS = {"type": "json_schema", "schema": {"type": "object"}}
FIELDS = {  # by path: bodies, the field that is wrong, and the beginning of the sentence
    CHAT: [
        ({"logit_bias": {"999999": 1}}, "logit_bias", "logit_bias holds 999999; "),
        ({"stop_token_ids": [999999]}, "stop_token_ids", "stop_token_ids holds 999999; "),
        (
            {"messages": [*ASK, {"role": "assistant", "function_call": {"name": "f"}}]},
            "messages",
            "messages[1].function_call is ",
        ),
        (
            {"tool_choice": "required", "tools": GOOD, "guided_regex": "a"},
            "tool_choice",
            "tool_choice is required; expected auto or none with guided_regex",
        ),
        (
            {"messages": [{"role": "assistant", "content": "a", "prefix": True}]},
            "messages",
            "messages has only the beginning of the answer; ",
        ),
    ],
    TEXT: [
        ({"prompt": [999999]}, "prompt", "prompt holds token id 999999"),
        ({"prompt": ""}, "prompt", "prompt is empty; "),
    ],
    RESPONSES: [
        (
            {"tool_choice": {"type": "allowed_tools", "tools": []}},
            "tool_choice.type",
            'tool_choice.type is "allowed_tools"; ',
        ),
        (
            {"text": {"format": {**NAMELESS, "schema": {"type": "x"}}}},
            "text.format",
            "text.format cannot be compiled: ",
        ),
        (
            {"input": 129 * [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}]},
            "input",
            "input.0.tool_calls has 129 items; ",
        ),
    ],
    "/tokenize": [({"prompt": "a", "messages": ASK}, None, "body: expected either prompt or messages")],
    MESSAGES_API: [
        ({"tool_choice": {"type": "tool"}}, None, "tool_choice: type is 'tool'; expected name with it"),
        ({"tool_choice": {"type": "any"}}, None, "tool_choice is any; expected a function in tools"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            None,
            "messages.0.content.0: this type of block is not served; expected text, thinking, ",
        ),
        ({"messages": [{"role": "user", "content": ["a"]}]}, None, 'messages.0.content.0 is "a"; expected an object'),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 5}]}]},
            None,
            "messages.0.content.0.tool_use_id is 5; ",
        ),
        (
            {"output_config": {"format": {**NAMELESS, "schema": {"type": "x"}}}},
            None,
            "output_config.format cannot be compiled: ",
        ),
        (
            {"messages": [{"role": "assistant", "content": "a"}]},
            None,
            "messages has only the beginning of the answer; ",
        ),
        (
            {
                "tool_choice": {"type": "any"},
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "output_config": {"format": NAMELESS},
            },
            None,
            "tool_choice is any; expected auto or none with output_config.format, ",
        ),
    ],
}


@pytest.mark.parametrize("path", FIELDS)
def test_the_field_is_the_one_that_the_client_has_sent(http, path):
    whole = {CHAT: {"messages": ASK}, RESPONSES: {"input": "a"}, MESSAGES_API: {"messages": ASK, "max_tokens": 2}}
    for body, field, sentence in FIELDS[path]:
        error = http.post(path, json={**whole.get(path, {}), **body}).json()["error"]
        assert error.get("param") == field and error["message"].startswith(sentence), error


def test_what_changes_no_text_is_accepted(http):
    """Fields of OpenAI's and Anthropic's clients, null for what they do not use, and the longest names of functions."""
    function = {"name": "mcp__" + "x" * 123, "parameters": {"type": "object"}}
    known = {
        "prompt_cache_options": {"mode": "explicit"},
        "moderation": None,
        "context_management": None,
        "anything": None,
    }
    for path, body in (
        (
            CHAT,
            {
                "messages": ASK,
                **known,
                "max_tokens": 1,
                "audio": None,
                "web_search_options": None,
                "tools": [{"type": "function", "function": function}],
            },
        ),
        (
            TEXT,
            {
                "prompt": "a",
                "max_tokens": 1,
                "truncate_prompt_tokens": None,
                "structured_outputs": {"regex": "a", "structural_tag": None},
            },
        ),
        (
            RESPONSES,
            {
                "input": "a",
                **known,
                "max_output_tokens": 1,
                "tools": [{"type": "function", **function}],
                "include": ["message.input_image.image_url", "computer_call_output.output.image_url"],
            },
        ),
        (
            MESSAGES_API,
            {
                "messages": ASK,
                "max_tokens": 1,
                "fallbacks": None,
                "tools": [{"name": function["name"], "input_schema": function["parameters"]}],
            },
        ),
    ):
        assert (answer := http.post(path, json=body)).status_code == 200, answer.text
