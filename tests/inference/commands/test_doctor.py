"""`deepseek-v32 doctor`: a table that fits a screen, and a check that names every problem of a checkpoint."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from deepseek_v32.inference import LLM
from deepseek_v32.inference.commands import checkpoint_check, cli
from deepseek_v32.inference.commands.checkpoint_check import GIB, cpu_row, gpu_row
from deepseek_v32.kernels.implementations import OPERATIONS
from deepseek_v32.model.checkpoint.config_json import parse_config
from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.manifest import write_manifest
from deepseek_v32.model.errors import CheckpointError
from deepseek_v32.model.parallel.shard import parameter_bytes
from support.configs import RELEASED
from tiny_model.checkpoint import TINY, write_checkpoint
from tiny_model.tokenizer import write_tokenizer

NAMES = [f"model-{number:05}-of-00006.safetensors" for number in range(1, 7)]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    path = tmp_path_factory.mktemp("pristine")
    write_checkpoint(path, TINY, "fp8", shards=len(NAMES))
    write_tokenizer(path, TINY.vocab_size, ["the quick brown fox"] * 20)
    return path


@pytest.fixture
def checkpoint(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "checkpoint")


def doctor(*arguments):
    """Exit code and standard output, on a terminal of 80 columns."""
    result = CliRunner().invoke(cli.app, ["doctor", "--device", "cpu", *map(str, arguments)], env={"COLUMNS": "80"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def problems_of(path, *arguments):
    """The problems by the part of the checkpoint, each after the directory's name has been taken out."""
    code, out = doctor("--model", path, "--json", *arguments)
    report = json.loads(out)["checkpoint"]
    found = {part["part"]: part["problems"] for part in report["parts"]}
    assert report["problems"] == sum(map(len, found.values())) and code == (report["problems"] > 0)
    return {part: problems for part, problems in found.items() if problems}


@pytest.mark.parametrize("backend", ["auto", "tile"])
def test_the_table_fits_a_screen(backend):
    code, out = doctor("--backend", backend)
    lines = out.splitlines()
    assert code == 0 and len(lines) <= 30 and max(map(len, lines)) <= 80
    assert f"Kernels on cpu, backend {backend}; deterministic in exact, bf16, fp8" in lines
    words = out.replace(",", " ").split()
    assert all(words.count(operation) == 1 for operation in OPERATIONS)
    assert out.count("needs a Hopper GPU") == 2, "once for each backend"


def test_a_good_checkpoint_has_no_problems(checkpoint):
    assert problems_of(checkpoint) == {}
    write_manifest(checkpoint, lambda done, total: None)
    code, out = doctor("--model", checkpoint, "--tensor-parallel-size", 2)
    assert code == 0 and "PROBLEM" not in out
    assert all(len(line) <= 80 for line in out.splitlines() if str(checkpoint) not in line)
    for part in (
        f"{TINY.num_hidden_layers} layers",
        "files: 6",
        " ids, chat format v3.2",
        "manifest.json",
        "2 GPUs of",
    ):
        assert part in out


def test_weights_are_not_read(checkpoint):
    path = next(path for path in sorted(checkpoint.glob("*.safetensors")) if "model.norm.weight" in load_file(path))
    tensors = load_file(path)
    tensors["model.norm.weight"].fill_(torch.nan)
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match="NaN"):
        LLM(checkpoint)
    assert problems_of(checkpoint) == {}


def test_every_problem_is_named(checkpoint):
    write_manifest(checkpoint, lambda done, total: None)
    for name in NAMES[:2]:
        (checkpoint / name).unlink()
    (checkpoint / NAMES[2]).write_bytes((checkpoint / NAMES[2]).read_bytes()[:-1])
    (checkpoint / NAMES[3]).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    (checkpoint / NAMES[4]).write_bytes(b"<html>not found</html>")
    (checkpoint / "tokenizer.json").write_text("{}")
    (checkpoint / "generation_config.json").write_text('{"top_p": 7}')
    found = problems_of(checkpoint)
    assert found.keys() == {"weights", "tokenizer", "manifest"}
    missing, pointer, truncated, page = found["weights"]
    assert f"2 of 6 files of weights ({NAMES[0]}, {NAMES[1]}) are missing" in missing
    assert f"1 of 6 files of weights ({NAMES[3]}) is a Git LFS pointer" in pointer
    assert NAMES[2] in truncated and "truncated" in truncated and NAMES[4] in page and "not safetensors" in page
    assert len(found["tokenizer"]) == 2 and "top_p is 7" in found["tokenizer"][1]
    assert "tokenizer.json" in found["manifest"][0] or "generation_config" in found["manifest"][0]


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json", "chat_template.jinja"])
def test_pipes_are_not_opened(checkpoint, name):
    """Opening one waits for a writer."""
    write_manifest(checkpoint, lambda done, total: None)
    (checkpoint / name).unlink(missing_ok=True)
    os.mkfifo(checkpoint / name)
    found = problems_of(checkpoint)
    assert all(name in found[part][0] and "not a regular file" in found[part][0] for part in ("tokenizer", "manifest"))


def test_every_wrong_tensor_is_named(checkpoint):
    norm = "model.layers.0.input_layernorm.weight"
    path = next(checkpoint / name for name in NAMES if norm in load_file(checkpoint / name))
    tensors = load_file(path)
    tensors[norm] = tensors[norm][:-1].clone()
    tensors["model.extra.weight"] = torch.zeros(1)
    save_file(tensors, path)
    index = checkpoint / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    values["weight_map"]["model.extra.weight"] = path.name
    index.write_text(json.dumps(values))
    [shape, surplus] = problems_of(checkpoint)["weights"]
    assert f"'{norm}': shape is [" in shape and "'model.extra.weight' is surplus" in surplus


