"""Tokenizer, generation and model settings of wrong types: refused in one line that names file and key, never a traceback."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.text.errors import TokenizerError
from deepseek_v32.inference.text.messages import encode_messages
from deepseek_v32.inference.text.settings import read_settings, sampling_defaults
from deepseek_v32.inference.text.tokenizer import Tokenizer
from support.tokenizers import write_tokenizer

NAMED = [{"name": "default", "template": "{{ messages }}"}]
GOOD: dict[str, dict[str, list[Any]]] = {
    "tokenizer_config.json": {
        "bos_token": [None, "<s>", {"content": "<s>", "__type": "AddedToken"}],
        "eos_token": [None, "</s>", {"content": "</s>"}],
        "chat_template": [None, "{{ messages }}", NAMED, []],
        "clean_up_tokenization_spaces": [None, True, False],
        "model_max_length": [None, 5, 1e30, 10**30],
        "added_tokens_decoder": [None, {}, {"0": {"content": "a"}}],
        "anything": [None, 3, [], {}],
    },
    "generation_config.json": {
        "eos_token_id": [None, 1, [], [1, 2]],
        "temperature": [None, 1, 0.6],
        "do_sample": [None, True],
        "top_k": [None, 50],
        "anything": [None, 3, [], {}],
    },
    "config.json": {"eos_token_id": [None, 1, [1, 2]], "bos_token_id": [0]},
}
BAD: dict[str, dict[str, list[Any]]] = {
    "tokenizer.json": {
        "added_tokens": [None, 3, {}, [1], [{}], [{"content": "a"}], [{"content": 1, "id": 1}], [{"content": "a", "id": True}],
                         [{"content": "", "id": 1}]],
        "decoder": [3, "x", ["x"]],
        "model": [None, 3, []],
    },
    "tokenizer_config.json": {
        "bos_token": [True, 0, 1, [], {}, {"content": None}, {"content": [1]}, "<nowhere>"],
        "eos_token": [False, 1.5, ["</s>"], {"text": "</s>"}, {"content": "<nowhere>"}],
        "chat_template": [1, True, {}, ["x"], [None], [{}], [{"name": "default"}], [{"name": "default", "template": 3}]],
        "clean_up_tokenization_spaces": [0, "no"],
        "model_max_length": ["5", True],
        "tokenizer_class": [1, []],
        "added_tokens_decoder": [[], "x"],
    },
    "generation_config.json": {
        "eos_token_id": [True, -1, 1.0, "1", [[1]], [None], [1, "2"], {}, 2**31],
        "temperature": ["hot", [1]],
        "do_sample": [1, "yes"],
        "top_k": [50.0, "50"],
    },
    "config.json": {"eos_token_id": [True, -1, "1", [None], [[1]]]},
}  # fmt: skip


def cases(table: dict[str, dict[str, list[Any]]]) -> list[Any]:
    return [
        pytest.param(name, key, value, id=f"{name}-{key}-{value!r}"[:80])
        for name, keys in table.items()
        for key, values in keys.items()
        for value in values
    ]


@pytest.mark.parametrize(("name", "key", "value"), cases(GOOD))
def test_values_of_the_right_type(tmp_path, name, key, value):
    (tmp_path / name).write_text(json.dumps({key: value}))
    assert read_settings(tmp_path / name) == {key: value}


@pytest.mark.parametrize(("name", "key", "value"), cases(BAD))
def test_values_of_a_wrong_type(tmp_path, name, key, value):
    write_tokenizer(tmp_path)
    path = tmp_path / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | {key: value}))
    text = refused(tmp_path)
    assert f"{path}: {key} is " in text and "; expected " in text


def refused(directory: Path) -> str:
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_directory(directory)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 500, text
    return text


def test_templates_without_a_default_are_refused(tmp_path):
    """transformers refuses them, too."""
    write_tokenizer(tmp_path, chat_template=[{"name": "tool_use", "template": "{{ messages }}"}])
    assert "chat_template has 'tool_use'; expected one named default" in refused(tmp_path)


def test_an_end_token_of_another_file_is_enough(tmp_path):
    write_tokenizer(tmp_path, eos_token="<nowhere>")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 1}')
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer is not None and tokenizer.eos_ids == (1,)


def test_end_tokens_outside_of_the_vocabulary(tmp_path):
    write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"vocab_size": 100}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 100]}')
    assert "generation_config.json: eos_token_id is [1, 100]; expected ids of the vocabulary of 100" in refused(
        tmp_path
    )


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]
)
def test_files_that_are_no_files(tmp_path, name):
    path = tmp_path / name
    for make, message in (
        (lambda: path.mkdir(), "cannot be read"),
        (lambda: path.symlink_to(tmp_path / "gone"), "missing file" if name.endswith("json") else "cannot be read"),
        (lambda: path.symlink_to(path), "cannot be read"),
        (lambda: path.write_bytes(b"\xff\xfe{}"), "UTF-8" if name.endswith("jinja") else "not valid JSON"),
    ):
        write_tokenizer(tmp_path)
        path.unlink(missing_ok=True)
        make()
        text = refused(tmp_path)
        assert str(path) in text and message in text
        path.rmdir() if path.is_dir() else path.unlink()


# What replaces every value, four levels deep.
WRONG = [None, True, 0, -1, 1.5, "x", "", [], [1], ["x"], [None], [[1]], {}, {"a": 1}, {"content": 1}, 10**30]


def places(value: Any, depth: int = 0) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of a JSON value's parts; in long lists and objects, only the first and the last part."""
    if depth and not (isinstance(value, dict | list) and len(value) > 100):
        yield ()
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys if len(keys) < 20 else (keys[0], keys[-1]):
        if depth < 4:
            yield from ((key, *rest) for rest in places(value[key], depth + 1))


