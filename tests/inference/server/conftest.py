"""Servers that the tests of this folder share."""

import httpx
import openai
import pytest

from deepseek_v32.inference.server.service.service import Service
from support.fake_model import fake_llm
from support.server import serving, stand_in_llm


@pytest.fixture(scope="module")
def server(request):
    """A server that runs for the whole module, with the module's LIMITS. Every test must leave it idle."""
    with serving(Service(stand_in_llm(**getattr(request.module, "LIMITS", {})), max_queue=40)) as server:
        yield server


@pytest.fixture
def service():
    with Service(fake_llm(page_count=128)) as service:
        yield service


@pytest.fixture
def http(server):
    server.model.forget()
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
    assert server.idle()


@pytest.fixture
def client(server):
    server.model.forget()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=30) as client:
        yield client
    assert server.idle()
