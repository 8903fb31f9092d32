"""Structured outputs through the libraries with which people ask for them, each against the same small server."""

import os

import pydantic
import pytest

from deepseek_v32.inference.server.service.service import Service
from support.server import MODEL, serving, stand_in_llm

pytestmark = pytest.mark.heavy
QUESTION = "Which animal?"


class Animal(pydantic.BaseModel):
    """An animal to adopt."""

    kind: str = pydantic.Field(pattern="^(cat|dog)$")
    age: int = pydantic.Field(ge=0, le=30)


@pytest.fixture(scope="module")
def url():
    with serving(Service(stand_in_llm(max_model_len=4096, page_count=128))) as server:
        yield f"{server.url}/v1"
        assert server.idle()


def is_animal(value):
    return isinstance(value, Animal) and value.kind in ("cat", "dog") and 0 <= value.age <= 30


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain(url, method):
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(model=MODEL, base_url=url, api_key="any", max_completion_tokens=1500, seed=2)
    assert is_animal(model.with_structured_output(Animal, method=method).invoke(QUESTION))


@pytest.mark.parametrize("mode", ["JSON_SCHEMA", "TOOLS"])
def test_instructor(url, mode):
    instructor = pytest.importorskip("instructor")
    import openai

    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode[mode])
        ask = {
            "model": MODEL,
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": 1500,
            "max_retries": 0,
        }
        assert is_animal(client.chat.completions.create(**ask, response_model=Animal, seed=3))


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_litellm(url, provider):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it loads a table from the network
    litellm = pytest.importorskip("litellm")
    ask = {"model": f"{provider}/{MODEL}", "api_base": url, "api_key": "any", "max_tokens": 1500}
    ask["messages"] = [{"role": "user", "content": QUESTION}]
    answer = litellm.completion(**ask, response_format=Animal, seed=1)
    assert is_animal(Animal.model_validate_json(answer.choices[0].message.content))
    tools = [{"type": "function", "function": {"name": "adopt", "parameters": Animal.model_json_schema()}}]
    stream = litellm.completion(**ask, tools=tools, tool_choice="required", seed=1, stream=True)
    deltas = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or []]
    arguments = "".join(call.function.arguments for call in deltas if call.index == 0)
    assert deltas[0].function.name == "adopt" and is_animal(Animal.model_validate_json(arguments))
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**ask | {"messages": [{"role": "user", "content": "a b " * 5000}]})
