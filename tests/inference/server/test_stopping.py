"""The end of a server: requests that outlast the drain end with the declared error, and the log has no traceback."""

import asyncio
import json
import threading
import time

import httpx
import pytest

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.server.api import http_server
from deepseek_v32.inference.server.api.open_requests import OpenRequests
from deepseek_v32.inference.server.app import create_app
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.text.tokenizer import Tokenizer
from support.raw_http import connect, post
from support.server import MODEL, Running, serving, stand_in_llm

BODY = {"prompt": "The", "max_tokens": 900, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 900, "ignore_eos": True}
KINDS = {
    "short": ("/v1/completions", {**BODY, "max_tokens": 30}),
    "whole": ("/v1/completions", BODY),
    "stream": ("/v1/completions", {**BODY, "stream": True}),
    "chat": ("/v1/chat/completions", CHAT),
    "chat stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "scores": ("/v1/completions", {**BODY, "echo": True, "logprobs": 1, "max_tokens": 0}),
}

LONG = [kind for kind in KINDS if kind != "short"]


def open_requests(server, kinds, count):
    """Start a thread for each kind of request; (threads, responses by kind) once `count` requests are open."""
    answers = {}

    def ask(kind):
        path, body = KINDS[kind]
        try:
            answers[kind] = httpx.post(server.url + path, json=body, timeout=30)
        except httpx.HTTPError as error:
            answers[kind] = error

    threads = [threading.Thread(target=ask, args=[kind]) for kind in kinds]
    for thread in threads:
        thread.start()
    while server.service.stats().open < count:
        time.sleep(0.005)
    return threads, answers


def check_ends(answers, log):
    for kind, answer in answers.items():
        assert not isinstance(answer, Exception), (kind, answer)
        if "stream" in kind:
            *_, last, done = [line for line in answer.text.splitlines() if line]
            assert answer.status_code == 200 and done == "data: [DONE]"
            error = json.loads(last.removeprefix("data: "))["error"]
        else:
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
            error = answer.json()["error"]
        assert (error["code"], error["type"]) == ("stopped", "server_error"), kind
    assert not [record.getMessage() for record in log.records if record.exc_info or record.levelname == "ERROR"]


def test_requests_that_outlast_the_drain_end_as_declared(caplog):
    llm = stand_in_llm()
    llm.model.before_step = lambda: time.sleep(0.01)
    kinds = [kind for kind in LONG if kind != "scores"]
    with serving(Service(llm), drain=0.3) as server:
        threads, answers = open_requests(server, kinds, len(kinds))
    for thread in threads:
        thread.join(10)
    check_ends(answers, caplog)
    assert len(answers) == len(kinds) and server.service.stats().engine.pages_used == 0


def test_requests_end_in_time_even_if_a_step_does_not(caplog):
    """Requests do not wait for the engine: its step may outlast the time that the system leaves the process."""
    llm = stand_in_llm()
    gate, begun, ended = threading.Event(), threading.Event(), threading.Event()
    llm.model.before_step = lambda: (begun.set(), gate.wait(20))

    def go_on():
        for thread in threads:
            thread.join(10)
        ended.set()
        gate.set()

    with serving(Service(llm), drain=0.2) as server:
        threads, answers = open_requests(server, LONG, len(LONG))
        assert begun.wait(10)
        waiting = threading.Thread(target=go_on)
        waiting.start()
    assert ended.is_set() and not any(thread.is_alive() for thread in threads)
    waiting.join(10)
    check_ends(answers, caplog)


