"""Hashes: every changed byte is noticed while loading, by its tensor's name, in both layouts and by every rank that reads it."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from safetensors.torch import load_file
from typer.testing import CliRunner

from deepseek_v32.inference import LLM
from deepseek_v32.inference.commands.cli import app
from deepseek_v32.inference.config import EngineConfig
from deepseek_v32.inference.distributed.model_source import ModelSource
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.checkpoint.manifest import verify, write_manifest
from deepseek_v32.model.config import YarnScaling
from deepseek_v32.model.errors import CheckpointError
from deepseek_v32.model.parallel.collectives import Ranks
from tiny_model.checkpoint import TINY, write_checkpoint

# 300 rows and more in one tensor, and widths that are no multiple of 128.
CONFIG = replace(TINY, vocab_size=700, hidden_size=136, num_hidden_layers=2, n_routed_experts=4, num_experts_per_tok=2)
MANIFEST = "model.safetensors.manifest.json"
Q = "model.layers.1.self_attn.q_a_proj.weight"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two files with its manifest, and its conversion for one rank."""
    directory = tmp_path_factory.mktemp("pristine")
    write_checkpoint(directory / "plain", CONFIG, "fp8", shards=2)
    write_manifest(directory / "plain")
    convert(directory / "plain", directory / "converted", 1)
    return directory


@pytest.fixture(params=["plain", "converted"])
def target(request: pytest.FixtureRequest, pristine: Path, tmp_path: Path) -> Path:
    """A copy of one of them."""
    return Path(shutil.copytree(pristine / request.param, tmp_path / "copy"))


