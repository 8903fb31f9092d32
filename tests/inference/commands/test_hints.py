"""Errors for checkpoints that cannot be loaded name the problem and a way out."""

import json
import shutil

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from deepseek_v32.inference import LLM
from deepseek_v32.inference.commands import cli
from tiny_model.checkpoint import TINY, write_checkpoint
from tiny_model.tokenizer import write_tokenizer

SHARDS = 14
# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n" % 7


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    path = tmp_path_factory.mktemp("pristine")
    write_checkpoint(path, TINY, shards=SHARDS)
    write_tokenizer(path, TINY.vocab_size, ["the quick brown fox"] * 20)
    return path


@pytest.fixture
def checkpoint(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "checkpoint")


def refused(path):
    """Return the errors of `generate --model path` and LLM(path)."""
    result = CliRunner().invoke(cli.app, ["generate", "Hi", "--model", str(path)])
    assert isinstance(result.exception, ValueError), result.output
    with pytest.raises(ValueError) as caught:
        LLM(path)
    texts = str(result.exception), str(caught.value)
    assert all("\n" not in text and str(path) in text and "; expected" in text for text in texts), texts
    return texts


def test_a_model_of_the_hub_gets_the_command_that_downloads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in refused("deepseek-ai/DeepSeek-V3.2"):
        assert text.endswith("hf download deepseek-ai/DeepSeek-V3.2 --local-dir DeepSeek-V3.2")
    for path in ("no/such/place", "/no/place", "../place", "place"):
        assert all("hf download" not in text and "is no directory" in text for text in refused(path))


def test_files_are_called_files(checkpoint):
    weights = next(checkpoint.glob("*.safetensors"))
    for text in refused(weights):
        assert f"is a file; expected the checkpoint directory, which may be {str(checkpoint)!r}" in text
    weights = weights.rename(checkpoint / "model.gguf")
    assert all("is a GGUF file" in text for text in refused(weights))
    (checkpoint / "link").symlink_to("gone")
    assert all("is a link to nothing" in text for text in refused(checkpoint / "link"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors.index.json"])
def test_a_settings_file_that_is_a_git_lfs_pointer(checkpoint, name):
    (checkpoint / name).write_bytes(POINTER)
    assert all("a Git LFS pointer" in text and "git lfs pull" in text and name in text for text in refused(checkpoint))


def test_all_shards_that_are_missing_are_named_up_to_ten(checkpoint):
    shards = sorted(checkpoint.glob("model-*.safetensors"))
    assert len(shards) == SHARDS
    names = [shard.name for shard in shards]
    shards[3].unlink()
    shards[5].unlink()
    expected = f"2 of {SHARDS} files of weights ({names[3]}, {names[5]}) are missing; expected all"
    assert all(expected in text for text in refused(checkpoint))
    for shard in (*shards[:3], shards[4], *shards[6:]):
        shard.write_bytes(POINTER)
    assert all(expected in text for text in refused(checkpoint)), "what is missing comes first"
    shutil.copy(shards[0], shards[3])
    shutil.copy(shards[0], shards[5])
    expected = f"{SHARDS} of {SHARDS} files of weights ({', '.join(names[:10])}, …) are Git LFS pointers; expected"
    assert all(expected in text and "git lfs pull" in text for text in refused(checkpoint))


def test_another_architecture_is_refused_before_its_tokenizer_is_looked_for(checkpoint):
    values = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(values | {"architectures": ["LlamaForCausalLM"]}))
    (checkpoint / "tokenizer.json").unlink()
    assert all("LlamaForCausalLM" in text and "DeepseekV32ForCausalLM" in text for text in refused(checkpoint))


def test_a_tokenizer_of_another_model_is_refused(checkpoint):
    (checkpoint / "tokenizer.json").unlink()
    write_tokenizer(checkpoint, 2 * TINY.vocab_size, [f"word{number} and others" for number in range(2000)])
    rows = load_file(next(checkpoint.glob("model-00001-*")))["model.embed_tokens.weight"].shape[0]
    for text in refused(checkpoint):
        assert f"expected at most {rows}, the vocabulary in config.json: it is another model's" in text


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["serve", "--gpu-memory-utilization=2"], "--gpu-memory-utilization is 2.0"),
        (["serve", "--memory-fraction", "2"], "--memory-fraction is 2.0"),
        (["serve", "--max-num-seqs", "0"], "--max-num-seqs is 0"),
        (["serve", "--model-name="], "--served-model-name is ''"),
        (["serve", "--allowed-host", "http://x"], "--allowed-host is 'http://x'"),
        (["serve", "--allowed-origins", "*", "--allowed-origins", "foo"], "--allowed-origins is 'foo'"),
        (["generate", "Hi", "--max-tokens", "0"], "--max-tokens is 0"),
        (["generate", "Hi", "--max-new-tokens", "0"], "--max-new-tokens is 0"),
    ],
)
def test_an_error_has_the_name_of_the_option_that_was_given(monkeypatch, command, option):
    monkeypatch.setattr("sys.argv", ["deepseek-v32", *command])
    result = CliRunner().invoke(cli.app, command)
    assert str(result.exception).startswith(f"{option}; expected ")
