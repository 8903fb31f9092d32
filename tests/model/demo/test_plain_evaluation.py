"""What scripts/evaluate_plain.py takes for an answer's first sentence."""

import pytest
from evaluate_plain import first_sentence  # type: ignore[import-not-found]


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
