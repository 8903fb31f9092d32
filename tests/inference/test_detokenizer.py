import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepseek_v32.inference.text.detokenizer import IncrementalDecoder, StopStrings
from support.tokenizers import make_tokenizer

TOKENIZER = make_tokenizer()
tokens = st.integers(0, TOKENIZER.vocab_size - 1)
encoded = st.text().map(TOKENIZER.encode)


def cuts(sequence, data):
    """The sequence in pieces, some of which may be empty."""
    ends = sorted(data.draw(st.lists(st.integers(0, len(sequence)), max_size=8)))
    return [sequence[a:b] for a, b in zip([0, *ends], [*ends, len(sequence)], strict=True)]


@given(st.lists(tokens) | encoded, st.data())
def test_pushes_and_finish_join_to_the_whole_decoding(ids, data):
    decoder = IncrementalDecoder(TOKENIZER)
    text = "".join(decoder.push(piece) for piece in cuts(ids, data)) + decoder.finish()
    assert text == TOKENIZER.decode(ids)


@given(encoded)
def test_valid_text_needs_no_finish_and_shows_no_replacement(ids):
    decoder = IncrementalDecoder(TOKENIZER)
    shown = [decoder.push([token]) for token in ids]
    whole = TOKENIZER.decode(ids)
    assert "".join(shown) == whole.rstrip("\ufffd")
    assert "".join(shown).count("\ufffd") <= whole.count("\ufffd")


def test_a_character_comes_with_its_last_byte():
    ids = TOKENIZER.encode("🐙")
    assert len(ids) > 1
    decoder = IncrementalDecoder(TOKENIZER)
    assert [decoder.push([token]) for token in ids] == [""] * (len(ids) - 1) + ["🐙"]
    assert decoder.finish() == ""


def test_a_cut_character_is_replaced_at_the_end():
    decoder = IncrementalDecoder(TOKENIZER)
    assert decoder.push(TOKENIZER.encode("a🐙")[:-1]) == "a"
    assert decoder.finish() == "\ufffd"
    assert decoder.push(TOKENIZER.encode("b")) == "b"


def first_stop(text, stops):
    """(the text before the first stop string, that stop string), found by trying every length."""
    for end in range(len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            stop = max(hits, key=len)
            return text[: end - len(stop)], stop
    return text, None


small = st.text("ab", max_size=12)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(small, stop_lists, st.data())
def test_stops_cut_where_the_oracle_says_however_text_arrives(text, stops, data):
    searcher, shown, found = StopStrings(stops), "", None
    expected, expected_stop = first_stop(text, stops)
    for piece in cuts(text, data):
        safe, found = searcher.push(piece)
        shown += safe
        # No part of the stop string has been shown.
        assert expected.startswith(shown)
    shown += searcher.finish()
    assert (shown, found) == (expected, expected_stop)


def test_only_a_possible_start_of_a_stop_is_held():
    searcher = StopStrings(["\nUser:"])
    assert searcher.push("hello\nU") == ("hello", None)
    assert searcher.push("p") == ("\nUp", None)
    assert searcher.push("\nUser: x") == ("", "\nUser:")
    assert searcher.push("more") == ("", "\nUser:")
    assert searcher.finish() == ""


def test_an_empty_stop_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["a", ""])
