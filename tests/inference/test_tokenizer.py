import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepseek_v32.inference.text.detokenizer import IncrementalDecoder
from deepseek_v32.inference.text.errors import TokenizerError
from deepseek_v32.inference.text.tokenizer import Special, Tokenizer
from support.tokenizers import BOS, EOS, MARKUP, PAD, definition, make_tokenizer, write_tokenizer

TOKENIZER = make_tokenizer()
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


def test_lone_surrogates_are_replaced():
    assert "a" in TOKENIZER.decode(TOKENIZER.encode("a\ud800b"))
