"""What users call from Python: kinds of prompts, several answers, conversations, reprs, and what is refused."""

import gc
import pickle
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.inference import LLM, ChatCompletion, Completion, SamplingParams
from deepseek_v32.inference.parts import DEMO
from deepseek_v32.inference.prompts import each_prompt
from deepseek_v32.inference.text.answer import AnswerDelta
from support.fake_model import EOS, ByteTokenizer, ScriptedModel, fake_config, fake_llm
from support.tiny import tiny_checkpoint

GREEDY = SamplingParams(temperature=0, max_tokens=12)
RANDOM = SamplingParams(temperature=1, max_tokens=6, seed=2**64 - 1, ignore_eos=True)
ASK = [{"role": "user", "content": "Where?"}]


@pytest.fixture(scope="module")
def demo() -> LLM:
    return LLM(device="cpu", page_count=32)


def test_a_prompt_may_come_in_vllms_mappings() -> None:
    llm = fake_llm()
    kinds: list[Any] = ["ab", [*b"ab"], {"prompt": "ab"}, {"prompt_token_ids": [*b"ab"]}]
    whole = llm.generate(kinds, GREEDY)
    assert len({tuple(each.token_ids) for each in whole}) == 1
    for kind in kinds:
        assert llm.generate(kind, GREEDY)[0].token_ids == whole[0].token_ids
        *_, last = llm.stream(kind, GREEDY)
        assert last.completion is not None and last.completion.token_ids == whole[0].token_ids


A_PROMPT = 'expected a text, token ids, {"prompt": text} or {"prompt_token_ids": ids}'


