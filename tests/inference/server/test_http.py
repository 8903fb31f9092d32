"""Cases beyond the official client: other routes, malformed requests, clients that disconnect, a full queue."""

import asyncio
import json
import logging
import threading
import time

import httpx
import pytest

from deepseek_v32.inference.server.api import errors, guard, json_values
from deepseek_v32.inference.server.service.service import Service
from support import raw_http
from support.server import MODEL, serving, stand_in_llm

ASK = {"messages": [{"role": "user", "content": "Hi"}]}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ENDLESS = {"prompt": "The", "max_tokens": 900}


def error_of(response, status):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert "Traceback" not in response.text and ".py" not in response.text
    return error


def test_tokenize_and_back(server, http):
    tokens = http.post("/tokenize", json={"prompt": "fox 🙂 <think>"}).json()
    assert tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == 1024
    assert http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "fox 🙂 <think>"}
    think = server.llm.tokenizer.special_ids["<think>"]
    assert think not in tokens["tokens"]
    special = http.post(
        "/tokenize", json={"prompt": "a<think>", "parse_special_tokens": True, "add_special_tokens": True}
    )
    assert special.json()["tokens"][0] == server.llm.tokenizer.bos_id and special.json()["tokens"][-1] == think
    chat = http.post("/tokenize", json={**ASK, "chat_template_kwargs": {"thinking": True}}).json()["tokens"]
    assert chat == server.llm.chat_token_ids(ASK["messages"], thinking=True)
    error_of(http.post("/tokenize", json={}), 400)
    error_of(http.post("/tokenize", json={"prompt": "a", **ASK}), 400)
    error_of(http.post("/detokenize", json={"tokens": [999_999]}), 400)


def test_state(http):
    assert http.get("/health").json()["status"] == "alive"
    assert http.get("/ready").json() == {"status": "ready", "running": 0, "waiting": 0, "seconds_since_step": 0.0}


@pytest.mark.parametrize("chat", [False, True], ids=["only the API", "with the chat"])
def test_paths_and_methods_that_do_not_exist(chat, caplog):
    if chat:
        pytest.importorskip("gradio")
    with serving(Service(stand_in_llm()), chat=chat) as server, httpx.Client(base_url=server.url) as http:
        assert "path is /v1/nothing; expected" in error_of(http.get("/v1/nothing"), 404)["message"]
        assert "under /v1" in error_of(http.post("/chat/completions", json=ASK), 404)["message"]
        assert error_of(http.post("/v1/models"), 405)["message"] == "method is POST; expected GET at /v1/models"
        assert error_of(http.get("/tokenize"), 405)["type"] == "invalid_request_error"
        if chat:
            unknown = http.get("/gradio_api/queue/data?session_hash=unknown")
            assert unknown.status_code == 200 and '"session_not_found":true' in unknown.text
            # gradio answers these with 422, with 500, with a plain 500 and an exception, and with an exception.
            event = {"data": [], "fn_index": 0, "session_hash": "a", "trigger_id": "\ud800"}
            wrong = {"content": json.dumps(event), "headers": {"content-type": "application/json"}}
            error_of(http.post("/gradio_api/queue/join", json=[]), 400)
            error_of(http.post("/gradio_api/run/predict", json={"data": [], "fn_index": None}), 400)
            error_of(http.post("/gradio_api/run/predict", **wrong), 400)
            error_of(http.get("/", headers={"x-gradio-server": b"-x\x7f\xea"}), 400)
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


