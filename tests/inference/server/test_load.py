"""More clients than there is room for."""

import asyncio
import random

import httpx
import pytest

from deepseek_v32.inference import LLM
from deepseek_v32.inference.service.service import Service
from support.server import serving
from support.tiny import tiny_checkpoint

CLIENTS = 32
ROOM = {"max_sequences": 4, "page_count": 24, "max_model_len": 512}


async def crowd(server, seconds):
    """What 32 clients were answered that ask, stream, and sometimes hang up, for so long."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    heard = []

    async def one(number):
        chance = random.Random(number)
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            while clock() < end:
                prompt = [chance.randrange(5, 300) for _ in range(chance.randrange(1, 150))]
                body = {"prompt": prompt, "max_tokens": chance.randrange(1, 40), "ignore_eos": True}
                fate = chance.choice(["whole", "stream", "leave"])
                async with http.stream("POST", "/v1/completions", json={**body, "stream": fate != "whole"}) as response:
                    if response.status_code == 200 and fate == "leave":
                        await anext(response.aiter_lines())
                        heard.append("left")
                        continue
                    text = (await response.aread()).decode()
                if response.status_code == 200:
                    good = text.endswith("data: [DONE]\n\n") if fate == "stream" else '"length"' in text
                    heard.append("answered" if good else text)
                else:
                    heard.append("refused" if response.status_code == 503 else text)
                    assert int(response.headers["retry-after"]) >= 1
                    await asyncio.sleep(0.05)

    await asyncio.gather(*map(one, range(CLIENTS)))
    return heard


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)], ids=["short", "long"])
@pytest.mark.heavy
def test_everyone_is_answered_or_refused(tmp_path, seconds):
    llm = LLM(tiny_checkpoint(tmp_path), device="cpu", **ROOM)
    with serving(Service(llm, max_queue=8)) as server:
        heard = asyncio.run(crowd(server, seconds))
        print({word: heard.count(word) for word in set(heard)})
        assert set(heard) == {"answered", "refused", "left"}
        assert server.idle(30)
        llm.engine.pool.check()
        finished = server.service.stats().engine.finished
        assert set(finished) <= {"length", "abort"}
        assert httpx.get(server.url + "/ready").status_code == 200
