"""Speculative decoding as users meet it: LLM, its options, streams, what is reported; and the scheduler's bookkeeping of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands.options import ModelOptions
from deepseek_v32.inference.config import AUTO, EngineConfig
from deepseek_v32.inference.distributed.model_source import ModelSource
from deepseek_v32.inference.engine.running.eager_step import EagerStep
from deepseek_v32.inference.engine.scheduling.pace import UNBOUNDED, Pace
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from tiny_model.checkpoint import TINY, write_checkpoint

PROMPTS = [[5, 9, 2], [7] * 70, list(range(3, 90)), list(range(3, 90))]
KINDS: list[dict[str, Any]] = [
    dict(temperature=0, logprobs=2),
    dict(temperature=0.7, seed=3, top_p=0.9, presence_penalty=0.5, repetition_penalty=1.2),
    dict(temperature=1, seed=4, logprobs=1),
    dict(temperature=0, frequency_penalty=1.5, logprobs=0),
]
PARAMS = [SamplingParams(max_tokens=20 + i, ignore_eos=True, **kind) for i, kind in enumerate(KINDS)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mtp")
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2, num_nextn_predict_layers=1, index_topk=16))
    return directory


@pytest.fixture(scope="module")
def plain(checkpoint: Path) -> LLM:
    return LLM(checkpoint, device="cpu", speculative_tokens=0)


@pytest.mark.parametrize("count", [1, 4, "auto"])
def test_answers_are_those_of_plain_decoding(checkpoint: Path, plain: LLM, count: Any) -> None:
    """Answers agree in chunks, with a reused prefix, sampled and streamed. Selections come from each token's own row."""
    llm = LLM(checkpoint, device="cpu", speculative_tokens=count, max_batch_tokens=40, max_sequences=3)
    expected = plain.generate(PROMPTS, PARAMS, inspect=True)
    for prompt, params, whole in zip(PROMPTS, PARAMS, expected, strict=True):
        deltas = list(llm.stream(prompt, params))
        assert [token for delta in deltas for token in delta.token_ids] == whole.token_ids
        assert all(len(delta.token_ids) == 1 for delta in deltas)
    for got, whole in zip(llm.generate(PROMPTS, PARAMS, inspect=True), expected, strict=True):
        assert (got.token_ids, got.finish_reason) == (whole.token_ids, whole.finish_reason)
        assert [each.logprob for each in got.logprobs or []] == pytest.approx(
            [each.logprob for each in whole.logprobs or []], abs=1e-4
        )
        assert got.selection is not None and whole.selection is not None
        for one, other in zip(got.selection, whole.selection, strict=True):
            assert one.position == other.position and not other.drafted
            for layer, positions in other.layers.items():
                assert one.positions(layer).tolist() == positions.tolist()
        assert sum(each.drafted for each in got.selection) == got.timings.drafted_tokens
    stats = llm.stats()
    assert stats.drafted_tokens[0] > 0
    assert all(right <= made for made, right in zip(stats.drafted_tokens, stats.accepted_tokens, strict=True))
    assert plain.stats().drafted_tokens == [0] * 4
    assert not llm.engine.pool.used