@pytest.mark.parametrize("client", ["waits", "has left"])
def test_a_second_ctrl_c_does_not_wait_for_a_step(client, monkeypatch, caplog):
    """Open requests end as declared. The interpreter does not wait for asyncio's threads either.

    Without clients the first Ctrl-C ends the application.
    """
    llm = stand_in_llm()
    gate, begun = threading.Event(), threading.Event()
    llm.model.before_step = lambda: (begun.set(), gate.wait(30))
    service, stopping = Service(llm), threading.Event()
    stop = service.stop
    monkeypatch.setattr(service, "stop", lambda: (stopping.set(), stop()))
    server = http_server.make_server(create_app(service, model_name=MODEL), "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    kinds = ["stream", "whole"] if client == "waits" else []
    threads, answers = open_requests(Running(url, service, llm.model), kinds, len(kinds))
    stream = None if client == "waits" else service.stream([5, 6, 7], SamplingParams(max_tokens=9))
    try:
        assert begun.wait(10)
        server.should_exit = True
        assert stream is None or stopping.wait(10)
        server.force_exit = True
        thread.join(10)
        assert not thread.is_alive() and not gate.is_set()
    finally:
        gate.set()
        for each in (thread, *threads):
            each.join(20)
    caplog.clear()  # the application's end, which a step held up
    check_ends(answers, caplog)


def test_a_server_whose_task_is_cancelled_while_it_stops_ends():
    """It waits for no client, because nothing ends their requests any more."""

    llm, gate = stand_in_llm(), threading.Event()
    llm.model.before_step = lambda: gate.wait(0.1)
    service = Service(llm)

    async def stop():
        app = create_app(service, model_name=MODEL)
        server = http_server.make_server(app, "127.0.0.1", 0)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        _, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
        writer.write(post("/v1/completions", {**BODY, "model": MODEL}))
        while not service.stats().open:
            await asyncio.sleep(0.005)
        server.should_exit = True
        await asyncio.sleep(0.5)
        assert not serving.done()
        serving.cancel()
        done, _ = await asyncio.wait([serving], timeout=20)
        writer.close()
        gate.set()
        server.force_exit = True  # so that it ends, whatever it waits for
        assert done

    try:
        asyncio.run(stop())
    finally:
        gate.set()
        service.stop()


def test_a_text_that_is_being_encoded_ends_as_declared(caplog, monkeypatch):
    begun, gate = threading.Event(), threading.Event()
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: (begun.set(), gate.wait(20), [1])[2])
    with serving(Service(stand_in_llm()), drain=0) as server:
        threads, answers = open_requests(server, ["whole"], 0)
        assert begun.wait(10)
        threading.Thread(target=lambda: (threads[0].join(10), gate.set())).start()
    for thread in threads:
        thread.join(10)
    check_ends(answers, caplog)


def test_clients_that_do_not_read_do_not_keep_the_server(caplog, monkeypatch):
    monkeypatch.setattr(http_server, "LAST_SECONDS", 0.5)
    with serving(Service(stand_in_llm()), drain=0) as server, connect(server.url) as deaf:
        deaf.sendall(post("/v1/completions", {**BODY, "stream": True, "logprobs": 20, "n": 16}))
        while not server.service.stats().engine.generated_tokens > 1000:
            time.sleep(0.01)
        began = time.monotonic()
        connections = deaf
    assert time.monotonic() - began < 10 and connections
    assert not [record.getMessage() for record in caplog.records if record.exc_info or record.levelname == "ERROR"]


def test_requests_that_can_finish_do(caplog):
    llm = stand_in_llm()
    llm.model.before_step = lambda: time.sleep(0.01)
    with serving(Service(llm), drain=30) as server:
        threads, answers = open_requests(server, ["short"], 1)
    threads[0].join(10)
    assert answers["short"].json()["usage"]["completion_tokens"] == 30


def test_streams_that_carry_nothing_end_at_once_and_others_stay():
    """A page that is open in a browser must not keep the server for as long as requests may take."""

    async def application(scope, receive, send):
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await asyncio.sleep(60)

    async def main():
        requests = OpenRequests()
        sent = {"/gradio_api/heartbeat/a": [], "/gradio_api/queue/data": [], "/v1/completions": []}

        def answer(path):
            async def send(message):
                sent[path].append(message.get("body"))

            return asyncio.create_task(requests.answer(application, {"type": "http", "path": path}, None, send))

        tasks = {path: answer(path) for path in sent}
        await asyncio.sleep(0.01)
        requests.end(idle=True)
        await asyncio.sleep(0.01)
        assert [task.done() for task in tasks.values()] == [True, False, False]
        requests.end()
        await asyncio.gather(*tasks.values())
        return sent

    idle, chat, api = asyncio.run(main()).values()
    assert idle == chat == [None, b""]
    assert api[1].startswith(b'data: {"error": ') and api[1].endswith(b"data: [DONE]\n\n")


def test_a_cancellation_by_others_is_passed_on():
    async def main():
        task = asyncio.create_task(
            OpenRequests().answer(lambda *_: asyncio.sleep(60), {"type": "http", "path": "/v1/completions"}, None, None)
        )
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
