"""More clients than the server has room for."""

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
    """The outcomes of the requests of 32 clients, which run for `seconds`, stream, and sometimes disconnect."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    outcomes = []

    async def one(number):
        chance = random.Random(number)
        # Without verify=False, 32 clients take seconds to read certificates that they do not need.
        async with httpx.AsyncClient(base_url=server.url, timeout=60, verify=False) as http:
            while clock() < end:
                prompt = [chance.randrange(5, 300) for _ in range(chance.randrange(1, 150))]
                body = {"prompt": prompt, "max_tokens": chance.randrange(1, 40), "ignore_eos": True}
                mode = chance.choice(["whole", "stream", "leave"])
                async with http.stream("POST", "/v1/completions", json={**body, "stream": mode != "whole"}) as response:
                    if response.status_code == 200 and mode == "leave":
                        await anext(response.aiter_lines())
                        outcomes.append("left")
                        continue
                    text = (await response.aread()).decode()
                if response.status_code == 200:
                    good = text.endswith("data: [DONE]\n\n") if mode == "stream" else '"length"' in text
                    outcomes.append("answered" if good else text)
                else:
                    outcomes.append("refused" if response.status_code == 503 else text)
                    assert int(response.headers["retry-after"]) >= 1
                    await asyncio.sleep(0.05)

    await asyncio.gather(*map(one, range(CLIENTS)))
    return outcomes


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)], ids=["short", "long"])
@pytest.mark.heavy
def test_everyone_is_answered_or_refused(tmp_path, seconds):
    llm = LLM(tiny_checkpoint(tmp_path), device="cpu", **ROOM)
    with serving(Service(llm, max_queue=8)) as server:
        outcomes = asyncio.run(crowd(server, seconds))
        print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
        assert set(outcomes) == {"answered", "refused", "left"}
        assert server.idle(30)
        llm.engine.pool.check()
        finished = server.service.stats().engine.finished
        assert set(finished) <= {"length", "abort"}
        assert httpx.get(server.url + "/ready").status_code == 200
