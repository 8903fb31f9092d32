"""Remarks: every form can be written, splits share no wording, and questions are near to what was told."""

import random
import re
from collections import Counter

import pytest

from demo_model.dialogues import write
from demo_model.dialogues.plain import (
    records,
    remark_cases,
    remark_chains,
    remark_links,
    remark_telling,
    remark_values,
    remarks,
)
from demo_model.dialogues.plain.remark_cases import CASES
from demo_model.dialogues.splits import SPLITS
from demo_model.dialogues.writer import Writer
from support.demo_reader import Reader

_OWN = {"x", "xs", "xp", "xo", "xr"}


def slots_of(form: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", form)) - _OWN


@pytest.mark.parametrize("name", CASES)
def test_every_form_of_a_case_has_the_slots_that_it_may_have(name):
    rng, case = random.Random(name), CASES[name]
    assert case.untold and sum(map(len, case.statements.values())) >= 5
    assert all(remark_values.value(rng, "train", slot.kind) for slot in case.slots.values())
    statements = [form for forms in case.statements.values() for form in forms]
    assert all(slots_of(form) and slots_of(form) <= case.slots.keys() for form in statements), statements
    assert {slot for form in statements for slot in slots_of(form)} == set(case.slots)
    for letter, slot in case.slots.items():
        assert letter != "o", "the value before has this name in changes"
        for form in (*slot.asks, *slot.nouns):
            assert not slots_of(form), f"{form}: a question would tell the value"
        for form in (form for forms in slot.changes.values() for form in forms):
            assert letter in slots_of(form) and slots_of(form) <= {letter, "o"}, form
        for form in (form for forms in slot.same.values() for form in forms):
            assert slots_of(form) in ({"z"}, {"x2"}) and slots_of(slot.same_ask) == slots_of(form), form
    assert not any(slots_of(form) for form in case.untold)
    about = remark_cases.draw(rng, "train", case)
    if case.mine:
        assert not any(set(re.findall(r"\{(\w+)\}", form)) & _OWN for form in statements)
    else:
        assert about.text and about.key


def test_splits_share_no_wording_and_each_has_some():
    for name in ("asks_of", "changes", "same"):
        of = {
            split: {
                (c.name, letter, f)
                for c in CASES.values()
                for letter, s in c.slots.items()
                for f in getattr(s, name)[split]
            }
            for split in SPLITS
        }
        assert all(of[split] for split in SPLITS), name
        assert not of["train"] & of["test"] and not of["train"] & of["validation"]
    told = {split: {(c.name, form) for c in CASES.values() for form in c.tellable(split)} for split in SPLITS}
    assert len(told["train"]) > 600 and len(told["test"]) > 40 and not told["train"] & told["test"]
    for forms in remark_telling.FRAMES.values():
        assert len(forms["train"]) > 8 and not set(forms["train"]) & set(forms["test"])


def test_cases_that_could_answer_each_other_are_kept_apart():
    assert not any(CASES["likes"] in remark_cases.beside(CASES[name]) for name in ("drinkof", "brings"))
    assert CASES["age"] in remark_cases.beside(CASES["hometown"]), "another matter of the same person"
    for case in CASES.values():
        for other in remark_cases.beside(case):
            assert case.mine == other.mine and case.name != other.name
            asks = {ask for slot in case.slots.values() for ask in slot.asks}
            assert not asks & {ask for slot in other.slots.values() for ask in slot.asks}, (case.name, other.name)


def conversations(split: str, count: int = 120):
    return [write(f"remark {n}", length=1500, split=split, families=("remarks",), functions=0.0) for n in range(count)]


@pytest.mark.parametrize("split", SPLITS)
def test_a_quarter_of_the_questions_has_no_answer_and_many_facts_change(split):
    kinds = Counter(turn.kind for conversation in conversations(split) for turn in conversation.turns)
    asked = kinds["unanswerable"] + kinds["stated"] + kinds["updated"]
    assert 0.1 < kinds["unanswerable"] / asked < 0.3, kinds
    assert 0.15 < kinds["updated"] / asked < 0.4 and kinds["two hops"] > 0.03 * asked, kinds


def test_a_question_that_was_answered_is_never_refused():
    for conversation in conversations("train", 200):
        answered, refused = set(), set()
        for turn in conversation.turns:
            asked = re.split(r"\n|(?<=[.!?]) ", turn.user.strip())[-1].lower().strip("?. ")
            (refused if turn.kind == "unanswerable" else answered if turn.kind in ("stated", "updated") else set()).add(
                asked
            )
        assert not answered & refused


def test_a_vague_question_is_asked_where_one_value_alone_can_be_meant():
    case = CASES["gathering"]
    told = remark_telling.Remarked(case, remark_cases.subject("the demo", "it"))
    told.values = {"t": "9:30"}
    assert "when is the demo" in [ask for split in SPLITS for ask in told.asks("t", split)]
    told.values["d"] = "Friday"
    asks = [ask for split in SPLITS for slot in "td" for ask in told.asks(slot, split)]
    assert asks and not any(ask.startswith("when") for ask in asks)


def test_a_pronoun_stands_in_the_right_case():
    told = remark_telling.Remarked(CASES["pill"], remark_cases.subject("Anna", "she"))
    writer = Writer(random.Random(1), "train", "train", 0.0)
    asks = [form for case in CASES.values() if case.somebody for slot in case.slots.values() for form in slot.asks]
    forms = {form for _ in range(60) for form in remarks.Remarks(writer).with_pronoun(told, asks, "y")}
    assert len(forms) > 100
    wrong = r"(?<!what )(has|does|is|did|was) her$|(for|to|visit|expect|reach|of) she\b|take her"
    assert not [form for form in forms if re.search(wrong, form)]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("room 5. You said: Raj sits in room 5.", ""),
        ("room 6. You said: Raj sits in room 5.", "not in the quote"),
        ("room 5. You said: Raj sits in room 5!", "never said"),
    ],
)
def test_the_reader_follows_what_two_have_in_common(answer, complaint):
    thought = "First: Ana shares an office with Raj. Then: Raj sits in room 5."
    messages = [
        {"role": "user", "content": "Ana shares an office with Raj. Raj sits in room 5.\nWhere does Ana sit?"},
        {"role": "assistant", "content": answer, "reasoning_content": thought},
    ]
    complaints = Reader(messages, stories=True).complaints
    assert complaint in complaints[0] if complaint else not complaints, complaints