def test_long_lists_are_cut_and_counted(checkpoint):
    values = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(values | {"moe_intermediate_size": 384}))
    count = len(problems_of(checkpoint)["weights"])
    code, out = doctor("--model", checkpoint)
    assert count > 30 and code == 1 and out.count("PROBLEM:") == 20 and f"and {count - 20} more problems" in out


def test_a_converted_checkpoint_is_for_its_number_of_ranks(checkpoint, tmp_path):
    convert(checkpoint, tmp_path / "converted", 2)
    assert problems_of(tmp_path / "converted", "--tensor-parallel-size", 2) == {}
    wrong = problems_of(tmp_path / "converted")["weights"]
    assert len(wrong) == 1 and "number of ranks is 1; expected 2" in wrong[0]
    (tmp_path / "converted" / "model1-mp2.safetensors").unlink()
    found = problems_of(tmp_path / "converted", "--tensor-parallel-size", 2)
    assert "model1-mp2.safetensors" in found["weights"][0] and "is missing" in found["manifest"][0]


def test_other_places(checkpoint, tmp_path):
    assert list(problems_of(tmp_path / "nowhere")) == ["directory"]
    assert list(problems_of(checkpoint / "config.json")) == ["directory"]
    (tmp_path / "empty").mkdir()
    assert list(problems_of(tmp_path / "empty")) == ["config.json"]
    values = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(values | {"architectures": ["LlamaForCausalLM"]}))
    assert "LlamaForCausalLM" in problems_of(checkpoint)["config.json"][0]
    fewer = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1}
    (checkpoint / "config.json").write_text(json.dumps(values | fewer))
    found = problems_of(checkpoint, "--tensor-parallel-size", 8)["config.json"]
    assert "number of ranks is 8; expected at most the 4 routed experts" in found[0]


@pytest.mark.parametrize("size", [0, -7, 3])
def test_numbers_of_ranks_that_no_command_takes(size, checkpoint):
    for arguments in ([], ["--model", str(checkpoint)]):
        result = CliRunner().invoke(cli.app, ["doctor", *arguments, "--tensor-parallel-size", str(size)])
        assert str(result.exception) == f"--tensor-parallel-size is {size}; expected 1, 2, 4 or 8"


def test_memory_is_what_loading_takes(pristine):
    for precision in ("exact", "bf16", "fp8"):
        llm = LLM(pristine, device="cpu", precision=precision, speculative_tokens=0)
        row = cpu_row(llm.config, precision, None)
        assert row.weights == sum(each.numel() * each.element_size() for each in llm.model.parameters())
        caches = llm.engine.runner.caches
        size = sum(each.latent[0].nbytes + each.index[0].nbytes for each in caches)
        assert row.bytes_per_token == size / 64 and row.fits


def test_the_released_model_fits_eight_h200_and_no_fewer():
    """642 GiB of weights, and 48,068 bytes a token in all layers' caches (engine/cache.py)."""
    config = parse_config(RELEASED)
    one = gpu_row(config, 1, None, None, 139 * GIB)
    assert not one.fits and one.precision == "fp8" and 620 < one.weights / GIB < 642 and one.bytes_per_token == 48_068
    large = gpu_row(config, 1, None, None, 8 * 139 * GIB)
    assert large.fits and large.tokens == int(0.9 * 8 * 139 * GIB - large.weights) // (64 * 48_068) * 64


def test_a_model_that_fits_nowhere_is_a_problem(checkpoint):
    code, out = doctor("--model", checkpoint, "--gpu-memory", 1, "--tensor-parallel-size", 2)
    assert code == 0 and "2 GPUs of 1 GiB" in out
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"vocab_size": 2**24}))
    code, out = doctor("--model", checkpoint, "--gpu-memory", 1)
    assert code == 1 and "none" in out


@pytest.mark.parametrize(("memory", "code"), [("whole", 0), ("residents", 0), ("less", 1)])
def test_a_model_that_runs_only_with_offloaded_experts_is_no_problem(tmp_path, monkeypatch, memory, code):
    config = replace(TINY, n_routed_experts=32)
    write_checkpoint(tmp_path / "model", config, "fp8")
    whole, residents = (parameter_bytes(config, "exact", offload=offload) for offload in (False, True))
    page = 4 * 64 * cpu_row(config, "exact", None).bytes_per_token  # a quarter of the free memory is for the caches
    assert whole - residents > 2 * page
    free = {"whole": whole + page, "residents": residents + 2 * page, "less": residents}[memory]
    monkeypatch.setattr(checkpoint_check, "available_memory", lambda: free)
    monkeypatch.setattr(checkpoint_check, "GPU_GIB", 1e-4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found, out = doctor("--model", tmp_path / "model")
    command = f"deepseek-v32 generate --model {tmp_path / 'model'} --device cpu --offload experts"
    assert found == code and (command in " ".join(out.split())) == (memory == "residents"), out
    found, out = doctor("--model", tmp_path / "model", "--json")
    assert (
        found == code
        and [row["fits"] for row in json.loads(out)["memory"]][1:]
        == {
            "whole": [True],
            "residents": [False, True],
            "less": [False, False],
        }[memory]
    )
