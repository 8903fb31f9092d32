"""LLM: streams, stop strings, threads, forks."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.inference import LLM, AsyncLLM, Delta, SamplingParams
from deepseek_v32.inference.server.service.service import Service
from support.fake_model import (
    EOS,
    ByteTokenizer,
    ScriptedModel,
    fake_config,
    fake_llm,
    reference_tokens,
)
from support.pages import check_pool

GREEDY = SamplingParams(temperature=0, max_tokens=60)


def scripted(text: str, **options: object) -> LLM:
    """An LLM that answers the prompt [0] with this text, one byte per token."""
    config = fake_config()
    model = ScriptedModel(config, [0, *text.encode(), EOS])
    return LLM.from_model(model, config, ByteTokenizer(), page_count=64, **options)


def texts(deltas: Iterator[Delta]) -> list[str]:
    return [delta.text for delta in deltas]


def test_a_stream_is_the_completion_in_pieces() -> None:
    llm = fake_llm()
    deltas = list(llm.stream([1, 2, 3], GREEDY))
    [whole] = llm.generate([[1, 2, 3]], GREEDY)
    last = deltas[-1]
    assert last.completion is not None and last.finish_reason == whole.finish_reason
    assert all(delta.completion is None and delta.finish_reason is None for delta in deltas[:-1])
    assert "".join(texts(iter(deltas))) == last.completion.text == whole.text
    assert [token for delta in deltas for token in delta.token_ids] == whole.token_ids


def test_characters_come_whole() -> None:
    text = "é→😀e\u0301 done"
    pieces = texts(scripted(text).stream([0]))
    assert "".join(pieces) == text and not any("\ufffd" in piece for piece in pieces)
    assert "😀" in pieces
    cut = scripted("a😀").generate([[0]], SamplingParams(max_tokens=3))[0]
    assert cut.text == "a\ufffd" and cut.finish_reason == "length"


def test_a_stop_string_may_match_an_incomplete_character_at_the_end() -> None:
    [cut] = scripted("a😀").generate([[0]], SamplingParams(max_tokens=3, stop="\ufffd"))
    assert (cut.text, cut.finish_reason, cut.stop_reason) == ("a", "stop", "\ufffd")


@pytest.mark.parametrize(
    "text,stop,shown,reason",
    [
        ("one STOP two", ["STOP"], "one ", "STOP"),
        ("one STO two", ["STOP"], "one STO two", None),
        ("one ST", ["STOP"], "one ST", None),
        ("aab", ["ab"], "a", "ab"),
        ("héé!", ["é!"], "hé", "é!"),
        ("STOP", ["STOP"], "", "STOP"),
        ("x</a></b>", ["</b>", "</a>"], "x", "</a>"),
    ],
)
def test_stop_strings_never_show_not_even_in_part(text: str, stop: list[str], shown: str, reason: str | None) -> None:
    llm = scripted(text)
    deltas = list(llm.stream([0], SamplingParams(stop=stop, max_tokens=100)))
    seen = ""
    for delta in deltas:
        seen += delta.text
        assert shown.startswith(seen)
    completion = deltas[-1].completion
    assert completion is not None and seen == completion.text == shown
    assert completion.finish_reason == "stop" and completion.stop_reason == reason
    assert llm.stats().pages_used == 0


def test_closing_a_stream_cancels_it_and_frees_its_pages() -> None:
    llm = fake_llm()
    stream = llm.stream([5] * 100, GREEDY)
    next(stream)
    assert llm.stats().pages_used == 2
    stream.close()
    assert llm.stats().pages_used == 0 and not llm.engine.has_work
    assert llm.stats().finished == {"abort": 1}
    check_pool(llm.engine.pool)


def test_closing_one_of_several_completions_cancels_the_rest() -> None:
    llm = fake_llm()
    params = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in (50, 2, 50)]
    completions = llm.as_completed([[1], [2], [3]], params)
    index, completion = next(completions)
    assert index == 1 and len(completion.token_ids) == 2
    completions.close()
    assert not llm.engine.has_work and llm.stats().finished == {"length": 1, "abort": 2}


def test_a_stream_that_was_never_started_runs_nothing() -> None:
    llm = fake_llm()
    llm.stream([1], GREEDY).close()
    assert not llm.engine.has_work


def test_interrupting_a_step_leaves_the_engine_usable() -> None:
    llm = fake_llm()
    other = llm.stream([4, 5], GREEDY)
    start = [next(other).token_ids[0] for _ in range(3)]

    def interrupt() -> None:
        raise KeyboardInterrupt

    llm.model.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1, 2, 3]], GREEDY)
    llm.model.before_step = lambda: None
    assert start + [delta.token_ids[0] for delta in other] == reference_tokens([4, 5], 60)
    assert llm.stats().pages_used == 0


def test_two_streams_of_one_thread_share_the_steps() -> None:
    llm = fake_llm()
    first, second = llm.stream([1], GREEDY), llm.stream([2], GREEDY)
    got: list[list[int]] = [[], []]
    for pair in zip(first, second, strict=False):
        for tokens, delta in zip(got, pair, strict=True):
            tokens += delta.token_ids
    for tokens, stream, prompt in zip(got, (first, second), (1, 2), strict=True):
        tokens += [token for delta in stream for token in delta.token_ids]
        assert tokens[:59] == reference_tokens([prompt], 60)[:59]
    assert max(len(step.query_lengths) for step in llm.model.steps) == 2


def in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in another thread and return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(60)


def test_one_thread_after_another_may_use_it_even_while_a_stream_is_open() -> None:
    llm = fake_llm()
    stream = llm.stream([4, 5], GREEDY)
    tokens = [next(stream).token_ids[0] for _ in range(3)]
    [other] = in_thread(lambda: llm.generate([[1, 2]], GREEDY))
    assert other.token_ids == reference_tokens([1, 2], 60)
    tokens += in_thread(lambda: [next(stream).token_ids[0] for _ in range(3)])
    assert tokens + [delta.token_ids[0] for delta in stream] == reference_tokens([4, 5], 60)
    assert llm.stats().pages_used == 0


def test_a_call_during_a_call_of_another_thread_is_refused() -> None:
    llm = fake_llm()
    idle = llm.stream([7], GREEDY)
    next(idle)
    calls: list[Callable[[], Any]] = [
        lambda: llm.generate([[1]], GREEDY),
        lambda: next(llm.stream([1], GREEDY)),
        lambda: next(idle),
        lambda: llm.logits([1]),
        lambda: llm.stats(),
    ]
    refused: list[str] = []

    def use_from_elsewhere() -> None:
        for call in calls:
            with pytest.raises(RuntimeError) as caught:
                in_thread(call)
            refused.append(str(caught.value))
        calls.clear()

    llm.model.before_step = use_from_elsewhere
    [completion] = llm.generate([[4, 5]], GREEDY)
    assert completion.token_ids == reference_tokens([4, 5], 60)
    assert len(refused) == 5
    assert all("is used by thread 'MainThread'; expected one user at a time" in message for message in refused)
    assert list(idle) == [] and llm.stats().finished["abort"] == 1  # a stream that was refused a step has ended
    assert llm.stats().pages_used == 0


def test_a_forked_child_is_refused_with_a_line() -> None:
    """It has none of the threads that compute: it would wait for them for ever."""
    llm, service = fake_llm(), Service(fake_llm())
    idle = llm.stream([7], GREEDY)
    next(idle)
    calls: list[Callable[[], Any]] = [
        lambda: llm.generate([[1]], GREEDY),
        lambda: llm.stream([1], GREEDY),
        lambda: next(idle),
        lambda: llm.logits([1]),
        lambda: llm.stats(),
        lambda: llm.driver,
        lambda: service.stream([1], GREEDY),
        lambda: AsyncLLM(llm),
    ]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for call in calls:
            try:
                call()
            except Exception as error:
                os.write(writing, f"{type(error).__name__}: {error}\n".encode())
        llm.close()  # leaves everything to the parent
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        refused = pipe.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0
    told = f"RuntimeError: LLM is used in process {child}, a fork of {os.getpid()}, which made it; expected "
    assert len(refused) == len(calls) and all(line.startswith(told) for line in refused)
    service.stop()
    assert len(list(idle)) == 59 and llm.stats().finished == {"length": 1}


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["", "in-another-thread"])
def test_a_forgotten_stream_may_be_closed_in_the_middle_of_a_step(elsewhere: bool) -> None:
    """The garbage collector may close a stream at any time in any thread; it does not wait for the step, and raises nothing."""
    llm = fake_llm()
    forgotten: list[Iterator[Delta]] = [llm.stream([8, 9], GREEDY)]
    next(forgotten[0])

    def forget() -> None:
        if forgotten:
            if elsewhere:
                in_thread(forgotten.clear)
            else:
                forgotten.clear()

    llm.model.before_step = forget
    [completion] = llm.generate([[4, 5]], GREEDY)
    assert completion.token_ids == reference_tokens([4, 5], 60)
    assert llm.stats().finished["abort"] == 1 and llm.stats().pages_used == 0
    check_pool(llm.engine.pool)


def test_a_stream_forgotten_in_the_last_step_is_cancelled_by_the_next_use() -> None:
    llm = fake_llm()
    forgotten = [llm.stream([8, 9], GREEDY)]
    next(forgotten[0])
    llm.model.before_step = forgotten.clear
    llm.logits([1, 2, 3])
    stats = llm.stats()
    assert stats.finished == {"abort": 1} and stats.pages_used == stats.running == 0 and not llm.engine.has_work


def test_generate_takes_one_or_many_prompts_and_params() -> None:
    llm = scripted("abc")
    assert [c.text for c in llm.generate([0])] == ["abc"]
    assert [c.text for c in llm.generate("\0")] == ["abc"]
    assert [c.text for c in llm.generate(["\0", [0]])] == ["abc", "abc"]
    assert [c.text for c in llm.generate(np.array([0]))] == [c.text for c in llm.generate(torch.tensor([0]))] == ["abc"]
    assert [c.text for c in llm.generate([np.array([0]), torch.tensor([0])])] == ["abc", "abc"]
    assert llm.generate([]) == []
    few = [SamplingParams(max_tokens=1), SamplingParams(max_tokens=2)]
    assert [c.text for c in llm.generate([[0], [0]], few)] == ["a", "ab"]
    with pytest.raises(ValueError, match="params has 2 entries; expected one, or one for each of the 1 prompts"):
        llm.generate([[0]], few)


def test_text_begins_with_the_bos_token_and_token_ids_stay_as_they_are() -> None:
    llm = fake_llm()
    assert llm.tokenizer is not None
    llm.tokenizer.bos_id = 7
    greedy = SamplingParams(temperature=0, max_tokens=5)
    text, ids = llm.generate(["ab", [7, *b"ab"]], greedy)
    assert text.token_ids == ids.token_ids and text.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    ("name", "meant"),
    [("model", "path"), ("max_num_seqs", "max_sequences"), ("gpu_memory_utilization", "memory_fraction"),
     ("max_modl_len", "max_model_len"), ("zzz", None)],
)  # fmt: skip
def test_an_argument_of_another_name_gets_a_hint(name, meant):
    with pytest.raises(TypeError) as caught:
        LLM(**{name: "x"})
    assert str(caught.value) == f"LLM has no argument {name}" + (f"; did you mean {meant}?" if meant else "")