def test_events_of_the_page_whose_values_do_not_fit_are_one_line_in_the_log(capfd, caplog):
    pytest.importorskip("gradio")
    caplog.set_level(logging.DEBUG, "deepseek_v32.inference.chat_app.page")
    with serving(Service(stand_in_llm()), chat=True) as server, httpx.Client(base_url=server.url) as http:
        for data in ([], [{"a": 1}] * 11, ["x"] * 11):
            event = {"data": data, "fn_index": 0, "session_hash": "a"}
            assert http.post("/gradio_api/queue/join", json=event).status_code == 200
        error_of(http.post("/gradio_api/run/predict", json={"data": [], "fn_index": 7}), 400)
        with http.stream("GET", "/gradio_api/queue/data?session_hash=a", timeout=10) as events:
            ends = (line for line in events.iter_lines() if '"process_completed"' in line)
            assert all('"success":false' in next(ends) for _ in range(3))
    assert "Traceback" not in "".join(capfd.readouterr())
    lines = [each.getMessage() for each in caplog.records if "cannot serve an event" in each.getMessage()]
    assert len(lines) >= 3 and not any("\n" in line for line in lines)
    traced = [each for each in caplog.records if each.exc_info and each.name.endswith("chat_app.page")]
    assert len(traced) == len(lines) and all(each.levelno == logging.DEBUG for each in traced)


@pytest.mark.parametrize(
    ("path", "field", "param", "message"),
    [
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages.0.content.0.type",
            "'text'",
        ),
        (CHAT, {"stop": ["a"] * 100}, "stop", "at most 64"),
        (CHAT, {"stop": ""}, "stop", "at least 1 character"),
        (CHAT, {"tool_choice": {"function": {"name": "f"}}}, "tool_choice.type", "required"),
        (CHAT, {"logit_bias": {"a": 1}}, "logit_bias", "token id"),
        (CHAT, {"logit_bias": {"5": 200}}, "logit_bias", "between -100 and 100"),
        (CHAT, {"temprature": 1}, "temprature", "not known"),
        (TEXT, {"structured_outputs": {"jsno": {}}}, "structured_outputs.jsno", "not known"),
        (TEXT, {"stream": True, "stream_options": {"usage": True}}, "stream_options.usage", "not known"),
        (CHAT, {"chat_template_kwargs": {"think": True}}, "chat_template_kwargs.think", "not known"),
        (CHAT, {"thinking": {"type": "maybe"}}, "thinking.type", "enabled"),
        (CHAT, {"reasoning_effort": "huge"}, "reasoning_effort", "none"),
        (CHAT, {"verbosity": "loud"}, "verbosity", "medium"),
        (CHAT, {"response_format": {"type": "json_schema"}}, "response_format", "json_schema.schema"),
        (CHAT, {"functions": [{"name": "f"}]}, "functions", "not served"),
        (TEXT, {"suffix": "."}, "suffix", "not served"),
        (TEXT, {"prompt": [1, "a"]}, "prompt.1", "integer"),
    ],
)
def test_errors_name_the_field_that_is_wrong(http, path, field, param, message):
    wanted = ASK if path == CHAT else {"prompt": "The"}
    error = error_of(http.post(path, json={**wanted, **field}), 400)
    assert error["param"] == param and error["message"].startswith(param) and message in error["message"]


def test_metrics(http):
    def numbers():
        lines = http.get("/metrics").text.splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}

    before = numbers()
    http.post(TEXT, json={"prompt": "The", "max_tokens": 10})
    after = numbers()
    prefix = "deepseek_v32_"

    def risen(name):
        return after[prefix + name] - before.get(prefix + name, 0)

    assert risen("generated_tokens_total") == 10
    assert risen("time_to_first_token_seconds_count") == 1 and risen("inter_token_seconds_count") == 9
    assert risen('finished_requests_total{reason="length"}') == 1 and risen("request_seconds_count") == 1
    pages = [after[f'{prefix}pages{{state="{state}"}}'] for state in ("free", "used", "cached")]
    assert sum(pages) == 64 and pages[1] == 0
    assert after[prefix + "queue_requests"] == after[prefix + "running_requests"] == 0
    assert after[prefix + "deterministic"] == 0