def test_values_are_of_many_pieces():
    """Kinds without a list of values hardly ever repeat a value."""
    rng = random.Random(1)
    for kind in ("handle", "mail", "longcode", "secret", "band", "title", "eatery"):
        drawn = {remark_values.value(rng, "train", kind) for _ in range(300)}
        assert len(drawn) > 270, kind


@pytest.mark.parametrize(
    "link",
    [*remark_links.LINKS, *remark_links.MATTER_LINKS],
    ids=lambda link: f"{link.subjects[0]} {link.named} {link.value}",
)
def test_a_link_names_what_its_second_remark_is_about(link):
    every = {mark: {form for forms in of.values() for form in forms} for mark, of in link.forms.items()}
    assert every.keys() == {"1>", "1?", "2>", "2?", "q?"}
    for mark, forms in every.items():
        for form in forms:
            slots = set(re.findall(r"\{(\w+)\}", form)) - {"r", "xr"}
            wanted = {"1>": "xb", "1?": "x", "2>": "bv", "2?": "b", "q?": "x"}[mark]
            assert {slot[0] for slot in slots} == set(wanted), f"{mark} {form}"
    for one, other in (("train", "test"), ("train", "validation")):
        assert not any(set(of[one]) & set(of[other]) for of in link.forms.values())


@pytest.mark.parametrize("split", SPLITS)
def test_a_question_of_two_remarks_names_neither_the_link_nor_the_value(split):
    drawn = Counter()
    for seed in range(300):
        writer = Writer(random.Random(seed), split, split, 0.5)
        writer.plain = True
        chain = remark_chains.draw_chain(writer)
        if chain is None:
            continue
        linked, found = (fact.questions[0].value for fact in (chain.first, chain.second))
        assert linked in chain.first.sentence or linked[1:] in chain.first.sentence
        assert found in chain.second.sentence or found[1:] in chain.second.sentence
        assert linked not in chain.question and found not in chain.question, chain
        drawn[chain.first.questions[0].signature.split()[0]] += 1
    assert drawn["hop"] > 60 and drawn["remark"] > 4, drawn


@pytest.mark.parametrize("sheet", records.SHEETS, ids=lambda sheet: sheet.titles[0])
def test_a_table_is_asked_by_any_of_its_columns(sheet):
    assert len({key for _, key in sheet.asks}) > 1, "more than one column is a key"
    for (column, key), forms in sheet.asks.items():
        assert {column, key} <= sheet.columns.keys() and column != key
        assert all(set(re.findall(r"\{(\w+)\}", form)) == {"k"} for form in forms)


TABLE = "shift plan\nday,shift,name\nMon,early,Pia\nTue,late,Ugo\nWed,split,Ren"


@pytest.mark.parametrize(
    ("question", "answer", "complaint"),
    [
        ("Which shift is Ren on?", "split. Your text says: Wed,split,Ren", ""),
        ("Who works on Tue?", "Ugo. Your text says: Tue,late,Ugo", ""),
        ("Which shift is Ren on?", "late. Your text says: Tue,late,Ugo", "is asked for"),
        ("Which port?", '5433. Your text says: {"host": "db-3", "port": 5433}', ""),
        ("Which port?", 'db-3. Your text says: {"host": "db-3", "port": 5433}', "is asked for"),
    ],
)
def test_the_reader_looks_up_by_any_column_and_by_the_name_of_a_setting(question, answer, complaint):
    text = '{"host": "db-3", "port": 5433}' if "port" in question else TABLE
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    complaints = Reader(messages, stories=True).complaints
    assert complaint in complaints[0] if complaint else not complaints, complaints


@pytest.mark.parametrize("split", SPLITS)
def test_settings_are_pasted_asked_for_and_changed(split):
    changed = asked = 0
    for seed in range(80):
        writer = Writer(random.Random(seed), split, split, 0.0)
        writer.plain = writer.strict = True
        asked += records.play(writer)
        changed += sum(turn.kind == "updated" for turn in writer.turns)
        for turn in writer.turns:
            if turn.kind == "stated":
                assert turn.assistant.startswith(turn.value + ". Your text says: "), turn
    assert asked > 80 and changed > 5, (asked, changed)
