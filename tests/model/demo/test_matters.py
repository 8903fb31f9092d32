"""Matters: every form can be written with every value, no two of a conversation answer each other, and values stay open."""

import random
import re
from collections import Counter

import pytest

from demo_model.dialogues import write
from demo_model.dialogues.plain import matter_cases, matter_words, remark_cases
from demo_model.dialogues.plain.matter_cases import AREAS, CASES, KINDS, said
from demo_model.dialogues.splits import SPLITS
from support.demo_reader import Reader

_OWN = {"x", "xs", "xp", "xo", "xr"}


def names_in(form: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", form))


@pytest.mark.parametrize("area", AREAS)
def test_every_form_of_a_matter_has_the_slots_that_it_may_have(area):
    rng = random.Random(area)
    cases = [case for case in CASES.values() if case.area == area]
    assert cases
    for case in cases:
        own = set() if case.mine else _OWN
        statements = [form for forms in case.statements.values() for form in forms]
        told = {slot for form in statements for slot in names_in(form) - own}
        assert told == set(case.slots) and not told & {"o", "x", "z"}, case.name
        assert case.untold and not any(names_in(form) - own for form in case.untold), case.name
        for letter, slot in case.slots.items():
            assert matter_cases.value(rng, "train", slot.kind), (case.name, slot.kind)
            assert slot.asks and not any(names_in(form) - own for form in (*slot.asks, *slot.nouns)), case.name
            assert not set(slot.asks) & set(case.untold), f"{case.name}: an answered question is refused, too"
            for form in (form for forms in slot.changes.values() for form in forms):
                assert letter in names_in(form) and names_in(form) <= {letter, "o"} | own, (case.name, form)
        asks = Counter(ask for slot in case.slots.values() for ask in slot.asks)
        assert max(asks.values()) == 1, f"{case.name}: a question is answered by two slots"


def test_matters_are_many_and_splits_share_no_wording():
    assert len(CASES) > 850 and not CASES.keys() & remark_cases.CASES.keys()
    told = {split: {(c.name, form) for c in CASES.values() for form in c.statements[split]} for split in SPLITS}
    asked = {
        split: {(c.name, form) for c in CASES.values() for slot in c.slots.values() for form in slot.asks_of[split]}
        for split in SPLITS
    }
    for of in (told, asked):
        assert all(len(of[split]) > 0.07 * sum(map(len, of.values())) for split in SPLITS)
        assert not of["train"] & of["test"] and not of["train"] & of["validation"]


def test_listed_values_vary_so_that_they_must_be_copied():
    rng = random.Random(1)
    assert len(KINDS) > 800 and min(map(len, KINDS.values())) >= 10
    varied = 0
    for kind, listed in KINDS.items():
        drawn = [matter_cases.value(rng, "train", kind) for _ in range(60)]
        assert sum(text in listed for text in drawn) > 20, kind
        varied += bool({*drawn} - {*listed})
        assert not any(re.search(r"^(a|an|the|my) (a|an|the|my)\b|  |[;|]", text) for text in drawn), kind
    assert varied > 0.9 * len(KINDS)


@pytest.mark.parametrize(
    ("form", "value", "written"),
    [
        ("{x} is on {v}", "next Friday", "Ana is next Friday"),
        ("{x} comes on {v}", "tomorrow", "Ana comes tomorrow"),
        ("{x} comes on {v}", "Friday", "Ana comes on Friday"),
        ("{x} is in {v}", "under the stairs", "Ana is under the stairs"),
        ("{x} logs in at {v}", "7:15", "Ana logs in at 7:15"),
        ("{x} has a {v}", "apple", "Ana has an apple"),
        ("{x} has an {v}", "pear", "Ana has a pear"),
        ("{x} has a {v}", "two lamps", "Ana has two lamps"),
        ("{x} found the {v}", "a brass key", "Ana found a brass key"),
        ("{x} booked seat {v}", "seat 22F", "Ana booked seat 22F"),
        ("{x} got a {v} card", "Otis", "Ana got an Otis card"),
        ("{x} joined a {v}", "union", "Ana joined a union"),
    ],
)
def test_a_form_does_not_say_twice_what_its_value_begins_with(form, value, written):
    assert said(form, {"x": "Ana", "v": value}) == written


def test_two_matters_of_the_user_share_no_word_that_says_what_they_are_about():
    mine = [case for case in CASES.values() if case.mine]
    rng = random.Random(2)
    me = remark_cases.Subject("me", "I", "me")
    pairs = [(a, b) for a in rng.sample(mine, 60) for b in rng.sample(mine, 20) if matter_words.apart(a, me, b, me)]
    assert len(pairs) > 300
    for one, other in pairs:
        told = " ".join(form for forms in other.statements.values() for form in forms)
        assert not any(re.search(rf"\b{key}\b", told) for key in one.keys if len(key) > 2), (one.name, other.name)


@pytest.mark.parametrize("split", SPLITS)
def test_one_question_in_eight_has_no_answer_and_changes_are_many(split):
    kinds: Counter[str] = Counter()
    for seed in range(150):
        conversation = write(f"matter {seed}", length=1500, split=split, families=("matters",), functions=0.0)
        kinds.update(turn.kind for turn in conversation.turns)
        answered = {turn.user for turn in conversation.turns if turn.kind in ("stated", "updated")}
        refused = {turn.user for turn in conversation.turns if turn.kind == "unanswerable"}
        assert not answered & refused
    asked = kinds["unanswerable"] + kinds["stated"] + kinds["updated"]
    assert 0.08 < kinds["unanswerable"] / asked < 0.2, kinds
    assert 0.2 < kinds["updated"] / asked < 0.45 and kinds["two hops"] > 0.03 * asked, kinds


def test_the_reader_finds_answers_of_another_subject():
    """Two answers of a conversation are swapped; most are then about the wrong subject."""
    found = exchanged = 0
    for seed in range(150):
        conversation = write(f"swap {seed}", length=1500, split="train", families=("matters",), functions=0.0)
        turns = [turn for turn in conversation.turns if turn.kind == "stated" and turn.thought is None]
        if len(turns) < 2 or turns[0].fact == turns[-1].fact:
            continue
        turns[0].answer, turns[-1].answer = turns[-1].answer, turns[0].answer
        exchanged += 1
        found += bool(Reader(conversation.messages(), stories=True, synonyms=True).complaints)
    assert exchanged > 60 and found > 0.5 * exchanged, (found, exchanged)
