"""Texts of megabytes: refused before they are encoded if they cannot fit, and no burden on others if they might."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from deepseek_v32.inference.server.api import context
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.text.tokenizer import Tokenizer
from support.server import serving, stand_in_llm

LONG = "The quick brown fox. " * 25_000
PATHS = {
    "/tokenize": lambda text: {"prompt": text},
    "/v1/completions": lambda text: {"prompt": text, "max_tokens": 1},
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
}


@pytest.mark.parametrize("path", PATHS)
def test_what_cannot_fit_is_refused_before_it_is_encoded(server, http, path, monkeypatch):
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: pytest.fail("it was encoded"))
    refused = http.post(path, json=PATHS[path](LONG))
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "context_length_exceeded")
    words = error["message"].split()
    assert int(words[2]) >= len(LONG) and int(words[8]) > server.llm.limits.max_model_len
    assert f"expected at most {server.llm.limits.max_model_len - 1} tokens" in error["message"]


@pytest.mark.parametrize("path", PATHS)
def test_what_might_fit_is_encoded_and_then_refused_by_its_tokens(server, http, path):
    text = "T" * (server.llm.limits.max_model_len * 2)  # a byte of "The", too
    assert server.llm.tokenizer.least_tokens([text]) < server.llm.limits.max_model_len
    refused = http.post(path, json=PATHS[path](text))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert (
        f"{len(text)} tokens" in refused.json()["error"]["message"] or "at least" in refused.json()["error"]["message"]
    )


@pytest.fixture(scope="module")
def unknowing():
    """A server that cannot judge a text by its bytes."""
    with serving(Service(stand_in_llm())) as server:
        server.llm.tokenizer.least_tokens = lambda *_: 0
        yield server


@pytest.mark.parametrize("path", PATHS)
def test_others_are_answered_while_a_long_text_is_encoded(unknowing, path, monkeypatch):
    encoding_now, encode = threading.Event(), Tokenizer.encode

    def watched(*given, **options):
        encoding_now.set()
        try:
            return encode(*given, **options)
        finally:
            encoding_now.clear()

    monkeypatch.setattr(Tokenizer, "encode", watched)
    refused, answered = [], 0
    with httpx.Client(base_url=unknowing.url, timeout=60) as http:
        http.get("/health")
        asking = threading.Thread(
            target=lambda: refused.append(httpx.post(unknowing.url + path, json=PATHS[path](LONG), timeout=60))
        )
        asking.start()
        while asking.is_alive():
            if encoding_now.wait(0.001):
                assert http.get("/health").status_code == 200
                answered += encoding_now.is_set()
    assert refused[0].status_code == 400 and refused[0].json()["error"]["code"] == "context_length_exceeded"
    assert answered >= 5, answered


def test_a_queue_of_long_texts_has_an_end(unknowing, monkeypatch):
    monkeypatch.setattr(context, "MAX_OPEN", len(LONG) + 100)
    gate, begun = threading.Event(), threading.Event()
    encode = Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer, "encode", lambda *given, **options: (begun.set(), gate.wait(20), encode(*given, **options))[2]
    )
    first = threading.Thread(target=lambda: httpx.post(unknowing.url + "/tokenize", json={"prompt": LONG}, timeout=60))
    first.start()
    assert begun.wait(20)
    for path, body in PATHS.items():
        refused = httpx.post(unknowing.url + path, json=body(LONG))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert int(refused.headers["retry-after"]) >= 1
    gate.set()
    first.join()
    assert httpx.post(unknowing.url + "/tokenize", json={"prompt": "a"}).status_code == 200


def test_prompts_that_are_being_encoded_have_places_in_the_queue(monkeypatch):
    """Otherwise a crowd that comes at once would be encoded before most of it is refused."""
    gate, begun = threading.Event(), threading.Semaphore(0)
    encode = Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer, "encode", lambda *given, **options: (begun.release(), gate.wait(20), encode(*given, **options))[2]
    )
    with serving(Service(stand_in_llm(max_sequences=2), max_queue=1)) as server, ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(httpx.post, server.url + path, json=PATHS[path]("a"), timeout=30) for path in list(PATHS)[1:]
        ]
        asked.append(
            pool.submit(httpx.post, server.url + "/v1/completions", json=PATHS["/v1/completions"]("b"), timeout=30)
        )
        for _ in asked:
            assert begun.acquire(timeout=10)
        for path in list(PATHS)[1:]:
            refused = httpx.post(server.url + path, json=PATHS[path]("a"))
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy") and refused.headers[
                "retry-after"
            ]
        assert server.service.stats().refused == len(PATHS) - 1
        gate.set()
        assert [answer.result().status_code for answer in asked] == [200, 200, 200]
        assert httpx.post(server.url + "/v1/completions", json=PATHS["/v1/completions"]("c")).status_code == 200
