"""`return_selections`: what each token read, over HTTP, equals what the engine recorded."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.server.service.service import Service
from support.server import MODEL, serving
from support.tiny import tiny_checkpoint

TOPK = 24
WORDS = [{"role": "user", "content": "some words to read and to choose from, more than the model selects. " * 3}]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path: Path = tiny_checkpoint(tmp_path_factory.mktemp("selections"))
    return LLM(path, device="cpu", precision="exact", page_count=64, config_overrides={"index_topk": TOPK})


@pytest.fixture(scope="module")
def expected(llm: LLM) -> Any:
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    return llm.generate(llm.chat_token_ids(WORDS), params, inspect=True)[0]


@pytest.fixture(scope="module")
def server(llm: LLM, expected: Any) -> Any:
    with serving(Service(llm)) as running, httpx.Client(base_url=running.url) as http:
        yield http


def check(found: list[dict[str, Any]], expected: Any) -> None:
    assert len(found) == len(expected.selection) == 5
    for ours, theirs in zip(found, expected.selection, strict=True):
        assert ours["query_position"] == theirs.position
        for layer in (0, 1):
            assert ours["layers"][str(layer)] == theirs.layers[layer].tolist() and len(theirs.layers[layer]) == TOPK
            assert ours["scores"][str(layer)] == pytest.approx(theirs.scores[layer].tolist(), abs=1e-4)


BODY = {"model": MODEL, "temperature": 0, "max_tokens": 5, "ignore_eos": True, "return_selections": True}


def test_of_a_whole_answer(server: Any, llm: LLM, expected: Any) -> None:
    chat = server.post("/v1/chat/completions", json={**BODY, "messages": WORDS}).json()["choices"][0]
    check(chat["selections"], expected)
    prompt = llm.chat_token_ids(WORDS)
    plain = server.post("/v1/completions", json={**BODY, "prompt": prompt}).json()["choices"][0]
    check(plain["selections"], expected)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_of_a_stream(server: Any, llm: LLM, expected: Any, path: str) -> None:
    asked = {"messages": WORDS} if "chat" in path else {"prompt": llm.chat_token_ids(WORDS)}
    response = server.post(path, json={**BODY, **asked, "stream": True})
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    check([each for event in events for each in event["choices"][0].get("selections", [])], expected)


def test_off_by_default(server: Any) -> None:
    body = {**BODY, "messages": WORDS, "return_selections": None}
    assert "selections" not in server.post("/v1/chat/completions", json=body).json()["choices"][0]