MALFORMED = {
    "no JSON": (b"{", "application/json"),
    "another type": (b'{"prompt": "a"}', "text/plain"),
    "no body": (b"", "application/json"),
    "a list": (b"[]", "application/json"),
    "deep": (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "application/json"),
    "huge number": (b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", "application/json"),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', "application/json"),
    "not UTF-8": (b'{"prompt": "\xff\xfe"}', "application/json"),
    "half a character": (b'{"prompt": "\\ud83d"}', "application/json"),
    "strings for numbers": (b'{"prompt": "a", "max_tokens": "5"}', "application/json"),
    "mixed prompt": (b'{"prompt": ["a", 1]}', "application/json"),
    "negative id": (b'{"prompt": [-1]}', "application/json"),
    "unknown id": (b'{"prompt": [100000]}', "application/json"),
    "empty": (b'{"prompt": ""}', "application/json"),
    "empty stop": (b'{"prompt": "a", "stop": ""}', "application/json"),
    "unknown stop id": (b'{"prompt": "a", "stop_token_ids": [100000]}', "application/json"),
    "no tokens": (b'{"prompt": "a", "max_tokens": 0}', "application/json"),
    "many": (b'{"prompt": ["a", "b", "c", "d", "e", "f", "g"], "n": 16}', "application/json"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests(http, name):
    body, kind = MALFORMED[name]
    error_of(http.post(TEXT, content=body, headers={"content-type": kind}), 400)


def test_deep_tool_schemas_are_refused(http):
    schema = {}
    for _ in range(200):
        schema = {"properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert "deep" in error_of(http.post(CHAT, json={**ASK, "tools": [tool]}), 400)["message"]


def test_malformed_calls_and_names(http):
    call = {"function": {"name": "f", "arguments": "no JSON"}}
    history = [*ASK["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}]
    answered = {"messages": [*history, {"role": "tool", "content": "x"}]}
    error_of(http.post(CHAT, json=answered), 400)
    bad_name = {"type": "function", "function": {"name": 'f">\n'}}
    error_of(http.post(CHAT, json={**ASK, "tools": [bad_name]}), 400)
    error_of(http.get("/v1/models/other/name"), 404)


def test_whole_floats_are_integers_and_nulls_are_defaults(http):
    body = {"prompt": "The", "max_tokens": 3.0, "temperature": None, "n": None, "stop": None, "seed": None}
    assert http.post(TEXT, json=body).json()["usage"]["completion_tokens"] == 3


def test_wrong_methods_and_routes(http):
    response = http.get(CHAT)
    error_of(response, 405)
    assert response.headers["allow"] == "POST"
    error_of(http.get("/nothing"), 404)
    for path in ("/docs", "/redoc", "/../pyproject.toml", "/static/../../server.py"):
        assert http.get(path).status_code == 404


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_disconnects_frees_its_pages(server, http, stream):
    server.model.before_step = lambda: time.sleep(0.01)
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=server.url, timeout=0.3) as impatient:
        if stream:
            with impatient.stream("POST", TEXT, json={**ENDLESS, "stream": True}) as response:
                lines = response.iter_lines()
                assert next(lines).startswith("data: ")
                server.model.before_step = lambda: time.sleep(0.5)
                list(lines)
        else:
            impatient.post(TEXT, json=ENDLESS)
    server.model.before_step = lambda: None
    assert server.idle()
    assert server.service.stats().engine.finished["abort"] >= 1


def test_a_stream_that_is_not_read_does_not_block_others(server, http):
    with raw_http.connect(server.url) as deaf:
        deaf.sendall(raw_http.post(TEXT, {**ENDLESS, "stream": True}))
        assert http.post(TEXT, json={"prompt": "The", "max_tokens": 20}).status_code == 200


def test_a_full_queue_answers_503_at_once():
    llm = stand_in_llm(max_sequences=1)
    gate = threading.Event()
    llm.model.before_step = lambda: gate.wait(20)
    with serving(Service(llm, max_queue=1)) as server:

        async def main():
            async with httpx.AsyncClient(base_url=server.url, timeout=20) as many:
                asked = [
                    asyncio.create_task(many.post(TEXT, json={"prompt": "The", "max_tokens": 2})) for _ in range(2)
                ]
                while server.service.stats().open < 2:
                    await asyncio.sleep(0.005)
                for body in ({"prompt": "The"}, {"prompt": "The", "stream": True}):
                    refused = await many.post(TEXT, json=body)
                    assert error_of(refused, 503)["code"] == "busy"
                    assert int(refused.headers["retry-after"]) >= 1
                refused = await many.post(CHAT, json={**ASK, "n": 1})
                error_of(refused, 503)
                gate.set()
                return [response.status_code for response in await asyncio.gather(*asked)]

        assert asyncio.run(main()) == [200, 200]
        assert server.idle()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_deadline(stream):
    llm = stand_in_llm()
    llm.model.before_step = lambda: time.sleep(0.02)
    with serving(Service(llm, deadline=0.2)) as server, httpx.Client(base_url=server.url) as http:
        response = http.post(TEXT, json={**ENDLESS, "stream": stream})
        if stream:
            *_, last, done = [line for line in response.text.splitlines() if line]
            assert done == "data: [DONE]"
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "deadline"
        else:
            assert error_of(response, 504)["code"] == "deadline"
            assert response.headers["x-should-retry"] == "false"
        assert server.idle()


def test_a_stalled_engine_is_not_ready(monkeypatch):
    from deepseek_v32.inference.server.api import health

    monkeypatch.setattr(health, "STALLED_SECONDS", 0.05)
    llm = stand_in_llm()
    gate = threading.Event()
    llm.model.before_step = lambda: gate.wait(20)
    with serving(Service(llm)) as server, httpx.Client(base_url=server.url) as http:
        stream = server.service.stream([1, 2])
        while http.get("/ready").status_code == 200:
            time.sleep(0.01)
        assert http.get("/health").status_code == 200
        gate.set()
        stream.close()
        assert server.idle() and http.get("/ready").status_code == 200


@pytest.mark.parametrize("chat_format", ["v3.2", "v3.2-exp"])
def test_both_chat_formats(chat_format):
    llm = stand_in_llm("{{ bos_token }}{{ messages[0].content }}", chat_format=chat_format)
    with serving(Service(llm)) as server:
        response = httpx.post(server.url + CHAT, json={**ASK, "max_tokens": 2, "model": MODEL})
        assert response.status_code == 200
        asked = len(llm.tokenizer.encode_prompt(ASK["messages"][0]["content"]))
        assert (response.json()["usage"]["prompt_tokens"] == asked) == (chat_format == "v3.2-exp")


def test_a_million_wrong_items_give_one_error(http, monkeypatch):
    """The errors of all items were collected once, which took 17 s."""
    seen = []
    original = errors.invalid
    monkeypatch.setattr(errors, "invalid", lambda found: (seen.append(len(found)), original(found))[1])
    for field, path in (
        ("prompt", TEXT),
        ("stop", TEXT),
        ("messages", CHAT),
        ("tools", CHAT),
        ("tokens", "/detokenize"),
    ):
        error_of(http.post(path, json={field: [[]] * 1000}), 400)
    assert len(seen) == 5 and max(seen) < 10, seen


def test_bodies_of_too_many_values_are_refused_before_they_are_read(http, monkeypatch):
    monkeypatch.setattr(json_values, "MAX_VALUES", 3000)
    monkeypatch.setattr(guard, "SHORT_BODY", 1000)
    many = json.dumps({"prompt": [[]] * 1000})
    error = error_of(http.post(TEXT, content=many, headers={"content-type": "application/json"}), 413)
    assert error["message"].startswith("the body has about 5007 values; expected at most 3000")
    assert http.post("/tokenize", json={"prompt": 'a,[{"\\' * 100}).status_code == 200
    # Only what is outside of strings counts.
    for text in (",[" * 2000, '\\"[,' * 1000):
        answer = http.post("/tokenize", json={"prompt": text})
        assert answer.status_code == 200 or "tokens" in answer.json()["error"]["message"]
