"""The golden answers are what transformers says in fp32, and each known bug's answers lead back to it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from make_conformance_checkpoint import write_twin
from trace_transformers import load as load_transformers

from conformance.verdicts import in_short, replayed, room
from deepseek_v32.inference.conformance import golden as golden_files
from deepseek_v32.inference.conformance.golden import (
    FIELDS,
    FOLDER,
    TEN_TIMES,
    Golden,
    Item,
    KnownBug,
    Reply,
    load,
)
from deepseek_v32.inference.conformance.probe import Observation
from deepseek_v32.inference.conformance.verdict import judge
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.text.messages import encode_messages
from deepseek_v32.inference.text.tokenizer import Tokenizer
from golden.answers import answered
from golden.bugs import BUGS
from golden.right_engines import transformers_logprobs
from golden.store import save
from golden.tables import DOCUMENT, bug_tables, counted, split

NAMES = ("demo", "wide")
AGREES = 5e-3  # nats; fp32 sums of another order differ by 1e-4, as 99 in 100 do
MOST_AGREE = 1e-4


@pytest.fixture(scope="module", params=NAMES)
def golden(request) -> Golden:
    return load(request.param)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_directory(golden_files.FOLDER.parents[2] / "model" / "demo")
    assert found is not None
    return found


SHORT = ("score-120", "decode-250", "chat-system", "chat-history")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "checkpoint, names",
    [
        ("demo", SHORT),
        pytest.param("demo", None, marks=pytest.mark.slow),
        ("wide", ("batch-200", "chat-system")),
        pytest.param("wide", None, marks=pytest.mark.slow),
    ],
    ids=["demo, some", "demo, all", "wide, some", "wide, all"],
)
def test_transformers_gives_the_golden_log_probabilities(checkpoint, names, tokenizer, tmp_path):
    """The wide checkpoint is tested through its narrow twin, which computes the same function."""
    golden, model = load(checkpoint), DEMO
    if checkpoint == "wide":
        write_twin(tmp_path)
        model = tmp_path
    oracle, checked = load_transformers(model), 0
    for item in golden.items:
        if names and item.name not in names:
            continue
        theirs = transformers_logprobs(oracle, tokenizer, item)
        distances = np.abs(theirs - golden.logprobs[golden.slices[item.name]])
        assert np.quantile(distances, 0.99) < MOST_AGREE, item.name
        assert distances.max() < AGREES, item.name
        checked += len(theirs)
    assert checked > (300 if checkpoint == "demo" else 30)


def test_the_text_of_a_token_tells_which_it_is(golden, tokenizer):
    """Except in scored prompts no token is a part of a character, because such tokens share one text."""
    texts = Counter(tokenizer.decode([token], skip_special_tokens=False) for token in range(tokenizer.vocab_size))
    for item in golden.items:
        for place, token in enumerate(item.answer):
            others = item.others[place] if item.others else ()
            assert item.group == "score" or all(texts[each] == 1 for each in (token, *others)), (item.name, place)
            assert len({token, *others}) == 1 + len(others), (item.name, place)


def test_alternatives_that_are_parts_of_characters_are_left_out():
    """In the likeliest tokens of completions the server names them by their number, and in those of chats by their shared text."""
    top = {"yes": 0.0, "token_id:105": -1.0, " no": -2.0, "\ufffd": -3.0}
    seen = Observation("server", {"item": Reply(("yes",), (0.0,), (top,))})
    assert answered(Item("item", "decode", (1,)), seen).others == ((" no",),)


def test_the_prompts_are_what_the_chat_format_writes(golden, tokenizer):
    for item in golden.items:
        if item.messages:
            assert encode_messages(item.messages, tokenizer, item.thinking, item.tools or None) == list(item.tokens)
        assert set(item.fields) <= set(FIELDS) and len(item.answer) >= (
            1 if item.group == "score" else item.max_tokens - 1
        )


def test_the_questions_reach_past_the_selection_and_the_pages(golden):
    lengths = [len(item.tokens) for item in golden.items]
    topk = 128 if golden.checkpoint.startswith("the demo") else 2048
    assert min(lengths) < topk < max(lengths) and max(lengths) > 1.1 * topk
    assert max(len(item.tokens) for item in golden.items if item.group == "decode") > topk, "decodes that select"
    assert not [length for length in lengths if length % 64 == 0], "at a border of pages, mistakes of one token hide"
    assert {item.group for item in golden.items} == {"score", "decode", "reuse", "batch", "chat"}


def test_the_golden_answers_are_right(golden):
    none = np.zeros_like(golden.logprobs)
    verdict = judge(golden, replayed(golden, none, {}))
    assert verdict.kind == "right"
    assert verdict.sparse or "dense-attention" not in {bug.name for bug in golden.bugs}
    assert not any(verdict.deviations.values())


def test_engines_that_were_held_out_are_right(golden, evidence):
    assert len(golden.held_out) >= 3
    for number, logprobs in enumerate(golden.held_out):
        verdict = judge(golden, replayed(golden, logprobs - golden.logprobs, {}))
        evidence("right, replayed", f"{golden.checkpoint}, engine held out {number}", **in_short(verdict))
        assert verdict.kind == "right", verdict.deviations


@pytest.mark.parametrize("dense", [False, True])
def test_sparse_attention_is_told_to_be_on_or_off(golden, dense):
    """The verdict tells sparse from dense attention, even below each token's noise. Dense counts only on the wide checkpoint."""
    bug = next(bug for bug in golden.bugs if bug.name == "dense-attention")
    for logprobs in (*golden.rounded, *golden.held_out):
        change = logprobs - golden.logprobs + (bug.change if dense else 0)
        verdict = judge(golden, replayed(golden, change, {}))
        assert verdict.sparse is not dense and verdict.kind == ("bug" if dense else "right"), verdict.dense_share


