"""`deepseek-v32 serve` as users run it."""

import contextlib
import os
import queue
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from deepseek_v32.inference.commands import loading, serve
from deepseek_v32.inference.commands.cli import app
from support.server import stand_in_llm
from support.tiny import tiny_checkpoint

COMMAND = Path(sys.executable).with_name("deepseek-v32")


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


@contextlib.contextmanager
def running_server(model, *options, **environment):
    """The server's process, its URL, and what it has logged so far."""
    process = subprocess.Popen(
        [COMMAND, "serve", "--model", model, "--port", "0", "--no-chat", "--max-model-len", "512", *options],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    try:
        log = ""
        for line in process.stderr:
            log += line
            if found := re.search(r"running on (http://[^ ]+)", line):
                break
        yield process, found.group(1), log
    finally:
        process.kill()
        process.wait()


@pytest.mark.heavy
def test_a_second_ctrl_c_ends_what_is_open(tmp_path):
    model = tiny_checkpoint(tmp_path)
    body = {"prompt": "Hi", "stream": True, "n": 8, "max_tokens": 500, "ignore_eos": True}
    with running_server(model, "--drain", "60") as (process, url, log):
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            for line in process.stderr:
                log += line
                if "force quit" in line:
                    break
            process.send_signal(signal.SIGINT)
            log += process.stderr.read()
        assert process.wait(20) == 130 and "Traceback" not in log and "ERROR" not in log, log


@pytest.mark.heavy
def test_from_start_to_stop(tmp_path):
    model, key = tiny_checkpoint(tmp_path), "from the environment"
    options = ("--drain", "1", "--connections-per-peer", "2")
    with running_server(model, *options, DEEPSEEK_V32_API_KEY=key) as (process, url, log):
        assert f"API: {url}/v1" in log  # the port that 0 has taken
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            assert http.get("/v1/models").json()["data"][0]["id"] == Path(model).name
            answer = http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 3, "ignore_eos": True})
            assert answer.json()["usage"]["completion_tokens"] == 3
        assert httpx.get(url + "/metrics").status_code == 401
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))).sendall(
                    b"GET"
                )
            refused = httpx.get(url + "/health", headers=headers)
            assert refused.status_code == 503 and "2 open connections" in refused.json()["error"]["message"]
        assert "Every route but /health and /ready requires the key" in log
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        log += process.stderr.read()
        process.wait(20)
        assert time.monotonic() - started < 20 and "Traceback" not in log, log
        assert process.returncode == 0
