"""Limits on connections: slow heads, idle and silent clients, too many connections, and heads that cannot be read."""

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from deepseek_v32.inference.server.api import connections
from deepseek_v32.inference.server.api.connections import ConnectionLimits
from deepseek_v32.inference.server.service.service import Service
from support.raw_http import Response, ask, connect, post, read_all
from support.server import serving, stand_in_llm

KEY = "a key of some length"
HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
WHOLE = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n\r\n"
SHORT = ConnectionLimits(head_seconds=0.3, idle_seconds=1.0, stalled_seconds=0.5)


def health(server):
    return httpx.get(server.url + "/health", timeout=10)


@pytest.fixture(scope="module")
def impatient():
    with serving(Service(stand_in_llm()), limits=SHORT) as server:
        yield server


@contextlib.contextmanager
def opened(server, count, sent=b""):
    """Open connections that have sent `sent` and then wait."""
    with contextlib.ExitStack() as stack:
        open_ones = [stack.enter_context(connect(server.url)) for _ in range(count)]
        for connection in open_ones:
            connection.sendall(sent)
        yield open_ones


@pytest.mark.parametrize("drip", [b"", b"a"], ids=["nothing more", "a byte at a time"])
def test_half_a_head_is_answered_and_closed(impatient, drip):
    with connect(impatient.url) as connection:
        connection.sendall(HALF)
        end = time.monotonic() + 5
        with contextlib.suppress(ConnectionError):
            while drip and time.monotonic() < end:
                connection.sendall(drip)
                time.sleep(0.02)
        assert time.monotonic() < end, "it stays as long as bytes come"
        # The bytes that came after the answer may have reset the connection.
        received = read_all(connection)
        if received or not drip:
            answer = Response(received)
            assert (answer.status, answer.headers["content-type"]) == (408, "application/json")
            assert "the request's head is incomplete; expected all of it within 0.3 s" in answer.error["message"]


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"], ids=["new", "used"])
def test_a_connection_without_a_request_is_closed(impatient, before):
    with connect(impatient.url) as connection:
        connection.sendall(before)
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 ") == (1 if before else 0)


def test_a_second_head_has_the_same_time(impatient):
    with connect(impatient.url) as connection:
        connection.sendall(WHOLE)
        received = b""
        while not Response(received).is_whole(of_head=False):  # head and body may come one after the other
            received += connection.recv(2**16)
        connection.sendall(HALF)
        assert Response(read_all(connection)).status == 408


def test_a_body_after_its_answer_cannot_hold_the_connection(impatient):
    """A request that is refused before its body has come leaves a connection that only discards."""
    with connect(impatient.url) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 1000000\r\n\r\n")
        assert Response(connection.recv(2**16)).status == 403
        with pytest.raises(ConnectionError):
            for _ in range(250):
                connection.sendall(b"a")
                time.sleep(0.02)


def test_a_client_that_takes_nothing_loses_its_request(impatient):
    body = {"prompt": "The", "max_tokens": 1000, "stream": True, "logprobs": 20, "n": 16, "ignore_eos": True}
    with connect(impatient.url, timeout=60) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(post("/v1/completions", body))
        while not impatient.service.stats().open:
            time.sleep(0.005)
        assert impatient.idle(30)
        assert impatient.service.stats().engine.finished["abort"]
        assert health(impatient).status_code == 200


def test_half_heads_do_not_hold_the_server(monkeypatch):
    """With the most connections open, each new one replaces the one that has waited the longest."""
    monkeypatch.setattr(connections, "REPLACEABLE_SECONDS", 0.0)
    limits = ConnectionLimits(total=40, per_peer=0, head_seconds=60)
    with serving(Service(stand_in_llm()), limits=limits) as server, opened(server, 40, HALF) as slow:
        with ThreadPoolExecutor(8) as pool:
            assert {answer.status_code for answer in pool.map(lambda _: health(server), range(24))} == {200}
        gave_way = Response(read_all(slow[0]))
        assert (gave_way.status, gave_way.error["code"]) == (503, "connections") and gave_way.headers["retry-after"]


@pytest.mark.parametrize("limits", [{"total": 5, "per_peer": 0}, {"per_peer": 5}], ids=["all", "one address"])
def test_refusals_of_connections_are_errors_of_the_api(monkeypatch, limits):
    monkeypatch.setattr(connections, "SURPLUS", 3)
    monkeypatch.setattr(connections, "REPLACEABLE_SECONDS", 60)
    with serving(Service(stand_in_llm()), limits=ConnectionLimits(**limits), api_key=KEY) as server:
        with opened(server, 5):
            # The first of them are refused after the check of the key, which a stranger does not pass.
            stranger = WHOLE.replace(b"/health", b"/v1/models").replace(KEY.encode(), b"x" * 20)
            assert ask(server.url, stranger).status == 401
            refused = ask(server.url, WHOLE)
            with opened(server, 3):
                at_once = ask(server.url, b"")
            for answer in (refused, at_once):
                assert (answer.status, answer.error["code"]) == (503, "connections"), answer
                assert int(answer.headers["retry-after"]) >= 1 and answer.headers["connection"] == "close"
                assert "5 open connections; expected fewer" in answer.error["message"]
            # A connection that sends nothing also gets an error, after a while.
            monkeypatch.setattr(connections, "SURPLUS_SECONDS", 0.2)
            with connect(server.url) as silent:
                assert Response(read_all(silent)).error["code"] == "connections"
            # With no room for lingering connections, they are closed at once.
            monkeypatch.setattr(connections, "MAX_LINGERING", 0)
            with opened(server, 3):
                assert ask(server.url, b"").error["code"] == "connections"
        end = time.monotonic() + 30
        while (answer := ask(server.url, WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).status != 200:
            assert time.monotonic() < end, answer


@pytest.mark.parametrize(
    ("head", "status", "word"),
    [
        (b"nonsense\r\n\r\n", 400, "illegal request line"),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "Host"),
        (b"GET /health HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n", 400, "illegal header line"),
        (b"GET /health HTTP/1.1\r\nX: " + b"a" * 70_000, 431, "too"),
        (b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, "conflicting"),
        (b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5, 6\r\n\r\n", 400, "conflicting"),
        (b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: +5\r\n\r\n", 400, "Content-Length"),
        (b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400, "chunked"),
        (b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n"
         b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400, "Content-Length and Transfer-Encoding"),
        (b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"no length\r\n", 400, "chunk"),
    ],
    ids=["line", "hosts", "header", "long", "lengths", "lengths in one", "signed", "gzip", "both", "chunk"],
)  # fmt: skip
def test_a_head_that_cannot_be_read_is_an_error_of_the_api(server, head, status, word):
    with connect(server.url) as connection:
        connection.sendall(head)
        received = read_all(connection)
    answer = Response(received)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json"), received
    assert word in answer.error["message"] and received.count(b"HTTP/1.1 ") == 1


def test_chunks_that_break_off_while_an_answer_is_streamed_end_it_quietly(server, caplog):
    body = b'{"prompt": "The", "max_tokens": 500, "stream": true}'
    with connect(server.url) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\nnonsense\r\n\r\n" % (len(body), body)
        )
        connection.recv(100)
    assert server.idle() and not [record for record in caplog.records if record.exc_info]
