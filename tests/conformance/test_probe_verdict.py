"""The verdict: right, which bug, or another fault; on made-up answers whose verdict is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from deepseek_v32.inference.conformance.golden import Golden, Item, KnownBug, Reply, aligned, fields_of
from deepseek_v32.inference.conformance.probe import Observation
from deepseek_v32.inference.conformance.verdict import judge

COUNT = 40
WORDS = tuple(f"w{n}" for n in range(COUNT))
ITEMS = (
    Item("score", "score", (1, 2), answer=WORDS),
    Item("decode", "decode", (1, 2), answer=WORDS, fields={"text": "right"}),
    Item("reuse", "reuse", (1, 2), answer=WORDS, fields={"text": "right"}),
    Item("chat", "chat", (1, 2), answer=WORDS, fields={"text": "right", "reasoning": "why", "prompt_tokens": 7}),
)
RIGHT = np.full(len(ITEMS) * COUNT, -1.0, np.float32)
NOISE = 0.05
ROUNDED = RIGHT + NOISE * np.random.default_rng(9).choice([-1, 1], (2, len(RIGHT))).astype(np.float32)


def change(seed: int, groups: tuple[str, ...], size: float = 2.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(len(ITEMS), COUNT)).astype(np.float32) * size
    values[[item.group not in groups for item in ITEMS]] = 0
    return values.ravel()


EVERYWHERE = ("score", "decode", "reuse", "chat")
BUGS = (
    KnownBug("dense-attention", change(1, EVERYWHERE), {}, EVERYWHERE),
    KnownBug("other", change(2, EVERYWHERE), {}, EVERYWHERE),
    KnownBug("reuse", change(3, ("reuse",)), {}, EVERYWHERE),
    KnownBug("reasoning-in-text", change(4, ()), {"chat": {"text": "why right", "reasoning": ""}}, EVERYWHERE),
)
GOLDEN = Golden("made up", ITEMS, RIGHT, ROUNDED, ROUNDED, BUGS)


def observed(logprobs: np.ndarray, **chat) -> Observation:
    seen = Observation("model")
    for item, row in zip(ITEMS, logprobs.reshape(len(ITEMS), COUNT), strict=True):
        fields = {**item.fields, **(chat if item.group == "chat" else {})}
        seen.replies[item.name] = Reply(WORDS, tuple(map(float, row)), ({},) * COUNT, **fields)
    return seen


def test_the_right_answers_are_right():
    verdict = judge(GOLDEN, observed(RIGHT))
    assert (verdict.kind, verdict.fields, verdict.sparse) == ("right", (), True)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_right(seed):
    noisy = RIGHT + change(seed + 10, EVERYWHERE, NOISE)
    assert judge(GOLDEN, observed(noisy)).kind == "right"


@pytest.mark.parametrize("bug", BUGS[:3], ids=lambda bug: bug.name)
def test_a_bug_is_named_through_noise(bug):
    verdict = judge(GOLDEN, observed(RIGHT + bug.change + change(20, EVERYWHERE, 2 * NOISE)))
    assert (verdict.kind, verdict.named, verdict.matches[0].name) == ("bug", 1, bug.name)
    assert verdict.confidence > 0.7
    assert verdict.sparse is (False if bug.name == "dense-attention" else None)


def test_a_bug_of_texts_alone_is_named():
    verdict = judge(GOLDEN, observed(RIGHT, text="why right", reasoning=""))
    assert (verdict.kind, verdict.matches[0].name) == ("bug", "reasoning-in-text")
    assert verdict.fields[0] == "chat: text is 'why right'; expected 'right'"


def test_a_bug_that_changes_prompts_is_not_named_if_their_lengths_are_right():
    longer = KnownBug("longer", change(5, ("chat",)), {"chat": {"prompt_tokens": 8}}, EVERYWHERE)
    golden = replace(GOLDEN, bugs=(*BUGS, longer))
    verdict = judge(golden, observed(RIGHT + longer.change, prompt_tokens=8))
    assert (verdict.kind, verdict.matches[0].name, verdict.named) == ("bug", "longer", 1)
    verdict = judge(golden, observed(RIGHT + longer.change))
    assert verdict.kind == "other" and verdict.named == 0


def test_twins_are_named_together():
    twin = replace(BUGS[1], name="twin", change=BUGS[1].change * 1.05)
    verdict = judge(replace(GOLDEN, bugs=(*BUGS, twin)), observed(RIGHT + BUGS[1].change))
    assert verdict.named == 2 and {match.name for match in verdict.matches[:2]} == {"other", "twin"}


def test_another_fault_is_none_of_the_known_bugs():
    verdict = judge(GOLDEN, observed(RIGHT + change(30, EVERYWHERE)))
    assert (verdict.kind, verdict.named, verdict.confidence) == ("other", 0, 0.0)


def test_a_server_without_logprobs_is_judged_by_its_texts():
    seen = observed(RIGHT)
    seen.gives_logprobs = False
    seen.replies = {name: replace(reply, tokens=(), logprobs=(), top=()) for name, reply in seen.replies.items()}
    verdict = judge(GOLDEN, seen)
    assert verdict.kind == "right" and verdict.sparse is None and not any(verdict.compared.values())
    assert "only texts were compared" in verdict.missing[0]
    seen.replies["chat"] = replace(seen.replies["chat"], reasoning="", text="why right")
    assert judge(GOLDEN, seen).matches[0].name == "reasoning-in-text"


def test_nothing_that_can_be_compared_gives_no_verdict():
    seen = Observation("model", {"score": Reply()}, {"decode": "status 400: no"})
    verdict = judge(GOLDEN, seen)
    assert verdict.kind == "unknown" and "not answered: decode: status 400: no" in verdict.missing


def test_an_answer_is_compared_up_to_its_first_other_token():
    item = Item("one", "decode", (1,), answer=("a", "b", "c", "d"))
    reply = Reply(("a", "x", "c"), (-0.1, -0.2, -0.3), ({}, {"b": -1.5}, {}))
    found = aligned(item, reply).tolist()
    assert found[:2] == pytest.approx([-0.1, -1.5]) and all(map(math.isnan, found[2:]))
    assert math.isnan(aligned(item, Reply(("x",), (-0.1,), ({},)))[0]), "the right token is not among the likeliest"


def test_the_others_of_a_place_are_compared():
    item = Item("one", "decode", (1,), answer=("a", "b"), others=(("x",), ("y", "z")))
    reply = Reply(("a", "q"), (-0.1, -0.2), ({"x": -3.0}, {"z": -4.0, "b": -1.0}))
    np.testing.assert_allclose(aligned(item, reply), [-0.1, -3, -1, np.nan, -4], rtol=1e-6)


def test_only_the_items_fields_are_compared():
    item = Item("one", "chat", (1,), fields={"text": "a"})
    assert fields_of(item, Reply(text="b", reasoning="c", prompt_tokens=3)) == {"text": "b"}
    assert fields_of(item, None) == {}


def test_texts_tell_apart_bugs_that_change_the_same():
    """Of two bugs with equal log-probabilities, wrong texts name one. Without wrong texts both are named."""
    values = change(5, EVERYWHERE)
    bugs = tuple(
        KnownBug(name, values, {"chat": {"text": text}}, EVERYWHERE)
        for name, text in (("a twin", "quite another"), ("the bug", "wrong"))
    )
    verdict = judge(replace(GOLDEN, bugs=bugs), observed(RIGHT + values, text="wrong"))
    assert verdict.named == 1 and [match.name for match in verdict.matches] == ["the bug", "a twin"]
    assert judge(replace(GOLDEN, bugs=bugs), observed(RIGHT + values)).named == 2


def test_texts_that_a_bug_was_not_asked_for_do_not_tell_it_apart():
    """A forward-pass bug is judged only by scores; a wrong text of a reused prompt is no evidence for or against it."""
    values = change(6, ("score",))
    forward = KnownBug("forward", values, {}, ("score",))
    cache = KnownBug("cache", values, {"reuse": {"text": "wrong"}}, ("score", "reuse"))
    seen = observed(RIGHT + values)
    seen.replies["reuse"] = replace(seen.replies["reuse"], text="wrong")
    verdict = judge(replace(GOLDEN, bugs=(*BUGS, forward, cache)), seen)
    assert verdict.named == 2 and {match.name for match in verdict.matches[:2]} == {"forward", "cache"}


@pytest.mark.parametrize("size, kind", [(2.0, "bug"), (0.15, "right")])
def test_a_bug_that_does_not_count_has_to_be_more_similar(size, kind):
    """A third of a bug's changes gives half a similarity. For a faint bug, rounding can reach that."""
    bug = KnownBug("faint or not", change(7, EVERYWHERE, size), {}, EVERYWHERE)
    golden = replace(GOLDEN, bugs=(bug,))
    assert golden.counts(bug) == (kind == "bug")
    some = np.where(np.arange(len(RIGHT)) % 3 == 0, bug.change, 0)
    verdict = judge(golden, observed(RIGHT + some))
    assert verdict.kind == kind and 0.45 < verdict.matches[0].similarity < 0.6
    assert judge(golden, observed(RIGHT + bug.change)).named == 1


def test_one_token_does_not_name_a_bug_that_does_not_count():
    """At one token, rounding may choose the bug's experts. A bug that counts changes the token by more than that."""
    few = np.zeros_like(RIGHT)
    few[[3, 50, 60, 90]] = 0.45, 0.2, -0.2, 0.2  # up to 9 times the noise
    for factor, kind in ((1, "right"), (10, "bug")):
        bug = KnownBug("of few tokens", few * factor, {}, EVERYWHERE)
        golden = replace(GOLDEN, bugs=(bug,))
        assert golden.counts(bug) == (kind == "bug")
        one = np.where(np.arange(len(RIGHT)) == 3, bug.change, 0)
        verdict = judge(golden, observed(RIGHT + one))
        assert verdict.named == (kind == "bug")
        assert verdict.matches[0].similarity > (0.6 if kind == "right" else 0.45)
        assert judge(golden, observed(RIGHT + bug.change)).named == 1
