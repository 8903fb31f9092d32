"""Converted checkpoints: loading by ranks, the same bytes after any number of interruptions, and refusals."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepseek_v32.model.checkpoint import conversion
from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.files import writing
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.checkpoint.manifest import verify
from deepseek_v32.model.errors import CheckpointError, ConfigError
from deepseek_v32.model.parallel.collectives import Ranks
from tiny_model.checkpoint import TINY, write_checkpoint

RAGGED = replace(
    TINY, hidden_size=136, intermediate_size=256, moe_intermediate_size=20, q_lora_rank=72, num_hidden_layers=2
)
CONFIGS = {
    "split": replace(TINY, num_attention_heads=8, qk_nope_head_dim=96, v_head_dim=128, moe_intermediate_size=256),
    "ragged": RAGGED,
    "tied, with an MTP layer": replace(
        RAGGED, tie_word_embeddings=True, n_shared_experts=2, num_nextn_predict_layers=1
    ),
    "uneven": replace(RAGGED, vocab_size=1003, n_routed_experts=6, n_group=2, topk_group=2, num_attention_heads=3),
}


def shards_of(path: Path, size: int, precision: str = "exact") -> list[torch.nn.Module]:
    return [load_model(path, precision, ranks=Ranks(rank, size)) for rank in range(size)]


def hashes(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("case, dtype", list(zip(CONFIGS, ["fp8", "fp8", "bf16", "fp32"], strict=True)))
def test_the_same_parameters_as_from_the_original(tmp_path, case, dtype, size):
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint(source, CONFIGS[case], dtype, seed=3, shards=3)
    for path in convert(source, target, size):
        assert load_file(path)  # the safetensors library can read it
    for precision in ("exact", "bf16", "fp8"):
        for original, converted in zip(
            shards_of(source, size, precision), shards_of(target, size, precision), strict=True
        ):
            theirs, ours = dict(original.named_parameters()), dict(converted.named_parameters())
            assert theirs.keys() == ours.keys()
            for name, tensor in theirs.items():
                assert torch.equal(tensor.view(torch.uint8), ours[name].view(torch.uint8)), name


# The dimension by which ranks split a parameter, in the order of ranks. All other parameters are replicated.
SPLIT = {"embed_tokens": 0, "lm_head": 0, "q_b_proj": 0, "kv_b_proj": 0, "o_proj": 1, "down_proj": 1}


@pytest.mark.parametrize("precision", ["exact", "fp8"])
@pytest.mark.parametrize("size", [2, 4])
def test_shards_together_are_the_whole_model(tmp_path, size, precision):
    """A model in which everything divides, assembled from its shards by hand."""
    config = replace(CONFIGS["split"], qk_nope_head_dim=128, qk_rope_head_dim=64, moe_intermediate_size=512)
    write_checkpoint(tmp_path, config, "fp8")
    whole = load_model(tmp_path, precision)
    parts = [dict(shard.named_parameters()) for shard in shards_of(tmp_path, size, precision)]
    for name, expected in whole.named_parameters():
        held = [part[name] for part in parts]
        module = next((each for each in SPLIT if f"{each}." in f"{name}."), None)
        if ".experts." in name:
            found = torch.stack([each.view(torch.uint8) for each in held], 1).flatten(
                0, 1
            )  # ranks hold every size-th expert
        elif "gate_up_proj" in name:
            halves = [each.view(torch.uint8).chunk(2) for each in held]
            found = torch.cat([half[side] for side in (0, 1) for half in halves])
        elif module is not None:
            found = torch.cat([each.view(torch.uint8) for each in held], SPLIT[module])
        else:
            assert all(torch.equal(each.view(torch.uint8), held[0].view(torch.uint8)) for each in held), name
            found = held[0].view(torch.uint8)
        assert torch.equal(found, expected.view(torch.uint8)), name


# Converts in one child process per given death: a child is killed at a fraction of the bytes, or at its nth call of a function.
KILLED = """
import os, signal, sys
from pathlib import Path
from deepseek_v32.model.checkpoint import conversion

