"""Slices of the campaigns of scripts/break_it.py, and whether their judges see what is wrong."""

import asyncio
import json

import pytest

from campaigns import fuzz, memory, overload, slow_clients, stopping
from campaigns.live_server import UNCLEAN, LiveServer, live_server
from deepseek_v32.inference import LLM
from deepseek_v32.inference.server.api.connections import ConnectionLimits
from deepseek_v32.inference.server.service.service import Service
from support.pages import check_pool
from support.raw_http import Response
from support.server import serving, stand_in_llm
from support.tiny import tiny_checkpoint

KEY = "the key of these tests"


def seen_from_outside(server, key=None):
    return LiveServer("127.0.0.1", int(server.url.rpartition(":")[2]), key)


@pytest.mark.heavy
def test_random_requests_get_declared_answers(caplog):
    with serving(Service(stand_in_llm(max_model_len=128), max_queue=1000), api_key=KEY) as server:
        result = fuzz.run(1, 300, server=seen_from_outside(server, KEY))
        assert result["failures"] == [] and result["requests"] == 300
        assert {"200", "400", "401", "403", "404", "405"} <= result["statuses"].keys()
        check_pool(server.llm.engine.pool)
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.mark.heavy
def test_twenty_times_as_many_clients_as_there_is_room_for(tmp_path):
    llm = LLM(tiny_checkpoint(tmp_path), device="cpu", max_sequences=3, page_count=24, max_model_len=512)
    limits = ConnectionLimits(total=50, per_peer=0)
    with serving(Service(llm, max_queue=1), limits=limits) as server:
        result = asyncio.run(overload.overload(1, 500, 80, seen_from_outside(server)))
        assert result["failures"] == []
        assert result["outcomes"]["answered"] >= 1 and result["outcomes"]["refused"] >= 50, result
        check_pool(llm.engine.pool)


def test_half_heads_unread_and_cancelled_streams(monkeypatch):
    monkeypatch.setattr(slow_clients, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(slow_clients, "SETTLED_SECONDS", 0.2)
    monkeypatch.setattr(slow_clients, "STREAM", {**slow_clients.STREAM, "max_tokens": 1000})
    limits = ConnectionLimits(head_seconds=1.0)
    with serving(Service(stand_in_llm(), max_queue=100), limits=limits) as server:
        outside = seen_from_outside(server)
        heads = asyncio.run(slow_clients.slow_heads(60, outside))
        assert heads.pop("failures") == [] and heads["half_heads"] == 60 and heads["probes"] >= 2
        cancelled = asyncio.run(slow_clients.cancelled_streams(1, 40, outside))
        assert cancelled["failures"] == [] and server.service.stats().engine.finished["abort"] > 0
        unread = asyncio.run(slow_clients.slow_readers(3, outside, waits=False, asked=1))
        assert unread["failures"] == []


def test_mixed_requests():
    with serving(Service(stand_in_llm(), max_queue=100)) as server:
        result = asyncio.run(memory.load(1, 0, seen_from_outside(server), least=80))
        assert result["failures"] == [] and sum(result["requests"].values()) >= 80
        assert set(result["requests"]) == {"answer", "stream", "left", "long text", "score", "fuzz"}


@pytest.mark.heavy
def test_a_server_that_is_stopped_under_load(tmp_path):
    with live_server("--drain", 1, "--no-chat", "--model", tiny_checkpoint(tmp_path), "--max-model-len", 512) as server:
        kinds = [kind for kind in stopping.KINDS if kind != "scores"]  # of a prompt that this context does not hold
        assert asyncio.run(stopping.sigterm(1, server, kinds)) == []


ERROR = {"message": "a is 1; expected 2", "type": "server_error", "param": None, "code": None}


def answer(status, body, *headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(content)}", *headers]
    return Response("\r\n".join(lines).encode() + b"\r\n\r\n" + content, True)


@pytest.mark.parametrize(
    ("response", "wrong"),
    [
        (answer(400, {"error": ERROR}), None),
        (answer(200, {"any": "thing"}), None),
        (answer(503, {"error": ERROR}, "Retry-After: 1"), None),
        (answer(500, {"error": ERROR}), "status 500; expected one of"),
        (answer(422, {"detail": []}), "status 422"),
        (answer(503, {"error": ERROR}), "without Retry-After"),
        (answer(400, b"Bad Request"), "expected an error in OpenAI's shape"),
        (answer(400, {"error": "text"}), "expected an error in OpenAI's shape|application/json"),
        (answer(400, {"error": {**ERROR, "message": "Traceback (most"}}), "with the message"),
        (answer(400, {"error": {**ERROR, "message": "two\nlines"}}), "with the message"),
        (answer(200, b"{"), "not JSON"),
        (Response(b"", True), "no answer"),
        (Response(b"nonsense", True), "not HTTP"),
        (Response(answer(400, {"error": ERROR}).received, False), "no end"),
        (
            Response(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n", True),
            r"without \[DONE\]",
        ),
    ],
)
def test_what_the_fuzzer_calls_wrong(response, wrong):
    said = fuzz.complaint(response, "POST", {200, 400, 503}, is_chat=False, is_whole=True)
    assert said is None if wrong is None else said and any(part in said for part in wrong.replace("\\", "").split("|"))


def test_what_the_stopping_campaign_calls_wrong():
    good, stopped = b'data: {"choices": [{"finish_reason": "length"}]}\n\ndata: [DONE]\n\n', {"retry-after": "30"}
    ended = json.dumps({"error": {**ERROR, "code": "stopped"}}).encode()
    assert stopping._wrong_end("stream", 200, {}, good) is None
    assert stopping._wrong_end("stream", 200, {}, b"data: " + ended + b"\n\ndata: [DONE]\n\n") is None
    assert stopping._wrong_end("text", 503, stopped, ended) is None
    for kind, status, headers, body in (
        ("stream", 200, {}, b'data: {"choices": []}\n\n'),
        ("stream", 200, {}, b'data: {"choices": [{"finish_reason": null}]}\n\ndata: [DONE]\n\n'),
        ("text", 500, {}, b"Internal Server Error"),
        ("text", 503, {}, ended),
        ("text", None, {}, b""),
    ):
        assert stopping._wrong_end(kind, status, headers, body), (kind, status, body)


def test_which_lines_a_log_may_not_have():
    own = 'Traceback (most recent call last):\n  File "/x/deepseek_v32/inference/api/chat.py", line 1\n'
    theirs = 'Traceback (most recent call last):\n  File "/x/gradio/queueing.py", line 1\n'
    assert (
        len(UNCLEAN.findall(own + "INFO fine\n2026 ERROR uvicorn.error: Exception in ASGI application\n" + theirs)) == 2
    )
