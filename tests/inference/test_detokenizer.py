import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.convert_slow_tokenizer import bytes_to_unicode

from deepseek_v32.inference.text.detokenizer import IncrementalDecoder, StopStrings
from deepseek_v32.inference.text.tokenizer import Tokenizer
from support.tokenizers import definition, make_tokenizer

TOKENIZER = make_tokenizer()
BYTE_LEVEL = bytes_to_unicode()  # the character for each byte in byte-level vocabularies
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


def spelled_bytes():
    """A tokenizer that decodes as SentencePiece's do: bytes that no token has are tokens of their own, named <0x00> to <0xFF>."""
    content = json.loads(definition())
    vocabulary = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "b"]
    content["model"] = {"type": "BPE", "vocab": {text: id for id, text in enumerate(vocabulary)}, "merges": []}
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return Tokenizer({**content, "decoder": {"type": "Sequence", "decoders": decoders}, "added_tokens": []})


class Counted(Tokenizer):
    """Counts the tokens that it decodes."""

    def __init__(self, definition):
        super().__init__(definition)
        self.work, bytes_of = 0, self.token_bytes

        def token_bytes(*options):
            self.work += 1
            return bytes_of(*options)

        self.token_bytes = token_bytes

    def decode(self, ids, *options):
        self.work += len(ids)
        return super().decode(ids, *options)


@pytest.mark.parametrize("kind", ["byte-level", "other"])
def test_bytes_that_form_no_character_are_shown_at_once_and_cost_no_more_than_others(kind):
    tokenizer = TOKENIZER if kind == "byte-level" else spelled_bytes()
    counted = Counted(tokenizer._definition)
    [first] = [
        id for id in range(300) if tokenizer._full.id_to_token(id) in ("Ģ", "<0x80>")
    ]  # never begins a character
    work = []
    for count in (100, 1000):
        decoder, counted.work, shown = IncrementalDecoder(counted), 0, ""
        for _ in range(count):
            shown += decoder.push([first])
        assert shown == "\ufffd" * len(shown) and len(shown) >= count - 3
        work.append(counted.work)
        assert len(shown + decoder.finish()) == count
    assert work[1] <= 11 * work[0] and work[1] <= 30 * 1000


@given(
    st.lists(
        st.sampled_from([0x41, 0x80, 0xBF, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xED, 0xA0, 0xF0, 0x9F, 0x99, 0x82, 0xF5])
    )
)
def test_at_most_three_bytes_are_held_back(written):
    """The library decodes the same bytes at once."""
    ids = [TOKENIZER._full.token_to_id(BYTE_LEVEL[byte]) for byte in written]
    decoder, shown = IncrementalDecoder(TOKENIZER), ""
    for count, id in enumerate(ids, 1):
        shown += decoder.push([id])
        assert TOKENIZER.decode(ids[:count]).startswith(shown)
        assert len(TOKENIZER.decode(ids[:count])) - len(shown) <= 3
    assert shown + decoder.finish() == TOKENIZER.decode(ids) == bytes(written).decode(errors="replace")


def test_other_decoders_see_the_tokens_before():
    tokenizer = spelled_bytes()
    ids = [tokenizer._full.token_to_id(name) for name in ("▁a", "b", "<0xE2>", "<0x82>", "<0xAC>", "▁a")] * 20
    decoder = IncrementalDecoder(tokenizer)
    assert "".join([*(decoder.push([id]) for id in ids), decoder.finish()]) == tokenizer.decode(ids) == " ab€ a" * 20


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