@pytest.mark.parametrize(
    "prompts, message",
    [
        (None, f"prompts is None; {A_PROMPT}, or a list of prompts"),
        (7, f"prompts is 7; {A_PROMPT}, or a list of prompts"),
        (b"ab", f"prompts is b'ab'; {A_PROMPT}, or a list of prompts"),
        ("\ud800", "prompts holds half of a surrogate pair; expected Unicode text"),
        (["ab", "a\udc00"], "prompts[1] holds half of a surrogate pair"),
        ({"prompt": "\ud800"}, "prompts['prompt'] holds half of a surrogate pair"),
        (iter(["ab"]), "prompts is <list_iterator"),
        ([None], f"prompts[0] is None; {A_PROMPT}"),
        (["ab", None], f"prompts[1] is None; {A_PROMPT}"),
        ([[1], 2], f"prompts[1] is 2; {A_PROMPT}"),
        ([{"prompt": 3}], "prompts[0]['prompt'] is 3; expected a text"),
        ({"prompt_token_ids": "ab"}, "prompts['prompt_token_ids'] is 'ab'; expected token ids"),
        ({"prompt_token_ids": None}, f"prompts['prompt_token_ids'] is None; {A_PROMPT}"),
        ({}, "prompts has no key; expected prompt or prompt_token_ids, and nothing else"),
        ({"prompt": "a", "multi_modal_data": 1}, "prompts has prompt, multi_modal_data; expected prompt or"),
    ],
)
def test_other_prompts_are_refused_by_name(prompts: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        fake_llm().generate(prompts)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_only_the_first_token_of_a_prompt_is_looked_at_for_its_kind() -> None:
    assert each_prompt([1, 2]) == [[1, 2]] and each_prompt(["a", [1]]) == ["a", [1]] and each_prompt([]) == []


CALLS: list[tuple[Callable[[LLM], Any], str]] = [
    (lambda llm: llm.generate("a", 3), "params is 3; expected SamplingParams, or a list of them"),  # type: ignore[arg-type]
    (lambda llm: llm.generate("a", {"n": 1}), "params is {'n': 1}; expected SamplingParams"),  # type: ignore[arg-type]
    (lambda llm: llm.generate("a", []), "params has 0 entries; expected one, or one for each of the 1 prompts"),
    (lambda llm: llm.generate("a", inspect="yes"), "inspect is 'yes'; expected True or False"),  # type: ignore[arg-type]
    (lambda llm: llm.generate("a", use_tqdm=1), "use_tqdm is 1; expected True or False"),  # type: ignore[arg-type]
    (lambda llm: llm.generate("a", policy="dense"), "policy is 'dense'; expected a SelectionPolicy"),  # type: ignore[arg-type]
    (lambda llm: llm.stream(None), f"prompt is None; {A_PROMPT}"),  # type: ignore[arg-type]
    (lambda llm: llm.stream("a", SamplingParams(n=2)), "n is 2; expected 1 for one answer"),
    (lambda llm: llm.chat("hello"), "messages is 'hello'; expected a list of {\"role\""),  # type: ignore[call-overload]
    (lambda llm: llm.chat(None), 'messages is None; expected a list of {"role"'),  # type: ignore[call-overload]
    (lambda llm: llm.chat([ASK, 3]), "messages is [[{'role'"),  # type: ignore[call-overload]
    (lambda llm: llm.chat(ASK, thinking="yes"), "thinking is 'yes'; expected True or False"),  # type: ignore[call-overload]
    (lambda llm: llm.chat(ASK, SamplingParams(n=2)), "n is 2; expected 1 for one answer"),
    (lambda llm: llm.score_answer([1], "a"), "answer is 'a'; expected a list of token ids"),  # type: ignore[arg-type]
    (lambda llm: llm.score_answer([], [1, 2]), "prompt is empty; expected at least 1 token"),
    (lambda llm: llm.score_answer([1], [2], top=-1), "top is -1; expected at least 0"),
]


@pytest.mark.parametrize("call, message", CALLS, ids=[message.partition(";")[0] for _, message in CALLS])
def test_other_arguments_are_refused_by_name_before_anything_runs(call: Callable[[LLM], Any], message: str) -> None:
    llm = fake_llm()
    with pytest.raises(ValueError) as caught:
        call(llm)
    assert str(caught.value).startswith(message) and not llm.engine.has_work


@pytest.mark.parametrize(
    "name, value, expected",
    [
        *((name, "x", "True or False") for name in ("check_cache", "decode_graphs", "reuse_pages")),
        *((name, 1, "True or False") for name in ("synthetic", "verify_hashes")),
        *((name, "8", "an integer or None") for name in ("max_model_len", "max_sequences", "page_count")),
        ("max_batch_tokens", 2.5, "an integer or None"),
        ("memory_fraction", "half", "a number or None"),
        ("path", 3, "a directory, as a text or a Path, or None"),
        ("device", 0, "a text such as 'cuda', or None"),
        ("precision", "fp4", "exact, bf16, fp8 or None"),
        ("progress", True, "a function or None"),
        ("config_overrides", {3: 1}, "a dict with names of the configuration, or None"),
    ],
)
def test_settings_of_a_wrong_type_are_refused_by_name(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        LLM(**{"device": "cpu", name: value})
    assert str(caught.value) == f"{name} is {value!r}; expected {expected}"


def test_n_answers_have_seeds_that_follow_each_other() -> None:
    llm = fake_llm()
    found = llm.generate([[1, 2], [3]], SamplingParams(n=3, **{**vars_of(RANDOM), "seed": 2**64 - 1}))
    expected = [
        llm.generate([prompt], SamplingParams(**{**vars_of(RANDOM), "seed": seed}))[0].token_ids
        for prompt in ([1, 2], [3])
        for seed in (2**64 - 1, 0, 1)
    ]
    assert [each.token_ids for each in found] == expected and len({tuple(each) for each in expected}) == 6
    few = [SamplingParams(n=2, max_tokens=1), SamplingParams(max_tokens=2)]
    assert [len(each.token_ids) for each in llm.generate([[1], [3]], few)] == [1, 1, 2]
    with pytest.raises(ValueError, match="n is 0; expected between 1 and 128"):
        SamplingParams(n=0)
    with pytest.raises(ValueError, match="n is 2; expected 1 where one request is one answer"):
        llm.engine.requests.from_tokens([1], SamplingParams(n=2))


def vars_of(params: SamplingParams) -> dict[str, Any]:
    return {name: value for name, value in vars(params).items() if name != "n"}


def test_conversations_are_answered_one_or_many_streamed_and_recorded(demo: LLM) -> None:
    asks = [
        [{"role": "user", "content": f"The meeting is on Tuesday in room {room}. Where is the meeting?"}]
        for room in (204, 417)
    ]
    both = demo.chat(asks, GREEDY, inspect=True)
    assert [isinstance(each, ChatCompletion) for each in both] == [True, True]
    assert "204" in both[0].message.content and "417" in both[1].message.content
    assert both[0].selection and both[0].recording is not None
    one = demo.chat(asks[0], GREEDY)
    assert one.message == both[0].message and one.selection is None
    *parts, last = demo.stream_chat(asks[0], GREEDY, inspect=True)
    assert sum((each.message for each in [*parts, last]), AnswerDelta()).content == one.message.content
    assert last.completion is not None and last.completion.message == one.message
    assert last.completion.recording is not None and parts[0].selection is not None
    assert both[0].recording.about == last.completion.recording.about
    assert last.completion.recording.about["model"] == "deepseek-v3.2-demo"
    sent = pickle.loads(pickle.dumps(both[0]))  # to another process
    assert sent.text == both[0].text and sent.recording.about == both[0].recording.about
    assert [each.text for each in demo.chat(asks, [GREEDY, SamplingParams(n=2, temperature=0, max_tokens=2)])][1:] == [
        both[1].text[: len(demo.chat(asks[1], SamplingParams(temperature=0, max_tokens=2)).text)]
    ] * 2


def test_the_demo_is_known_by_what_it_is(demo: LLM, tmp_path: Path) -> None:
    """Copies, and runs with other settings, too; other weights under its name are not."""
    shutil.copytree(DEMO, tmp_path / "a copy")
    copy = LLM(tmp_path / "a copy", device="cpu", page_count=32, config_overrides={"index_topk": 64})
    assert demo.checkpoint == copy.checkpoint == "deepseek-v3.2-demo"
    other = shutil.move(tiny_checkpoint(tmp_path), tmp_path / "deepseek-v3.2-demo")
    assert LLM(other, device="cpu", page_count=32).checkpoint != demo.checkpoint
    random = LLM(DEMO, synthetic=True, device="cpu", page_count=32)
    assert random.checkpoint == "synthetic weights" and fake_llm().checkpoint == ""


def test_a_streamed_answer_is_divided_into_reasoning_and_content() -> None:
    config = fake_config()
    text = "I think.</think>Here. <"
    llm = LLM.from_model(ScriptedModel(config, [0, *text.encode(), EOS]), config, ByteTokenizer(), page_count=64)
    llm.requests.chat_token_ids = lambda *_: [0]  # type: ignore[method-assign]  # the scripted model's prompt
    deltas = [each.message for each in llm.stream_chat(ASK, thinking=True)]
    whole = sum(deltas, AnswerDelta())
    assert (whole.reasoning_content, whole.content) == ("I think.", "Here. <")
    message = llm.chat(ASK, thinking=True).message
    assert (message.reasoning_content, message.content) == ("I think.", "Here. <")


def test_closing_a_streamed_chat_cancels_it() -> None:
    llm = fake_llm()
    llm.requests.chat_token_ids = lambda *_: [1, 2]  # type: ignore[method-assign]
    stream: Any = llm.stream_chat(ASK, SamplingParams(max_tokens=60))
    next(stream)
    stream.close()
    assert llm.stats().finished == {"abort": 1} and not llm.engine.has_work


def test_a_progress_bar_counts_answers(capsys: pytest.CaptureFixture[str]) -> None:
    llm = fake_llm()
    plain = [each.token_ids for each in llm.generate([[1], [2]], GREEDY)]
    assert capsys.readouterr().err == ""
    assert [each.token_ids for each in llm.generate([[1], [2]], GREEDY, use_tqdm=True)] == plain
    bar = capsys.readouterr().err
    assert "2/2" in bar and "tokens/s" in bar


def test_reprs_are_short_and_begin_with_the_text() -> None:
    llm = fake_llm()
    [completion] = llm.generate([[1, 2, 3]], GREEDY)
    assert type(completion) is Completion
    ending = f"finish_reason='length', 3 prompt tokens, {len(completion.token_ids)} tokens)"
    assert repr(completion) == f"Completion({completion.text!r}, {ending}"
    assert repr(llm).startswith("LLM(") and "exact on cpu" in repr(llm) and len(repr(llm)) < 100


def test_a_closed_llm_gives_its_memory_back_and_refuses_calls() -> None:
    with fake_llm() as llm:
        stream = llm.stream([1, 2], GREEDY)
        next(stream)
        engine = weakref.ref(llm.engine)
    gc.collect()
    assert engine() is None and repr(llm) == "LLM(closed)"
    calls: list[Callable[[], Any]] = [lambda: llm.generate("a"), lambda: next(stream), llm.stats, lambda: llm.chat(ASK)]
    for call in calls:
        with pytest.raises(ValueError, match="LLM is closed; expected an open one"):
            call()
    llm.close()
