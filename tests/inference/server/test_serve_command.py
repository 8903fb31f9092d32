"""`deepseek-v32 serve` as users run it."""

import queue
import resource
import signal
import sys
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from campaigns.live_server import live_server
from deepseek_v32.inference.commands import loading, serve
from deepseek_v32.inference.commands.cli import app
from support import raw_http
from support.server import stand_in_llm
from support.tiny import tiny_checkpoint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--api-key"),
        (["--host", "192.168.1.1"], "--api-key"),
        (["--api-key", "short"], "8 or more"),
        (["--api-key", "schlüsselwort"], "ASCII"),
    ],
)
def test_what_it_refuses(monkeypatch, arguments, message):
    monkeypatch.setattr(loading, "load_llm", lambda *_, **__: pytest.fail("it went on"))
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert isinstance(result.exception, ValueError) and message in str(result.exception)


def test_without_gradio_no_page_is_announced(monkeypatch):
    monkeypatch.setattr(loading, "load_llm", lambda *_, **__: stand_in_llm())
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    monkeypatch.setattr(serve, "allow_files", lambda count: sys.exit())  # after the announcement
    said = CliRunner().invoke(app, ["serve", "--port", "0"]).stderr
    assert "API: http://127.0.0.1:" in said and "chat" not in said


@pytest.mark.parametrize(
    ("host", "site"),
    [("127.0.0.1", "localhost"), ("::", "localhost"), ("10.0.0.5", "10.0.0.5"), ("fd00::5", "[fd00::5]")],
)
def test_the_browser_opens_the_address_that_is_listened_on(monkeypatch, host, site):
    pytest.importorskip("gradio")
    opened = queue.SimpleQueue()
    monkeypatch.setattr(serve, "BROWSER_DELAY", 0)
    monkeypatch.setattr(serve.webbrowser, "open", opened.put)
    monkeypatch.setattr(serve, "serve", lambda **_: None)
    assert CliRunner().invoke(app, ["chat", "--host", host]).exit_code == 0
    assert opened.get(timeout=10) == f"http://{site}:7860/"


def test_the_chat_format_can_be_overridden():
    messages = [{"role": "user", "content": "Hi"}]
    plain = stand_in_llm().chat_token_ids(messages)
    with pytest.raises(ValueError, match="no chat template"):
        stand_in_llm(chat_format="v3.2-exp")
    with pytest.raises(ValueError, match="chat_format is 'v4'; expected"):
        stand_in_llm(chat_format="v4")
    template = "{{ bos_token }}other"
    assert stand_in_llm(template).chat_token_ids(messages) != plain
    assert stand_in_llm(template, chat_format="v3.2-exp").chat_token_ids(messages) != plain
    assert stand_in_llm(template, chat_format="v3.2").chat_token_ids(messages) == plain


def test_the_limit_of_open_files_is_raised_as_far_as_the_system_allows(monkeypatch):
    set_to = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    for limits, expected in (
        ((1024, 4096), (1800, 4096)),
        ((1024, 1500), (1500, 1500)),
        ((1024, resource.RLIM_INFINITY), (1800, resource.RLIM_INFINITY)),
        ((4096, 4096), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        serve.allow_files(1800)
        assert (set_to.pop() if set_to else None) == expected


@pytest.mark.heavy
def test_a_second_ctrl_c_ends_what_is_open(tmp_path):
    options = ("--no-chat", "--max-model-len", 4096, "--drain", 60)
    body = {"prompt": "Hi", "stream": True, "n": 8, "max_tokens": 4000, "ignore_eos": True}
    with live_server("--model", tiny_checkpoint(tmp_path), *options, key=None) as server:
        url = f"http://127.0.0.1:{server.port}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGINT)
            while "force quit" not in server.log():
                assert server.process.poll() is None, server.log()
                time.sleep(0.1)
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(20) == 130
        assert "Traceback" not in server.log() and "ERROR" not in server.log(), server.log()


@pytest.mark.heavy
def test_from_start_to_stop(tmp_path):
    model, key = tiny_checkpoint(tmp_path), "from the environment"
    options = ("--no-chat", "--drain", 1, "--connections-per-peer", 2)
    with live_server("--model", model, *options, key=key) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert f"API: {url}/v1" in server.log()  # the port that 0 has taken
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            assert http.get("/v1/models").json()["data"][0]["id"] == Path(model).name
            answer = http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 3, "ignore_eos": True})
            assert answer.json()["usage"]["completion_tokens"] == 3
        assert httpx.get(url + "/metrics").status_code == 401
        refused = None
        while (
            refused is None or refused.status != 503
        ):  # half a head for a second, and a new connection takes its place
            with raw_http.connect(url) as one, raw_http.connect(url) as other:
                one.sendall(b"GET")
                other.sendall(b"GET")
                refused = raw_http.ask(url, server.request("GET", "/health"))
        assert "2 open connections" in refused.error["message"]
        assert "Every route but /health and /ready requires the key" in server.log()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0 and "Traceback" not in server.log(), server.log()
