"""How scripts/demo_model/evaluate_plain.py finds an answer's first sentence and a question."""

import re
from collections import Counter
from pathlib import Path

import pytest

from demo_model.evaluate_plain import ITEMS, first_sentence, read_items


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("17. You said: the code is 17.", "17."),
        ("Dr. Okonkwo. You said: my dentist is Dr. Okonkwo.", "Dr. Okonkwo."),
        ("Mrs. Bell and Ms. Ito. They come at 9.", "Mrs. Bell and Ms. Ito."),
        ("At St. Mary's. Why?", "At St. Mary's."),
        ("In room 4.2 today\nand tomorrow", "In room 4.2 today"),
    ],
)
def test_a_sentence_ends_at_its_stop(answer: str, sentence: str) -> None:
    assert first_sentence(answer) == sentence


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        (ITEMS.name, {"stated": 42, "changed": 32, "two hops": 20, "not told": 20, "manners": 21, "table": 21}),
        (
            "more_plain_questions.jsonl",
            {"stated": 35, "changed": 25, "two hops": 18, "not told": 18, "manners": 12, "table": 12},
        ),
        (
            "third_plain_questions.jsonl",
            {"stated": 40, "changed": 30, "two hops": 20, "not told": 20, "manners": 20, "table": 20},
        ),
        (
            "fourth_plain_questions.jsonl",
            {"stated": 30, "changed": 22, "two hops": 15, "not told": 26, "manners": 13, "table": 14},
        ),
    ],
)
def test_the_questions_are_those_of_the_card(name: str, groups: dict[str, int]) -> None:
    items = read_items(ITEMS.with_name(name))
    assert Counter(item["group"] for item in items) == groups
    assert [item["id"] for item in items] == list(range(1, len(items) + 1))
    for item in items:
        assert item["thinking"] or item["group"] != "two hops", item
        assert not set(item["accept"]) & set(item["wrong"]), item


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "--items is FILE, which is empty; expected a question a line"),
        (
            "xx",
            "line 1 of FILE is 'xx'; expected a JSON object of accept, group, id, thinking, turns, wrong, with turns",
        ),
        ('{"id": 1}', "line 1 of FILE is '{\"id\": 1}'; expected a JSON object"),
        ("[]", "line 1 of FILE is '[]'; expected a JSON object"),
        ("caf\xe9", "--items is FILE, which is not UTF-8 text ("),
    ],
)
def test_a_file_of_other_things_is_refused(text: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=re.escape(error.replace("FILE", str(path)))):
        read_items(path)
