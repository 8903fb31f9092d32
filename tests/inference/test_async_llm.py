"""AsyncLLM: the answers of `LLM`, awaited."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from deepseek_v32.inference import LLM, AsyncLLM, ChatCompletion, SamplingParams
from deepseek_v32.inference.text.answer import AnswerDelta
from support.fake_model import EOS, ByteTokenizer, ScriptedModel, fake_config, fake_llm

GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=3500, ignore_eos=True)
ASK = [{"role": "user", "content": "Where?"}]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_more_coroutines_than_places_get_the_answers_of_llm() -> None:
    prompts = [[i, i + 1] for i in range(25)]
    expected = [each.token_ids for each in fake_llm().generate(prompts, GREEDY)]

    async def work() -> None:
        async with AsyncLLM(fake_llm(max_sequences=2)) as llm:
            one_by_one = await asyncio.gather(*(llm.generate(prompt, GREEDY) for prompt in prompts))
            together = await llm.generate(prompts, GREEDY)
            assert [each.token_ids for [each] in one_by_one] == [each.token_ids for each in together] == expected
            streams = await asyncio.gather(*(streamed(llm, prompt) for prompt in prompts[:3]))
            assert streams == expected[:3] and llm.stats().finished == {"length": 53}

    async def streamed(llm: AsyncLLM, prompt: list[int]) -> list[int]:
        return [token async for delta in llm.stream(prompt, GREEDY) for token in delta.token_ids]

    run(work())


def test_n_answers_and_recordings() -> None:
    random = SamplingParams(temperature=1, seed=5, n=2, max_tokens=6, ignore_eos=True)
    expected = [each.token_ids for each in fake_llm().generate([[1], [2]], random)]

    async def work() -> None:
        async with AsyncLLM(fake_llm()) as llm:
            assert [each.token_ids for each in await llm.generate([[1], [2]], random)] == expected

    run(work())


def test_conversations() -> None:
    config = fake_config()
    model = ScriptedModel(config, [0, *b"I think.</think>Here. <", EOS])
    plain = LLM.from_model(model, config, ByteTokenizer(), page_count=64)
    plain.requests.chat_token_ids = lambda *_: [0]  # type: ignore[method-assign]  # the scripted model's prompt

    async def work() -> None:
        async with AsyncLLM(plain) as llm:
            one = await llm.chat(ASK, thinking=True)
            assert isinstance(one, ChatCompletion) and one.message.content == "Here. <"
            assert [each.message for each in await llm.chat([ASK, ASK], thinking=True)] == [one.message] * 2
            deltas = [delta async for delta in llm.stream_chat(ASK, thinking=True)]
            whole = sum((delta.message for delta in deltas), AnswerDelta())
            assert (whole.reasoning_content, whole.content) == ("I think.", "Here. <")
            assert deltas[-1].completion is not None and deltas[-1].completion.message == one.message

    run(work())


def test_a_cancelled_task_and_a_left_stream_cancel_their_requests() -> None:
    async def work() -> None:
        async with AsyncLLM(fake_llm(max_sequences=2)) as llm:
            tasks = [asyncio.create_task(llm.generate([[i], [i + 1]], LONG)) for i in range(5)]
            async with aclosing(llm.stream([1], GREEDY)) as stream:
                async for _ in stream:
                    break
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            [after] = await llm.generate([7], GREEDY)
            assert len(after.token_ids) == 20 and llm.stats().pages_used == 0
            assert set(llm.stats().finished) <= {"abort", "length"}

    run(work())


def test_errors_are_those_of_llm_and_the_llm_itself_is_in_use() -> None:
    async def work() -> None:
        plain = fake_llm()
        with pytest.raises(ValueError, match="llm is 'demo'; expected an LLM"):
            AsyncLLM("demo")  # type: ignore[arg-type]
        async with AsyncLLM(plain) as llm:
            with pytest.raises(ValueError, match="prompts is None; expected"):
                await llm.generate(None)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="n is 2; expected 1 for one answer"):
                await anext(llm.stream("a", SamplingParams(n=2)))
            with pytest.raises(
                RuntimeError, match="LLM is used by an AsyncLLM, which closes it at the end; expected one user"
            ):
                plain.generate([1], GREEDY)
            assert repr(llm).startswith("AsyncLLM(")
            unfinished = asyncio.create_task(llm.generate([1], LONG))
            while not llm.stats().running:
                await asyncio.sleep(0.01)
        [ended] = await unfinished
        assert (ended.finish_reason, ended.error) == ("error", "the server has stopped")
        await llm.close()
        with pytest.raises(ValueError, match="LLM is closed; expected an open one"):
            await llm.generate([1])
        with pytest.raises(ValueError, match="LLM is closed; expected an open one"):
            plain.generate([1])
        assert repr(llm) == "AsyncLLM(closed)"

    run(work())