def test_tokens_are_the_limit_of_an_answer_and_of_a_context(checkpoint: Path, plain: LLM) -> None:
    """Drafts never go past them, although the last page is full to its last slot."""
    sizes: dict[str, Any] = dict(device="cpu", page_count=2, max_model_len=128)
    llm = LLM(checkpoint, speculative_tokens=4, **sizes)
    for count in (1, 2, 3, 41):
        params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        [got], [expected] = llm.generate([PROMPTS[2]], params), plain.generate([PROMPTS[2]], params)
        assert got.token_ids == expected.token_ids and len(got.token_ids) == count
    [whole] = llm.generate([PROMPTS[2]], SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
    assert len(whole.token_ids) + len(PROMPTS[2]) == 128


def test_long_prompts_of_short_answers_are_left_out(
    checkpoint: Path, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft layer goes over a running answer and over a question, and not over the prompt between them."""
    llm = LLM(checkpoint, device="cpu", speculative_tokens="auto", max_batch_tokens=32)
    engine, seen = llm.engine, []
    draft = EagerStep._draft
    # Drafts go on, although most are wrong.
    monkeypatch.setattr(engine.scheduler.speculation.policy, "choose", lambda sequences, ready: 1)

    def observed(step: EagerStep, *arguments: Any) -> None:
        seen.append((step.batch.draft_entries, tuple(each.id for each in step.batch.requests)))
        draft(step, *arguments)

    monkeypatch.setattr(EagerStep, "_draft", observed)
    cases = [(PROMPTS[0], 20), (PROMPTS[2], 3), ([4, 8, 1, 6], 12)]
    asked = [(prompt, SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)) for prompt, count in cases]
    ids = [engine.add_request(*asked[0]).id]
    answers: dict[int, list[int]] = {}
    while engine.has_work:
        for delta in engine.step():
            answers.setdefault(delta.request_id, []).extend(delta.token_ids)
        if len(ids) == 1:
            ids += [engine.add_request(*each).id for each in asked[1:]]
    prompts, params = zip(*asked, strict=True)
    assert list(answers[id] for id in ids) == [each.token_ids for each in plain.generate(prompts, params)]
    assert (2, (ids[0], ids[2], ids[1])) in seen  # what is left out comes last
    assert all(count is None or ids[1] == order[-1] for count, order in seen)


def test_steps_with_prompt_tokens_make_as_few_drafts_as_the_pace_says(
    checkpoint: Path, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers next to a prompt do not wait for many drafts: on a GPU such a step launches every operation one by one."""
    llm = LLM(checkpoint, device="cpu", speculative_tokens=3, max_batch_tokens=32)
    engine, seen = llm.engine, set()
    engine.scheduler.pace = Pace(replace(UNBOUNDED, most_drafts=1))
    draft = EagerStep._draft

    def observed(step: EagerStep, *arguments: Any) -> None:
        seen.add((step.batch.decodes < len(step.batch.requests), step.batch.draft_tokens))
        draft(step, *arguments)

    monkeypatch.setattr(EagerStep, "_draft", observed)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    prompts = [PROMPTS[0], PROMPTS[2]]
    assert [each.token_ids for each in llm.generate(prompts, params)] == [
        each.token_ids for each in plain.generate(prompts, params)
    ]
    assert {(True, 1), (False, 3)} <= seen and (True, 3) not in seen


def test_which_models_guess(checkpoint: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, replace(TINY, num_hidden_layers=2))
    on_cpu = EngineConfig(device="cpu")
    with_layer, without = ModelSource.resolve(checkpoint, on_cpu), ModelSource.resolve(tmp_path, on_cpu)
    assert [with_layer.with_drafts(value)[1] for value in ("auto", 0, 3)] == [AUTO, 0, 3]
    assert [with_layer.with_drafts(value)[0].mtp for value in ("auto", 0, 3)] == [True, False, True]
    assert [without.with_drafts(value)[1] for value in ("auto", 0)] == [0, 0]
    with pytest.raises(ValueError, match=r"^speculative_tokens is 2; expected 0 or 'auto': .*model\.layers\.2"):
        without.with_drafts(2)
    for value in (5, -1, "many", True, 1.5):
        with pytest.raises(ValueError, match=r"^speculative_tokens is .*; expected 0 to 4, or 'auto'$"):
            with_layer.with_drafts(value)  # type: ignore[arg-type]
    random = replace(with_layer, directory=None)  # random weights guess nothing
    assert [random.with_drafts(value)[1] for value in ("auto", 2)] == [0, 2]


def test_the_option_is_the_argument() -> None:
    assert ModelOptions().engine_config().speculative_tokens == "auto"
    assert ModelOptions(speculative_tokens="3").engine_config().speculative_tokens == 3


def test_a_page_with_drafts_is_found_by_what_follows_it() -> None:
    """The draft layer's last entry of a page depends on the next token; the model's do not."""
    pool = PagePool(6, 2, drafts=True)
    first, second, third = pool.allocate(3)
    after = pool.register(first, 0, [1, 2, 3])
    assert pool.register(second, after, [3, 4, 5]) != after
    plain = pool.register(third, 0, [1, 2])
    assert pool.match([1, 2, 3, 4, 5], 4) == ([first, second], 2, 2)
    assert pool.match([1, 2, 3, 4, 6], 4) == ([first], after, 1)
    assert pool.match([1, 2, 9, 4, 5], 4) == ([third], plain, 0)  # as good for the model, not for drafts
    assert pool.match([1, 2], 2) == ([third], plain, 0)  # the next token is not known yet


def test_auto_is_understood_around_a_model_in_memory(checkpoint: Path, plain: LLM) -> None:
    """`auto` works with a draft layer and without one."""
    drafting = LLM(checkpoint, device="cpu", speculative_tokens=2)
    for model, number in ((drafting.model, AUTO), (plain.model, 0)):
        llm = LLM.from_model(model, plain.config, speculative_tokens="auto", page_count=20)
        assert llm.limits.speculative_tokens == number
        [answer], [expected] = (each.generate(PROMPTS[2], PARAMS[0]) for each in (llm, plain))
        assert answer.token_ids == expected.token_ids
    for model, value, wanted in ((drafting.model, 9, "0 to 4, or 'auto'"), (plain.model, 2, "0 or 'auto'")):
        with pytest.raises(ValueError, match=f"^speculative_tokens is {value}; expected {wanted}"):
            LLM.from_model(model, plain.config, speculative_tokens=value, page_count=20)  # type: ignore[arg-type]
