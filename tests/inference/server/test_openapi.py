"""The server against its own OpenAPI document: requests that follow it and requests that break it, made by schemathesis."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from deepseek_v32.inference.server.api import responses
from deepseek_v32.inference.server.api.messages_api.schema import Message, TokenCount
from deepseek_v32.inference.server.api.response_api.schema import ResponseObject
from deepseek_v32.inference.server.service.service import Service
from support.pages import check_pool
from support.server import MODEL, serving, stand_in_llm

COMMAND = Path(sys.executable).with_name("schemathesis")
HOOKS = Path(__file__).parents[2] / "support" / "openapi_hooks.py"
HANG_SECONDS = 10


@pytest.mark.parametrize(
    ("paths", "examples", "at_least", "tokens"),
    [
        pytest.param("/chat/|/v1/completions", 2, 900, 900, id="chat-completions"),
        pytest.param("/responses|/messages|^/(v1/models|[^v])", 2, 900, 400, id="others"),
        pytest.param("", 500, 2000, 1000, marks=pytest.mark.slow, id="long"),
    ],
)
@pytest.mark.heavy
def test_requests_by_the_document(tmp_path, paths, examples, at_least, tokens):
    """Errors must be declared, answers must follow their schema, and no request may hang.

    A request may be refused by rules that a schema cannot express: a conversation that ends in an answer, an id beyond the
    vocabulary. One worker: with more, hypothesis parses Python in several threads at a time, at which CPython 3.11 raises
    "AST constructor recursion depth mismatch" now and then.
    """
    # The context is short enough for an answer to fill it well within HANG_SECONDS.
    with serving(Service(stand_in_llm(max_model_len=128), max_queue=1000)) as server:
        result = subprocess.run(
            [COMMAND, "run", f"{server.url}/openapi.json", "--mode=all", f"--max-examples={examples}", "--seed=1",
             f"--request-timeout={HANG_SECONDS}", "--workers=1", "--phases=examples,coverage,fuzzing",
             "--exclude-checks=positive_data_acceptance", "--no-color", f"--include-path-regex={paths}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=1800,
            env={**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)},
        )  # fmt: skip
        assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
        generated = int(re.search(r"(\d+) generated", result.stdout).group(1))
        print(f"{generated} requests")
        assert generated >= at_least
        assert server.idle()
        assert server.service.stats().engine.generated_tokens >= tokens  # valid requests have reached the model
        with httpx.Client(base_url=server.url) as http:
            assert http.get("/health").status_code == http.get("/ready").status_code == 200
            assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
        check_pool(server.llm.engine.pool)


def test_answers_are_what_the_document_says(http):
    """Every field is declared, because clients are generated from the document."""
    chat = {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 3,
        "logprobs": True,
        "top_logprobs": 2,
        "prompt_logprobs": 1,
    }
    thinking = {**chat, "chat_template_kwargs": {"thinking": True}}
    text = {"prompt": "a", "max_tokens": 3, "logprobs": 2, "echo": True, "prompt_logprobs": 2}
    respond = {
        "input": "Hi",
        "max_output_tokens": 3,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}},
    }
    respond["tools"] = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    speak = {"messages": chat["messages"]}
    for model, method, path, body in (
        (responses.ChatCompletion, "POST", "/v1/chat/completions", chat),
        (responses.ChatCompletion, "POST", "/v1/chat/completions", thinking),
        (responses.TextCompletion, "POST", "/v1/completions", text),
        (ResponseObject, "POST", "/v1/responses", respond),
        (Message, "POST", "/v1/messages", {**speak, "max_tokens": 3, "thinking": {"type": "enabled"}}),
        (TokenCount, "POST", "/v1/messages/count_tokens", speak),
        (responses.TokenizerInfo, "GET", "/tokenizer_info", None),
        (responses.ModelList, "GET", "/v1/models", None),
        (responses.TokenizeResponse, "POST", "/tokenize", {"prompt": "a"}),
        (responses.DetokenizeResponse, "POST", "/detokenize", {"tokens": [5]}),
        (responses.Health, "GET", "/health", None),
        (responses.Version, "GET", "/version", None),
    ):
        answer = http.request(method, path, json=body).json()
        assert model.model_validate(answer).model_dump(exclude_unset=True) == answer


def test_the_document(http):
    document = http.get("/openapi.json").json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(operations) == 16
    for operation in operations:
        assert {"400", "401", "403", "500"} <= set(operation["responses"]) and "422" not in operation["responses"]
    [model, _] = document["components"]["schemas"]["ChatRequest"]["properties"]["model"]["anyOf"]
    assert model["enum"] == [MODEL]
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
        answers = document["paths"][path]["post"]["responses"]
        assert {"503", "504"} <= set(answers) and "Retry-After" in answers["503"]["headers"]
        assert set(answers["200"]["content"]) == {"application/json", "text/event-stream"}