source, target, *deaths = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

for death in deaths:
    child = os.fork()
    if child == 0:
        kind, where = death.split(":")
        left = [int(where)] if kind != "bytes" else None
        def progress(done, total):
            if kind == "bytes" and done > float(where) * total:
                die()
        def counting(function):
            def counted(*arguments, **named):
                left[0] -= 1
                if left[0] < 0:
                    die()
                return function(*arguments, **named)
            return counted
        if kind == "replace":
            os.replace = counting(os.replace)
        if kind == "unlink":
            Path.unlink = counting(Path.unlink)
        conversion.convert(Path(source), Path(target), 2, progress)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    print(death, "killed" if os.WIFSIGNALED(status) else "done")
"""


@pytest.mark.heavy
def test_killed_at_any_point_a_conversion_ends_in_the_same_bytes(tmp_path):
    source = tmp_path / "source"
    write_checkpoint(source, CONFIGS["split"], "fp8", shards=2)
    convert(source, tmp_path / "at once", 2)
    expected = hashes(tmp_path / "at once")
    deaths = ["replace:0", "bytes:0.1", "bytes:0.45", "replace:0", "replace:1", "bytes:0.6", "bytes:0.999"]
    deaths += ["replace:2", "unlink:0", "unlink:2", "bytes:2"]
    command = [sys.executable, "-c", KILLED, str(source), str(tmp_path / "killed"), *deaths]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    outcomes = done.stdout.split()[1::2]
    assert outcomes.count("killed") >= 8 and outcomes[-1] == "done", done.stdout
    assert hashes(tmp_path / "killed") == expected
    assert verify(tmp_path / "killed") == sum(len(load_file(path)) for path in tmp_path.glob("killed/*.safetensors"))


LARGE = replace(TINY, hidden_size=4096, intermediate_size=8192, num_hidden_layers=1)
MEASURE = """
import sys
from pathlib import Path
from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.manifest import verify

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

