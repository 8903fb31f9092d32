"""Asides: clauses without their verb, remarks turned to the user, lists in a sentence, changes that only restate."""

import random
import re
from collections import Counter

import pytest

from demo_model.dialogues import write
from demo_model.dialogues.plain import aside_cases, aside_links, aside_words, listing_words, listings
from demo_model.dialogues.plain.aside_cases import clause_without_verb, first_person
from demo_model.dialogues.splits import SPLITS
from demo_model.dialogues.writer import Writer
from support.demo_reader import Reader


@pytest.mark.parametrize(
    ("form", "turned"),
    [
        ("{x} is allergic to {y}", "I'm allergic to {y}"),
        ("{x} just turned {y}", "I just turned {y}"),
        ("{x} studies {y} at {u}", "I study {y} at {u}"),
        ("{x} quit and is a {y} now", "I quit and am a {y} now"),
        ("{y} makes {x} sick, it's an allergy", "{y} makes me sick, it's an allergy"),
        ("what can't {x} eat", "what can't I eat"),
        ("where does {x} live", "where do I live"),
        ("who is {xs} boss", "who is my boss"),
        ("{x} owes me {y}", None),
        ("{y} is where {x} lives", None),
        ("{x} said {xp}'d bring {y}", None),
    ],
)
def test_a_form_is_turned_to_the_user_or_left_out(form, turned):
    assert first_person(form) == turned


def test_own_cases_speak_of_the_user_alone():
    assert len(aside_cases.OWN) > 20
    for case in aside_cases.OWN.values():
        forms = [form for forms in case.statements.values() for form in forms]
        forms += [form for slot in case.slots.values() for form in (*slot.asks, *slot.nouns)]
        for form in forms:
            assert not re.search(r"\{x[spor]?\}|\bI (is|has|does|was born is)\b|\bme \w+s\b(?<!as)", form), form
        assert case.mine and set(case.keys).isdisjoint({"what", "does"})


@pytest.mark.parametrize(
    ("form", "short"),
    [
        ("{x} sits in {y}", "{x} in {y}"),
        ("{x} brings {y}", "{x} {y}"),
        ("{x} is married to {y}", "{x} to {y}"),
        ("{x} can't eat {y}", None),
        ("{x} has {a} and {y}", None),
        ("{y} belongs to {x}", None),
    ],
)
def test_a_second_clause_leaves_out_what_the_first_one_says(form, short):
    assert clause_without_verb(form, "x", "y") == short


@pytest.mark.parametrize("listing", listings.LISTINGS, ids=lambda listing: listing.name)
def test_every_form_of_a_list_has_its_slots(listing):
    rng = random.Random(listing.name)
    for forms, wanted in (
        (listing.items, {"k", "v"}),
        (listing.sentences, {"l"}),
        (listing.asks_of, {"k"}),
        (listing.changes, {"k", "v"}),
    ):
        assert forms["train"] and not set(forms["train"]) & {*forms["test"], *forms["validation"]}
        for form in (form for split in SPLITS for form in forms[split]):
            assert set(re.findall(r"\{(\w)\}", form)) - {"o"} == set(wanted), form
    for split in SPLITS:
        assert listing_words.key_of(rng, split, listing.key) and listing_words.value_of(rng, split, listing.value)


@pytest.mark.parametrize("split", SPLITS)
def test_no_other_key_stands_between_a_key_and_its_value(split):
    """The sentence by itself shows which key the answer belongs to."""
    checked = 0
    for seed in range(400):
        writer = Writer(random.Random(seed), split, split, 0.0)
        writer.plain = True
        telling = listings.ListTelling(writer)
        if not telling.begin() or telling.listing.key == "ordinalkey":
            continue
        said = "".join(telling.parts).lower()
        places = {key: re.search(rf"(?<!\w){re.escape(key.lower())}(?!\w)", said).start() for key in telling.values}
        for key, value in telling.values.items():
            found = [match.start() for match in re.finditer(rf"(?<!\w){re.escape(value.lower())}(?!\w)", said)]
            at = min(found, key=lambda one: abs(one - places[key]))
            low, high = sorted((at, places[key]))
            assert not any(low < place < high for other, place in places.items() if other != key), (key, value, said)
            checked += 1
    assert checked > 300


def test_accents_stand_at_every_place_of_a_word():
    rng, ends = random.Random(1), Counter()
    for _ in range(400):
        text = aside_words.accented(rng, "Lumena")
        assert (len(text) == 6 and not text.isascii()) or text == "Lumena"
        ends.update(n for n, letter in enumerate(text) if not letter.isascii())
    assert set(ends) >= {1, 3, 4, 5} and ends[5] > 100, ends
    names = {aside_words.joined_name(rng, "train") for _ in range(300)}
    assert sum(" & " in name for name in names) > 40 and len(names) > 280


@pytest.mark.parametrize("split", SPLITS)
def test_a_question_of_a_relation_names_neither_the_person_nor_the_value(split):
    drawn = 0
    for seed in range(300):
        writer = Writer(random.Random(seed), split, split, 0.5)
        writer.plain = True
        for draw in (aside_links.draw, aside_links.draw_relation):
            if (chain := draw(writer)) is None:
                continue
            named, found = (fact.questions[0].value for fact in (chain.first, chain.second))
            assert named in chain.first.sentence or named[1:] in chain.first.sentence
            assert found.lower() in chain.second.sentence.lower() and named.lower() in chain.second.sentence.lower()
            assert not re.search(rf"(?<!\w)({re.escape(named)}|{re.escape(found)})(?!\w)", chain.question), chain
            drawn += 1
    assert drawn > 150


@pytest.mark.parametrize("split", SPLITS)
def test_a_tenth_of_the_questions_has_no_answer_and_changes_are_many(split):
    kinds: Counter[str] = Counter()
    silent = 0
    for seed in range(150):
        conversation = write(f"aside {seed}", length=1500, split=split, families=("asides",), functions=0.0)
        kinds.update(turn.kind for turn in conversation.turns)
        changed = [turn.assistant for turn in conversation.turns if turn.kind == "updated"]
        silent += sum(not re.search(r"\b(now|not|no longer|instead|change|new|moved)\b", text) for text in changed)
    asked = kinds["unanswerable"] + kinds["stated"] + kinds["updated"]
    assert 0.06 < kinds["unanswerable"] / asked < 0.2, kinds
    assert 0.2 < kinds["updated"] / asked < 0.45 and kinds["two hops"] > 0.05 * asked, kinds
    assert silent > 0.25 * kinds["updated"], "a change may be nothing but the new statement"


@pytest.mark.parametrize(
    ("question", "answer", "complaint"),
    [
        ("What's the second thing?", "pay rent. You said: 2. pay rent", ""),
        ("What's the last thing?", "buy stamps. You said: 3. buy stamps", ""),
        ("What's the last thing?", "pay rent. You said: 2. pay rent", "another line"),
        ("What's the first thing?", "pay rent. You said: 2. pay rent", "another line"),
    ],
)
def test_the_reader_counts_the_lines_of_a_numbered_list(question, answer, complaint):
    messages = [
        {"role": "user", "content": "1. call Bo\n2. pay rent\n3. buy stamps"},
        {"role": "assistant", "content": "Noted."},
    ]
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    complaints = Reader(messages, stories=True).complaints
    assert complaint in complaints[0] if complaint else not complaints, complaints
