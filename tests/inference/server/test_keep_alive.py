"""Streams while a prompt is computed: something is sent, and clients see nothing of it."""

import json
import threading
import time

import openai
import pytest

from deepseek_v32.inference.server.api import events
from support.server import MODEL

ASK = [{"role": "user", "content": "Hi"}]
STREAMS = {
    "/v1/chat/completions": {"messages": ASK, "max_tokens": 5},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 5},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 5},
    "/v1/messages": {"messages": ASK, "max_tokens": 5},
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.01)


@pytest.mark.parametrize(("path", "body"), STREAMS.items(), ids=STREAMS)
def test_a_stream_is_never_silent_for_long(server, http, path, body):
    """Comments, which the event-stream format has for this, or Anthropic's event."""
    gate, pings, lines = threading.Event(), 0, []
    server.model.before_step = lambda: gate.wait(20)
    with http.stream("POST", path, json={**body, "stream": True}) as response:
        for line in response.iter_lines():
            pings += line.startswith((": ", "event: ping"))
            lines.append(line)
            if pings == 3:
                gate.set()
    assert pings >= 3
    comments = [line for line in lines if line.startswith(":")]
    assert bool(comments) == (path != "/v1/messages")
    if path == "/v1/messages":
        assert lines[lines.index("event: ping") + 1] == 'data: {"type": "ping"}'
    assert [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_clients_see_nothing_of_it(server, http):
    """openai and anthropic, which read what each slow step gives."""
    anthropic = pytest.importorskip("anthropic")
    server.model.before_step = lambda: time.sleep(0.05)
    ask = {"model": MODEL, "messages": ASK, "temperature": 0}
    whole = http.post("/v1/chat/completions", json={**ask, "max_tokens": 5}).json()["choices"][0]["message"]["content"]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        chunks = list(client.chat.completions.create(**ask, max_tokens=5, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
        texts = client.completions.create(model=MODEL, prompt="Hi", max_tokens=5, stream=True)
        assert [chunk.choices[0].finish_reason for chunk in texts][-1] == "length"
        with client.responses.stream(model=MODEL, input="Hi", max_output_tokens=5, temperature=0) as stream:
            assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == whole
    asked = {"model": MODEL, "messages": ASK, "max_tokens": 5, "extra_body": {"temperature": 0}}
    with (
        anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client,
        client.messages.stream(**asked) as stream,
    ):
        assert "".join(stream.text_stream) == whole