before = status("VmRSS")
files = convert(Path(sys.argv[1]), Path(sys.argv[2]), 2)
verify(Path(sys.argv[2]))
print(status("VmHWM") - before, sum(path.stat().st_size for path in files))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of a process's memory")
@pytest.mark.heavy
def test_memory_is_bounded(tmp_path):
    """Memory holds a few row chunks, whatever the size of a tensor. The largest here has 134 MB and is also split by columns."""
    write_checkpoint(tmp_path / "source", LARGE, "fp32")
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "source"), str(tmp_path / "target")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    rise, written = map(int, done.stdout.split())
    assert written > 400e6
    assert rise < 100e6, f"{rise / 1e6:.0f} MB"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint, and its conversion for two ranks."""
    directory = tmp_path_factory.mktemp("pair")
    write_checkpoint(directory / "source", CONFIGS["split"], "fp8")
    convert(directory / "source", directory / "target", 2)
    return directory / "source", directory / "target"


def copy(source: Path, target: Path) -> Path:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
        os.utime(target / path.name, ns=(1, 1))
    return target


def refusal(call, *arguments, error: type[ValueError] = CheckpointError) -> str:
    with pytest.raises(error) as caught:
        call(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_incomplete_and_altered_sources(pair, tmp_path):
    source = copy(pair[0], tmp_path / "source")
    weights = source / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-100])
    assert "truncated" in refusal(convert, source, tmp_path / "target", 2)
    assert not (tmp_path / "target").exists()
    weights.write_bytes(data)
    (tmp_path / "target").mkdir()
    state = {"format": json.loads((pair[1] / "manifest.json").read_text())["format"], "ranks": 2, "source": {}}
    (tmp_path / "target" / "conversion.json").write_text(json.dumps(state))
    assert "of another checkpoint or for another number of ranks, or the checkpoint has changed" in refusal(
        convert, source, tmp_path / "target", 2
    )


def test_a_source_that_changes_during_conversion(pair, tmp_path):
    source = copy(pair[0], tmp_path / "source")

    def touch(done: int, total: int) -> None:
        os.utime(source / "model.safetensors")

    assert "changed during the conversion" in refusal(convert, source, tmp_path / "target", 2, touch)
    assert "is an unfinished conversion" in refusal(load_model, tmp_path / "target")


def test_invalid_sources_and_targets(pair, tmp_path):
    source, target = pair
    assert "is the checkpoint itself" in refusal(convert, source, source, 2)
    assert "is a converted checkpoint" in refusal(convert, target, tmp_path / "new", 2)
    assert "for another number of ranks" in refusal(convert, source, target, 4)
    assert "in the way" in refusal(convert, source, copy(source, tmp_path / "copy"), 2)
    assert "number of ranks is 3" in refusal(convert, source, tmp_path / "new", 3, error=ConfigError)
    before = hashes(target)
    convert(source, target, 2)
    assert hashes(target) == before


def test_loading_incomplete_conversions(pair, tmp_path):
    target = copy(pair[1], tmp_path / "target")
    assert (
        "number of ranks is 1; expected 2, for which this checkpoint was converted: --tensor-parallel-size 2"
        in refusal(load_model, target)
    )
    file = target / "model1-mp2.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    assert "truncated" in refusal(shards_of, target, 2)
    file.write_bytes(data.replace(b"lm_head.weight", b"lm_hand.weight"))
    assert "'lm_hand.weight' is here, but not in manifest.json" in refusal(shards_of, target, 2).replace(
        "lm_head", "lm_hand"
    )
    file.unlink()
    assert "model1-mp2.safetensors" in refusal(shards_of, target, 2)


def test_verify_finds_a_changed_bit(pair, tmp_path):
    target = copy(pair[1], tmp_path / "target")
    file = target / "model1-mp2.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    found = refusal(verify, target)
    assert "model1-mp2.safetensors" in found and "'lm_head.weight': the hash of bytes " in found
    data[-1] ^= 1
    file.write_bytes(data)
    verify(target)
    (target / "config.json").write_text("{}")
    assert "config.json" in refusal(verify, target)


def test_the_bar_counts_what_is_written(pair, tmp_path):
    seen = []
    paths = convert(pair[0], tmp_path / "new", 2, lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in paths)
    assert {total for _, total in seen} == {size} and seen[-1][0] == size
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_a_disk_without_room_is_refused_before_anything_is_written(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 5))
    found = refusal(convert, pair[0], tmp_path / "new", 2)
    assert "has 0.0 GB of free space; expected 0.0 GB for the files of weights" in found
    assert not list((tmp_path / "new").glob("*.safetensors*"))


def test_a_full_disk_names_the_file(pair, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(conversion._TensorWriter, "_write", fail)
    with pytest.raises(OSError) as caught:
        convert(pair[0], tmp_path / "new", 2)
    assert caught.value.filename == str(tmp_path / "new" / "model0-mp2.safetensors.partial")

    def fail_copy(source, target):  # as shutil does
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr(conversion.shutil, "copyfile", fail_copy)
    with pytest.raises(OSError) as caught:
        convert(pair[0], tmp_path / "other", 2)
    assert caught.value.filename == str(tmp_path / "other" / "config.json") and caught.value.filename2 is None
    with pytest.raises(OSError, match=r"Input/output error$"), writing(tmp_path / "target"):
        raise OSError(errno.EIO, "Input/output error")  # of reading, perhaps, so the file is not known


@pytest.mark.heavy
def test_the_command(pair, tmp_path):
    script = Path(__file__).resolve().parents[2] / "scripts" / "convert.py"

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", str(script), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    options = ("--hf-ckpt-path", pair[0], "--save-path", tmp_path / "new", "--model-parallel", 2)
    refused = run(*options, "--n-experts", 8)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "--n-experts is 8; " in refused.stderr
    done = run(*options, "--n-experts", 16, "--verify")
    assert done.returncode == 0 and "tensors are as they were written" in done.stderr
    assert {path.name for path in (tmp_path / "new").glob("*.safetensors")} == {
        "model0-mp2.safetensors",
        "model1-mp2.safetensors",
    }
