"""The engine over a model each of whose tokens depends on every cache entry of its context."""

import math

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams, parts
from deepseek_v32.inference.completion import Delta
from deepseek_v32.inference.engine.running import runner as runner_module
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.sampling.sampler import SampledTokens
from support.fake_model import (
    EOS,
    NAN,
    RAISE,
    VOCAB,
    AsyncRunner,
    ByteTokenizer,
    FakeModel,
    ScriptedModel,
    fake_config,
    fake_llm,
    reference_tokens,
)
from support.pages import check_pool
from support.preemption import preempt_every_other_step

PROMPTS = [[1, 2, 3], list(range(70)), [7] * 130, list(b"hello"), list(range(70)), [9]]
COUNT = 80
GREEDY = SamplingParams(temperature=0, max_tokens=COUNT)


def run_steps_ahead(monkeypatch: pytest.MonkeyPatch, make: type[Runner] = AsyncRunner) -> None:
    """Let LLMs made from now on use runners of this class."""

    def make_runner(*arguments: object) -> Runner:
        runner = runner_module.make_runner(*arguments)  # type: ignore[arg-type]
        return make(runner.model, runner.caches)

    monkeypatch.setattr(parts, "make_runner", make_runner)


@pytest.fixture(autouse=True, params=[False, True], ids=["", "ahead"])
def ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Tell whether steps of decodes are launched before the tokens of the step before are read."""
    if request.param:
        run_steps_ahead(monkeypatch)
    return request.param


def expected(prompts: list[list[int]] = PROMPTS, count: int = COUNT) -> list[list[int]]:
    return [reference_tokens(prompt, count) for prompt in prompts]


def tokens_of(llm: LLM, prompts: list[list[int]], params: SamplingParams = GREEDY) -> list[list[int]]:
    completions = llm.generate(prompts, params)
    assert [c.error for c in completions] == [None] * len(prompts)
    return [c.token_ids for c in completions]


@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "no-reuse"])
@pytest.mark.parametrize("max_batch_tokens,max_sequences", [(2048, 64), (64, 3), (7, 64), (1, 1)])
def test_greedy_tokens_do_not_depend_on_the_batch(max_batch_tokens: int, max_sequences: int, reuse: bool) -> None:
    llm = fake_llm(max_batch_tokens=max_batch_tokens, max_sequences=max_sequences, reuse_pages=reuse)
    assert tokens_of(llm, PROMPTS) == expected()
    assert tokens_of(llm, PROMPTS[::-1]) == expected()[::-1]  # now from reused pages
    assert (llm.stats().cached_tokens > 0) == reuse


@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "no-reuse"])
def test_greedy_tokens_survive_forced_preemption_every_other_step(reuse: bool) -> None:
    llm = fake_llm(reuse_pages=reuse)
    forced = preempt_every_other_step(llm)
    assert tokens_of(llm, PROMPTS) == expected()
    assert llm.stats().preemptions == sum(forced) >= COUNT // 3 - 1


def test_greedy_tokens_survive_a_lack_of_pages() -> None:
    llm = fake_llm(page_count=5)
    assert tokens_of(llm, PROMPTS) == expected()
    assert llm.stats().preemptions > 0
    check_pool(llm.engine.pool)
    assert llm.stats().pages_used == 0


def test_seeded_samples_do_not_depend_on_the_batch_nor_on_preemption() -> None:
    params = [SamplingParams(temperature=3.0, top_p=0.9, max_tokens=40, seed=i, ignore_eos=True) for i in range(6)]
    single = [fake_llm().generate([p], s)[0].token_ids for p, s in zip(PROMPTS, params, strict=True)]
    disturbed = fake_llm(max_batch_tokens=100)
    preempt_every_other_step(disturbed)
    together = [c.token_ids for c in disturbed.generate(PROMPTS, params)]
    assert together == single
    assert single[1] != single[4]  # the same prompt, another seed


def test_requests_without_a_seed_differ() -> None:
    params = SamplingParams(temperature=3.0, max_tokens=40, ignore_eos=True)
    first, second = fake_llm().generate([[1], [1]], params)
    assert first.token_ids != second.token_ids


def test_a_repeated_prompt_is_answered_from_the_cache_but_for_its_last_page() -> None:
    llm = fake_llm()
    prompt = list(range(128))
    first, second = llm.generate(prompt, GREEDY)[0], llm.generate(prompt, GREEDY)[0]
    assert first.token_ids == second.token_ids
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 64)
    longer = llm.generate(prompt + first.token_ids, GREEDY)[0]
    cached = (len(prompt) + len(first.token_ids) - 1) // 64 * 64
    assert longer.usage.cached_tokens == cached and longer.usage.prompt_tokens == 128 + len(first.token_ids)


def test_a_nan_fails_its_request_alone_and_its_pages_are_not_reused() -> None:
    llm = fake_llm()
    poisoned = [NAN, *range(100)]
    good, bad, other = llm.generate([PROMPTS[0], poisoned, PROMPTS[1]], GREEDY)
    assert [good.token_ids, other.token_ids] == expected(PROMPTS[:2])
    assert bad.finish_reason == "error" and bad.error and "position 101" in bad.error and bad.token_ids == []
    assert llm.engine.pool.match(poisoned)[0] == []


def test_a_step_that_raises_fails_its_requests_and_leaves_the_engine_usable(caplog: pytest.LogCaptureFixture) -> None:
    llm = fake_llm(max_sequences=2)
    first, bad, later = llm.generate([PROMPTS[0], [1, RAISE], PROMPTS[1]], GREEDY)
    assert bad.finish_reason == first.finish_reason == "error"
    assert bad.error == "RuntimeError: the model was told to fail"  # its first line
    assert later.token_ids == expected([PROMPTS[1]])[0]
    assert llm.stats().pages_used == 0 and llm.stats().finished["error"] == 2
    assert tokens_of(llm, PROMPTS) == expected()
    assert "a step failed" in caplog.text


def test_a_decode_that_raises_ahead_fails_its_requests_after_their_earlier_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_steps_ahead(monkeypatch)
    llm = fake_llm()
    steps = 0

    def fail() -> None:
        nonlocal steps
        steps += 1
        if steps == 5:
            raise RuntimeError("the fifth step")

    llm.model.before_step = fail
    one, two = llm.generate(PROMPTS[:2], GREEDY)
    assert one.error == two.error == "RuntimeError: the fifth step"
    assert [one.token_ids, two.token_ids] == [tokens[:4] for tokens in expected(PROMPTS[:2])]
    assert llm.stats().pages_used == llm.stats().pages_cached == 0
    assert tokens_of(llm, PROMPTS) == expected()


@pytest.mark.parametrize("where", [(FakeModel, "forward"), (SampledTokens, "read")])
def test_a_step_cut_short_by_ctrl_c_is_continued(where: tuple[object, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the answer that drove the engine. The other streams lose nothing."""
    llm, work, calls = fake_llm(), getattr(*where), 0

    def interrupt(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise KeyboardInterrupt
        return work(*arguments)

    monkeypatch.setattr(*where, interrupt)
    streams = [llm.stream(prompt, GREEDY) for prompt in PROMPTS[:2]]
    got = [next(stream).token_ids for stream in streams]
    with pytest.raises(KeyboardInterrupt):
        for _ in streams[0]:
            pass
    got += [delta.token_ids for delta in streams[1]]
    assert [token for ids in got[1:] for token in ids] == expected()[1]
    assert llm.stats().pages_used == 0


def test_steps_are_launched_before_the_tokens_of_the_last_are_read(ahead: bool) -> None:
    llm, before = fake_llm(), AsyncRunner.ahead
    assert tokens_of(llm, PROMPTS) == expected()
    started = AsyncRunner.ahead - before
    assert started >= COUNT - 2 if ahead else started == 0
    # An answer's end is known only when its last token is read: at most one more step for each answer.
    assert llm.stats().generated_tokens == sum(map(len, expected()))
    computed = sum(len(prompt) + len(answer) - 1 for prompt, answer in zip(PROMPTS, expected(), strict=True))
    cached = llm.stats().cached_tokens
    assert computed <= llm.stats().computed_tokens + cached <= computed + (len(PROMPTS) if ahead else 0)


def test_steps_ahead_sample_the_tokens_of_one_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Penalties depend on the tokens that steps in flight sample, randomness on their places. Answers end in any step."""
    kinds = [
        dict(temperature=0, frequency_penalty=2, repetition_penalty=3),
        dict(temperature=3, seed=1, presence_penalty=2),
        dict(temperature=3, seed=2, top_p=0.9, logprobs=2),
        dict(temperature=3, seed=3, top_k=20, min_p=0.001),
        dict(temperature=0, logprobs=1),
        dict(temperature=1, seed=4),
    ]
    for several in (kinds, kinds[:1], kinds[2:3], kinds[3:]):
        params = [SamplingParams(max_tokens=20 + 7 * i, **kind) for i, kind in enumerate(several)]
        found = []
        for make in (AsyncRunner, Runner):
            run_steps_ahead(monkeypatch, make)
            found.append(fake_llm().generate(PROMPTS[: len(params)], params))
        assert [c.token_ids for c in found[0]] == [c.token_ids for c in found[1]]
        assert [c.logprobs for c in found[0]] == [c.logprobs for c in found[1]]
        assert all(c.error is None for c in found[0])


def test_aborted_requests_free_their_pages_between_steps() -> None:
    engine = fake_llm().engine
    running, kept = engine.add_request(PROMPTS[1], GREEDY), engine.add_request(PROMPTS[0], GREEDY)
    engine.step()
    waiting = engine.add_request(PROMPTS[2], GREEDY)
    used = engine.stats().pages_used
    engine.abort(running.id)
    engine.abort(waiting.id)
    engine.abort(999)  # there is no such request
    deltas = {delta.request_id: delta for delta in engine.apply_aborts()}
    assert {id: delta.finish_reason for id, delta in deltas.items()} == {running.id: "abort", waiting.id: "abort"}
    assert deltas[running.id].completion and len(deltas[running.id].completion.token_ids) == 1
    assert engine.stats().pages_used == used - 2
    engine.abort(running.id)  # again
    finished: list[Delta] = []
    while engine.has_work:
        finished += [delta for delta in engine.step() if delta.completion]
    assert [delta.completion and delta.completion.token_ids for delta in finished] == expected([PROMPTS[0]])
    assert kept.id == finished[0].request_id and engine.stats().pages_used == 0
    check_pool(engine.pool)


def test_max_tokens_is_clipped_to_the_context() -> None:
    llm = fake_llm(max_model_len=100)
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    [completion] = llm.generate([[1] * 90], params)
    assert completion.finish_reason == "length" and len(completion.token_ids) == 10
    assert llm.generate([1] * 99, SamplingParams(max_tokens=5))[0].usage.completion_tokens == 1


@pytest.mark.parametrize(
    "prompt,params,message",
    [
        ([], {}, "prompt is empty"),
        ("", {}, "prompt is empty"),
        ([1, VOCAB], {}, f"token id {VOCAB} at position 1; expected ids of the vocabulary, 0 to {VOCAB - 1}"),
        ([-1], {}, "token id -1"),
        ([1] * 100, {}, "expected at most 99: this model's maximum context length is 100 tokens"),
        ([1], {"stop_token_ids": [VOCAB]}, f"stop_token_ids holds {VOCAB}"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(prompt: list[int], params: dict, message: str) -> None:
    llm = fake_llm(max_model_len=100)
    with pytest.raises(ValueError, match=message):
        llm.generate([PROMPTS[0], prompt], SamplingParams(**params))
    assert not llm.engine.has_work and llm.stats().steps == 0
    assert tokens_of(llm, [PROMPTS[0]]) == expected([PROMPTS[0]])


@pytest.mark.parametrize(
    "options,message",
    [
        ({"max_model_len": 5000}, "max_model_len is 5000; expected 2 to 4096 tokens"),
        ({"max_model_len": 65, "page_count": 1}, "max_model_len is 65; expected at most 64: 1 pages of 64 tokens"),
        ({"max_batch_tokens": 0}, "max_batch_tokens is 0"),
        ({"page_count": 0}, "page_count is 0"),
        ({"page_count": None, "memory_fraction": 1.5}, "memory_fraction is 1.5"),
        (
            {"page_count": None, "memory_fraction": 1e-12},
            "memory_fraction is 1e-12, which leaves 0.0 MiB for the caches",
        ),
    ],
)
def test_limits_that_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fake_llm(**options)


def test_pages_are_sized_from_memory_and_bound_the_context() -> None:
    assert fake_llm(poison=False, page_count=None).limits.page_count == 8 * 4096 // 64  # eight full contexts at most
    assert fake_llm(page_count=3).limits.max_model_len == 192


@pytest.mark.parametrize("chunk", [None, 1, 7, 64, 1000])
def test_logits_of_every_token_whatever_the_chunk(chunk: int | None) -> None:
    llm = fake_llm()
    tokens = list(range(130))
    whole = llm.logits(tokens, chunk)
    assert whole.shape == (130, VOCAB) and whole.dtype == torch.float32
    assert int(whole[69].argmax()) == reference_tokens(tokens[:70], 1)[0]
    assert torch.equal(whole, llm.logits(tokens, 33))
    assert llm.stats().pages_used == llm.stats().pages_cached == 0  # no page is reused, and none can be


def test_logits_between_the_steps_of_requests_that_fill_the_pages() -> None:
    llm = fake_llm(page_count=4)
    stream = llm.stream(PROMPTS[2], GREEDY)
    got = [next(stream).token_ids for _ in range(10)]
    assert llm.logits(list(range(200))).shape == (200, VOCAB)
    got += [delta.token_ids for delta in stream]
    assert [token for ids in got for token in ids] == expected([PROMPTS[2]])[0]
    assert llm.stats().preemptions == 1


def test_logits_refuse_what_generate_refuses() -> None:
    llm = fake_llm(max_model_len=100)
    for tokens, chunk, message in [
        ([], None, "empty"),
        ([VOCAB], None, "vocab"),
        ([1] * 101, None, "101"),
        ([1], 0, "0"),
    ]:
        with pytest.raises(ValueError, match=message):
            llm.logits(tokens, chunk)
    with pytest.raises(RuntimeError):
        llm.logits([RAISE])
    assert llm.stats().pages_used == 0


def test_inspection_shows_the_selection_behind_each_token() -> None:
    llm = fake_llm(max_batch_tokens=64)
    prompt = list(range(100))
    watched = llm.generate([prompt, [1]], SamplingParams(temperature=0, max_tokens=3), inspect=True)[0]
    assert watched.selection is not None and len(watched.selection) == len(watched.token_ids)
    for i, selection in enumerate(watched.selection):
        assert selection.position == 99 + i and sorted(selection.layers) == [0, 1]
        for layer in (0, 1):
            assert selection.positions(layer).tolist() == list(range(84 + i, 100 + i))  # the latest 16
    assert llm.generate([prompt], GREEDY)[0].selection is None


def test_inspection_off_costs_no_callback() -> None:
    llm = fake_llm()
    llm.generate([[1]], GREEDY)
    assert all(step.on_selection is None for step in llm.model.steps)


def test_timings_and_usage() -> None:
    llm = fake_llm()
    [completion] = llm.generate([[5] * 30], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    usage, timings = completion.usage, completion.timings
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (30, 4, 0)
    assert timings.time_to_first_token and 0 < timings.time_to_first_token <= timings.total
    assert timings.tokens_per_second and timings.tokens_per_second > 3 / timings.total
    assert timings.selected_fraction == 4 * 16 / (30 + 31 + 32 + 33)
    stats = llm.stats()
    assert (stats.steps, stats.computed_tokens, stats.generated_tokens, stats.finished) == (4, 33, 4, {"length": 1})


def test_logprobs_come_with_every_token() -> None:
    llm = fake_llm()
    params = SamplingParams(temperature=0, max_tokens=5, logprobs=3, ignore_eos=True)
    [completion] = llm.generate([[1, 2]], params)
    assert completion.logprobs and [entry.token_id for entry in completion.logprobs] == completion.token_ids
    rows = llm.logits([1, 2, *completion.token_ids]).log_softmax(-1)
    for entry, row in zip(completion.logprobs, rows[1:], strict=False):
        assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=1e-6)
        assert entry.top[0] == (entry.token_id, entry.logprob) and len(entry.top) == 3
        assert math.fsum(math.exp(value) for _, value in entry.top) <= 1


def test_eos_ends_an_answer_and_is_left_out_of_its_text() -> None:
    script = [0, *b"abc", EOS, *b"def"]
    llm = LLM.from_model(ScriptedModel(fake_config(), script), fake_config(), ByteTokenizer(), page_count=4)
    [completion] = llm.generate([[0]])
    assert (completion.text, completion.token_ids) == ("abc", [*b"abc", EOS])
    assert completion.finish_reason == "stop" and completion.stop_reason is None
    [completion] = llm.generate([[0]], SamplingParams(ignore_eos=True, max_tokens=6))
    assert (completion.text, completion.finish_reason) == ("abcde", "length")
    [completion] = llm.generate([[0]], SamplingParams(stop_token_ids=[ord("b")]))
    assert (completion.text, completion.token_ids, completion.stop_reason) == ("a", [*b"ab"], ord("b"))


def test_a_model_without_a_tokenizer_works_on_token_ids() -> None:
    config = fake_config()
    llm = LLM.from_model(FakeModel(config), config, page_count=8)
    [completion] = llm.generate([[1, 2, 3]], GREEDY)
    assert completion.text == "" and completion.token_ids == reference_tokens([1, 2, 3], COUNT)
    for call in (lambda: llm.generate("text"), lambda: llm.chat([{"role": "user", "content": "hello"}])):
        with pytest.raises(ValueError, match="needs a tokenizer"):
            call()
    with pytest.raises(ValueError, match="no tokenizer"):
        llm.generate([[1]], SamplingParams(stop="x"))


def test_steps_with_prompt_tokens_take_all_cores_and_decodes_leave_one() -> None:
    llm = fake_llm()
    used: list[int] = []
    llm.model.before_step = lambda: used.append(torch.get_num_threads())  # type: ignore[attr-defined]
    llm.engine.runner._cores = 3  # type: ignore[attr-defined]
    before = torch.get_num_threads()
    try:
        llm.generate([[1, 2, 3], [4]], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    finally:
        torch.set_num_threads(before)
    assert used == [3, 2, 2]