def test_a_bug_counts_from_ten_times_the_noise_of_all_right_engines(golden):
    """The noise of a log-probability is the largest distance there, or an engine's usual distance in that question."""
    engines = np.nan_to_num(np.concatenate([golden.rounded, golden.held_out]) - golden.logprobs)
    item = golden.items[1]
    own = golden.slices[item.name]
    usual = max(float(np.sqrt((engine[own] ** 2).mean())) for engine in engines)
    noise = max(usual, float(np.abs(engines[:, own.start]).max()), 0.01)
    for times, counts in ((10.1, True), (9.9, False), (-10.1, True)):
        change = np.zeros_like(golden.logprobs)
        change[own.start] = times * noise
        bug = KnownBug("made up", change, {}, ())
        assert golden.counts(bug) == counts and golden.times_the_noise(bug) == pytest.approx(abs(times), rel=1e-4)
    assert golden.counts(KnownBug("a text", np.zeros_like(golden.logprobs), {item.name: {"text": "other"}}, ()))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("precision", [0, 1, 2], ids=["bf16", "fp8 indexer", "fp8"])
def test_an_engine_that_rounds_as_much_in_its_own_way_is_right(golden, precision, seed, evidence):
    """Rounding errors of the usual size count as right at any tokens of a question."""
    change, rng = golden.rounded[precision] - golden.logprobs, np.random.default_rng(seed)
    for own in golden.slices.values():
        change[own] = rng.permutation(change[own])
    verdict = judge(golden, replayed(golden, change, {}))
    evidence("right, replayed", f"{golden.checkpoint}, rounding {precision}, moved {seed}", **in_short(verdict))
    assert verdict.kind == "right", verdict.deviations


DECLARED = {name for name, bug in BUGS.items() if "http" in bug.shows}


def test_known_bugs_are_declared_and_many_count(golden):
    known = {bug.name for bug in golden.bugs}
    assert known | golden.left_out.keys() == DECLARED and not known & golden.left_out.keys()
    assert len(counted(golden)) >= 25
    assert max(golden.left_out.values()) < TEN_TIMES


def test_most_declared_bugs_count_on_one_of_the_checkpoints():
    missing = DECLARED.difference(*(counted(load(name)) for name in NAMES))
    assert len(missing) <= len(DECLARED) / 8, missing


@pytest.mark.parametrize("part", ["counts", "bugs"])
def test_the_document_has_the_numbers_of_these_files(part):
    assert split(DOCUMENT.read_text(encoding="utf-8"), part)[1] == bug_tables()[part], "make_golden_answers.py --bugs"


def test_every_known_bug_is_named_by_its_own_answers(golden, evidence):
    """A bug is named although noise is added, with at most one other bug. Bugs that do not count may be within the noise."""
    rng = np.random.default_rng(0)
    for bug in golden.bugs:
        noise = rng.normal(size=len(golden.logprobs)).astype(np.float32) * golden.noises[0] / 2
        verdict = judge(golden, replayed(golden, bug.change + noise, bug.fields))
        named = [match.name for match in verdict.matches[: verdict.named]]
        row = "HTTP, replayed" if golden.counts(bug) else "HTTP, replayed, does not count"
        evidence(row, f"{golden.checkpoint}, {bug.name}", bug=bug.name, **in_short(verdict))
        if golden.counts(bug) or verdict.kind != "right":
            assert verdict.kind == "bug" and bug.name in named and len(named) <= 2, (bug.name, named)


def test_a_third_bug_is_far_from_being_named(golden):
    """The gap is larger than the changes from another processor's last bits."""
    rooms = {bug.name: room(golden, bug.name) for bug in golden.bugs if golden.counts(bug)}
    assert min(rooms.values()) > 0.05, rooms


def test_saved_and_loaded_alike(golden, tmp_path: Path):
    save(golden, tmp_path, "copy")
    copy = load("copy", tmp_path)
    assert [replace(bug, change=None) for bug in copy.bugs] == [replace(bug, change=None) for bug in golden.bugs]
    assert copy.items == golden.items
    for one, other in zip(copy.bugs, golden.bugs, strict=True):
        np.testing.assert_array_equal(one.change, other.change)


def test_the_files_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 1 << 20


def test_files_that_do_not_belong_together_are_an_error(golden, tmp_path: Path):
    save(golden, tmp_path, "copy")
    save(replace(golden, logprobs=golden.logprobs[1:], bugs=()), tmp_path, "other")
    (tmp_path / "other.npz").replace(tmp_path / "copy.npz")
    with pytest.raises(ValueError, match="expected as many"):
        load("copy", tmp_path)