def generation(directory: Path, **values: Any) -> dict[str, Any]:
    (directory / "generation_config.json").write_text(json.dumps(values))
    sampling_defaults(directory, SamplingParams)
    return sampling_defaults(directory, dict[str, Any])


def test_generation_keys_are_honoured(tmp_path):
    """vLLM's `get_diff_sampling_param` and transformers' do_sample."""
    given = {"temperature": 0.6, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1}
    assert generation(tmp_path, **given, max_new_tokens=9, do_sample=True) == {**given, "max_tokens": 9}
    assert generation(tmp_path, **given, do_sample=False) == {**given, "temperature": 0}
    assert generation(tmp_path, top_p=None, max_new_tokens=None, do_sample=None, bos_token_id=0, anything=3) == {}


def test_generation_keys_of_transformers(tmp_path):
    """Every key of transformers is accepted at its neutral value, and one that would choose other tokens at no other."""
    from transformers import GenerationConfig

    neutral = vars(GenerationConfig()) | GenerationConfig._get_default_generation_params()
    assert len(neutral) > 60
    for key, value in neutral.items():
        generation(tmp_path, **{key: value})
    others = {
        "num_beams": 4, "typical_p": 0.9, "top_h": 0.5, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1, "no_repeat_ngram_size": 3,
        "min_length": 5, "min_new_tokens": 5, "stop_strings": ["a"], "suppress_tokens": [3], "begin_suppress_tokens": [3],
        "bad_words_ids": [[3]], "sequence_bias": [[[3], 1.0]], "guidance_scale": 1.5, "penalty_alpha": 0.6, "dola_layers": "high",
        "forced_eos_token_id": 1, "forced_bos_token_id": 0, "exponential_decay_length_penalty": [5, 1.1], "max_time": 1.0,
        "encoder_repetition_penalty": 1.5, "watermarking_config": {}, "token_healing": True, "num_return_sequences": 2,
    }  # fmt: skip
    for key, value in others.items():
        with pytest.raises(TokenizerError, match=f"generation_config.json: {key} is .*; expected "):
            generation(tmp_path, **{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("top_p", 7), ("temperature", -1), ("min_p", 2), ("top_k", -2), ("max_new_tokens", 0), ("repetition_penalty", 0)],
)
def test_a_bad_generation_value_names_its_file_and_key(tmp_path, key, value):
    with pytest.raises(TokenizerError, match=f"{tmp_path}/generation_config.json: {key} is {value}; expected "):
        generation(tmp_path, **{key: value})


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_any_wrong_value_is_refused_or_used(tmp_path, name):
    """No error but TokenizerError, from loading to encoding a conversation and decoding it."""
    write_tokenizer(tmp_path, chat_template="{{ messages[0].content }}", add_bos_token=False)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1], "temperature": 1.0, "do_sample": true}')
    path = tmp_path / name
    good = json.loads(path.read_text())
    tried = 0
    for number, place in enumerate(places(good)):
        for wrong in WRONG[number % 4 :: 4] if name == "tokenizer.json" else WRONG:
            values = deepcopy(good)
            part = values
            for key in place[:-1]:
                part = part[key]
            part[place[-1]] = wrong
            path.write_text(json.dumps(values))
            tried += 1
            try:
                tokenizer = Tokenizer.from_directory(tmp_path)
            except TokenizerError as error:
                assert str(error).isprintable() and len(str(error)) < 600
                continue
            assert tokenizer is not None
            ids = encode_messages([{"role": "user", "content": "<think>three 3"}], tokenizer)
            tokenizer.decode(ids)
    assert tried > 40