def refusal(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        call(*arguments, **named)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 900
    return text


def places(file: Path) -> dict[str, tuple[int, int]]:
    """Return each tensor's place in a safetensors file, from only its header."""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return {
        name: tuple(8 + length + offset for offset in entry["data_offsets"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def flip(file: Path, position: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


def test_an_untouched_checkpoint_loads(target):
    for precision in ("exact", "fp8"):
        load_model(target, precision)
    assert verify(target) == sum(len(load_file(path)) for path in target.glob("*.safetensors"))


def test_every_flipped_bit_is_noticed(target):
    """The lowest bit of the first, a middle and the last byte of every eighth tensor: of values that stay finite."""
    found = [(file, name, span) for file in sorted(target.glob("*.safetensors")) for name, span in places(file).items()]
    for number, (file, name, (start, stop)) in enumerate(found[::8]):
        position = (start, (start + stop) // 2, stop - 1)[number % 3] if "scale" not in name else start
        flip(file, position)
        text = refusal(load_model, target, "fp8")
        assert str(file) in text and f"tensor {name!r}: the hash of bytes " in text
        assert name in refusal(verify, target)
        flip(file, position)
    load_model(target, "fp8")


def test_hashes_need_not_be_verified(target):
    """Bits that no other check notices: low bits of values."""
    file = min(target.glob("*.safetensors"))
    name, (start, _) = next((name, span) for name, span in places(file).items() if name.endswith("norm.weight"))
    flip(file, start)
    load_model(target, verify_hashes=False)
    with pytest.raises(CheckpointError, match=re.escape(name)):
        LLM(target, device="cpu")
    assert LLM(target, device="cpu", verify_hashes=False).config.num_hidden_layers == 2


@pytest.mark.parametrize(
    ("verified", "overrides"),
    [
        (True, {"yarn": None}),
        # config.json would have no key for these scales, and no such YaRN.
        (False, {"weight_block": None, "ue8m0_scales": False, "yarn": YarnScaling(2.0, 2048), "eos_token_ids": (1, 2)}),
    ],
)
def test_other_ranks_get_the_same_source(pristine, verified, overrides):
    chosen = EngineConfig(device="cpu", precision="fp8", verify_hashes=verified, config_overrides=overrides)
    source = ModelSource.resolve(pristine / "plain", chosen)
    assert source.verify_hashes == verified
    assert ModelSource.from_json(json.loads(json.dumps(source.to_json()))) == source


def test_swapped_tensors_of_one_shape(target):
    """Only a manifest notices that two tensors of one shape are swapped."""
    file = min(target.glob("*.safetensors"))
    norms = [(name, span) for name, span in places(file).items() if name.endswith("attention_layernorm.weight")]
    (first, one), (_, other) = next(
        (a, b) for a in norms for b in places(file).items() if b[0].endswith("0.input_layernorm.weight")
    )
    data = bytearray(file.read_bytes())
    data[slice(*one)], data[slice(*other)] = data[slice(*other)], data[slice(*one)]
    file.write_bytes(data)
    assert "input_layernorm" in (text := refusal(load_model, target)) or first in text
    load_model(target, verify_hashes=False)


def test_hashes_are_those_of_the_bytes(pristine):
    """The format as documented: XXH3-128 of each piece, from the file's bytes."""
    for directory, manifest in (("plain", MANIFEST), ("converted", "manifest.json")):
        values = json.loads((pristine / directory / manifest).read_text())
        assert values["hash"] == "xxh3-128"
        for file, entry in values["files"].items():
            path = pristine / directory / file
            data, spans = path.read_bytes(), places(path)
            assert entry["size"] == len(data) and entry["tensors"].keys() == spans.keys()
            for name, (start, stop) in spans.items():
                for piece in entry["tensors"][name].split():
                    size, expected = piece.split(":")
                    assert xxhash.xxh3_128(data[start : start + int(size)]).hexdigest() == expected, name
                    start += int(size)
                assert start == stop, name
        for file, expected in values["others"].items():
            assert xxhash.xxh3_128((pristine / directory / file).read_bytes()).hexdigest() == expected


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_verify_the_rows_that_they_read(tmp_path, monkeypatch, size):
    """Pieces of 128 rows. A rank notices a flipped bit in its own rows, and every bit is noticed by some rank."""
    monkeypatch.setattr("deepseek_v32.model.checkpoint.manifest._PIECE_BYTES", 1)
    write_checkpoint(tmp_path, replace(CONFIG, vocab_size=1024, num_attention_heads=8), "bf16")
    write_manifest(tmp_path)
    assert (
        len(
            json.loads((tmp_path / MANIFEST).read_text())["files"]["model.safetensors"]["tensors"][
                "lm_head.weight"
            ].split()
        )
        == 8
    )
    file = tmp_path / "model.safetensors"
    start, stop = places(file)["lm_head.weight"]
    row = (stop - start) // 1024

    def noticed() -> list[int]:
        ranks = []
        for rank in range(size):
            try:
                load_model(tmp_path, "bf16", ranks=Ranks(rank, size))
            except CheckpointError as error:
                assert "'lm_head.weight'" in str(error)
                ranks.append(rank)
        return ranks

    assert noticed() == []
    for at in (0, 300, 1023):
        flip(file, start + at * row)
        assert at * size // 1024 in noticed()
        flip(file, start + at * row)
    name = "model.layers.0.self_attn.o_proj.weight"  # split by columns: every rank reads it whole
    start, stop = places(file)[name]
    flip(file, (start + stop) // 2)
    for rank in range(size):
        assert name in refusal(load_model, tmp_path, "bf16", ranks=Ranks(rank, size))


@pytest.mark.parametrize("size", [2, 4])
def test_pieces_that_begin_and_end_anywhere(tmp_path, monkeypatch, size):
    """A manifest whose pieces were cut differently: the rest of a piece is read to verify it."""
    write_checkpoint(tmp_path, CONFIG, "fp8")
    monkeypatch.setattr("deepseek_v32.model.checkpoint.manifest.FP8_BLOCK", 37)
    monkeypatch.setattr("deepseek_v32.model.checkpoint.manifest._PIECE_BYTES", 1)
    write_manifest(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("deepseek_v32.model.checkpoint.manifest._PIECE_BYTES", 1)
    for rank in range(size):
        load_model(tmp_path, "fp8", ranks=Ranks(rank, size))
    convert(tmp_path, tmp_path / "converted", size)
    for rank in range(size):
        load_model(tmp_path / "converted", "fp8", ranks=Ranks(rank, size))
    assert verify(tmp_path / "converted")


def test_a_damaged_checkpoint_is_not_converted(pristine, tmp_path):
    source = Path(shutil.copytree(pristine / "plain", tmp_path / "source"))
    file = source / "model-00001-of-00002.safetensors"
    flip(file, places(file)["model.embed_tokens.weight"][0] + 5)
    assert "'model.embed_tokens.weight': the hash of bytes" in refusal(convert, source, tmp_path / "target", 1)
    convert(source, tmp_path / "target", 1, verify_hashes=False)


def edit_config(directory: Path) -> None:
    values = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(values | {"rope_theta": 10001.0}))


SETTINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a number of the configuration": (edit_config, "config.json"),
    "new settings": (lambda d: (d / "generation_config.json").write_text("{}"), "expected no such file"),
}


@pytest.mark.parametrize(("change", "message"), SETTINGS.values(), ids=SETTINGS)
def test_files_beside_the_weights(target, change, message):
    change(target)
    text = refusal(load_model, target)
    assert message in text and ("deepseek-v32 manifest" in text or "convert again" in text)
    load_model(target, verify_hashes=False)


def edited(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values.update(changes)


FILE = "model-00001-of-00002.safetensors"
EMBED = "model.embed_tokens.weight"
WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "format": (edited(format="x"), "format is 'x'; expected 'deepseek-v32 manifest, version 1'"),
    "hash": (edited(hash="md5"), "hash is 'md5'; expected 'xxh3-128'"),
    "no files": (edited(files=None), "files is None; expected an object"),
    "files list": (edited(files=[1]), "files is [1]; expected an object"),
    "others": (edited(others=3), "others is 3"),
    "others' value": (edited(others={"config.json": 3}), "others.'config.json' is 3; expected a hash"),
    "a path": (edited(others={"../config.json": "0"}), "others names '../config.json'; expected plain file names"),
    "a missing file": (edited(others={"gone.json": "0"}), "gone.json': cannot be read"),
    "entry": (lambda v: v["files"].update({FILE: 1}), f"entry of '{FILE}' is 1; expected its size and tensors"),
    "size": (lambda v: v["files"][FILE].update(size=1), "bytes; expected the 1 in"),
    "another file": (
        lambda v: v["files"].update(x=v["files"][FILE]),
        "names 'x'; expected only files of this checkpoint",
    ),
    "a file less": (lambda v: v["files"].pop(FILE), f"{FILE}': is not in {MANIFEST}"),
    "a tensor less": (lambda v: v["files"][FILE]["tensors"].pop(EMBED), f"tensor '{EMBED}' is here, but not in"),
    "a tensor more": (lambda v: v["files"][FILE]["tensors"].update(x="1:0"), "tensor 'x' is not here, but in"),
    "no text": (
        lambda v: v["files"][FILE]["tensors"].update({EMBED: 1}),
        f"hashes of tensor '{EMBED}' are 1; expected",
    ),
    "no colon": (lambda v: v["files"][FILE]["tensors"].update({EMBED: "12"}), "are '12'; expected bytes:hash"),
    "no number": (lambda v: v["files"][FILE]["tensors"].update({EMBED: "a:b"}), "are 'a:b'; expected bytes:hash"),
    "negative": (lambda v: v["files"][FILE]["tensors"].update({EMBED: "-5:b 9:c"}), "expected bytes:hash"),
    "too short": (
        lambda v: v["files"][FILE]["tensors"].update({EMBED: "9:c"}),
        f"hashes of tensor '{EMBED}' are of 9 bytes",
    ),
    "another hash": (
        lambda v: v["files"][FILE]["tensors"].update({EMBED: "190400:" + "0" * 32}),
        "expected 00000000000",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_wrong_manifests(pristine, tmp_path, change, message):
    directory = Path(shutil.copytree(pristine / "plain", tmp_path / "copy"))
    values = json.loads((directory / MANIFEST).read_text())
    change(values)
    (directory / MANIFEST).write_text(json.dumps(values))
    assert message in refusal(load_model, directory, "bf16")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"a": 1, "a": 2}'], ids=repr)
def test_manifests_that_are_no_objects(target, content):
    for path in target.glob("*manifest.json"):
        path.write_bytes(content)
    assert "manifest" in refusal(load_model, target)


def test_the_demo_has_a_manifest():
    assert verify(DEMO) == len(load_file(DEMO / "model.safetensors"))


def test_the_command(pristine, tmp_path):
    directory = Path(shutil.copytree(pristine / "plain", tmp_path / "copy"))
    before = (directory / MANIFEST).read_bytes()
    (directory / MANIFEST).unlink()
    assert "no such file; expected a manifest" in refusal(verify, directory)
    runner = CliRunner()
    done = runner.invoke(app, ["manifest", str(directory)], catch_exceptions=False)
    assert done.exit_code == 0 and "tensors" in done.stderr
    assert (directory / MANIFEST).read_bytes() == before
    done = runner.invoke(app, ["manifest", str(pristine / "converted"), "--verify"], catch_exceptions=False)
    assert done.exit_code == 0 and "are as they were written" in done.stderr
    assert "is a converted checkpoint" in refusal(write_manifest, pristine / "converted")


@pytest.mark.parametrize("command", ["generate", "chat", "serve", "bench", "batch", "convert"])
def test_every_command_that_loads_a_model_can_leave_hashes_unverified(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
    assert "--no-verify-hashes" in shown


def test_bits_of_a_tensor_that_is_not_loaded_do_not_matter_until_all_is_verified(tmp_path):
    write_checkpoint(tmp_path, replace(CONFIG, num_nextn_predict_layers=1), "bf16")
    write_manifest(tmp_path)
    file = tmp_path / "model.safetensors"
    name = "model.layers.2.eh_proj.weight"
    flip(file, places(file)[name][0])
    assert isinstance(load_model(tmp_path), torch.nn.Module)
    assert name in refusal(verify, tmp_path)
