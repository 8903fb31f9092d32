"""Loading every stored dtype into every precision, against tensors that are read and assembled independently."""

import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepseek_v32.inference.commands.terminal import optional_bar
from deepseek_v32.model.checkpoint.config_json import read_config
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.transformer import Transformer
from support.configs import random_arguments
from support.parameters import expected_parameters
from tiny_model.checkpoint import TINY, write_checkpoint

# Only widths that the cache formats fix are multiples of 128, so every other last block is smaller.
RAGGED = replace(TINY, hidden_size=136, intermediate_size=200, moe_intermediate_size=20, q_lora_rank=72, v_head_dim=48)
CONFIGS = {
    "tiny": TINY,
    "ragged": RAGGED,
    "mtp": replace(RAGGED, num_nextn_predict_layers=1),
    "tied": replace(RAGGED, tie_word_embeddings=True, n_shared_experts=2),
    "all dense": replace(RAGGED, first_k_dense_replace=4),
    "no shared expert": replace(RAGGED, first_k_dense_replace=0, n_shared_experts=0, num_hidden_layers=1),
    "plain scales": replace(RAGGED, ue8m0_scales=False),
}


def stored_tensors(directory: Path) -> dict[str, torch.Tensor]:
    tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def dequantized(tensors: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """A stored tensor in fp32; e4m3 values are multiplied by their block's scale."""
    weight = tensors[name].float()
    scale = tensors.get(name + "_scale_inv")
    if scale is None:
        return weight
    for row in range(scale.shape[0]):
        for column in range(scale.shape[1]):
            weight[row * 128 : row * 128 + 128, column * 128 : column * 128 + 128] *= scale[row, column]
    return weight


def quantized(weight: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Block by block, in double precision where it matters."""
    rows, columns = (math.ceil(size / 128) for size in weight.shape)
    values = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    scales = torch.empty(rows, columns)
    for row in range(rows):
        for column in range(columns):
            here = (slice(row * 128, row * 128 + 128), slice(column * 128, column * 128 + 128))
            scale = weight[here].abs().max() / 448
            if ue8m0:
                scale = torch.tensor(2.0 ** math.ceil(math.log2(scale.item())))
            values[here] = (weight[here] / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
            scales[row, column] = scale
    return values, scales


def parts(name: str, config: ModelConfig) -> list[list[str]]:
    """The checkpoint's names of one parameter: a list per expert, with the parts in the order of rows."""
    name = name.removesuffix("_scale_inv").removesuffix(".weight")
    prefix = "" if name == "lm_head" else "model."
    if name == "lm_head" and config.tie_word_embeddings:
        return [["model.embed_tokens.weight"]]
    owner, _, last = name.rpartition(".")
    names = ["gate_proj", "up_proj"] if last == "gate_up_proj" else [last]
    if owner.endswith(".experts"):
        return [[f"model.{owner}.{e}.{part}.weight" for part in names] for e in range(config.n_routed_experts)]
    if (owner.endswith("mlp") and "gate_up" in last) or last == "down_proj" or "gate_up" in last:
        return [[f"model.{owner}.{part}.weight" for part in names]]
    suffix = "" if last in ("bias", "e_score_correction_bias") else ".weight"
    return [[prefix + name + suffix]]


def assembled(name: str, dtype: torch.dtype, tensors: dict[str, torch.Tensor], config: ModelConfig) -> torch.Tensor:
    """The expected content of a parameter."""
    experts = []
    for stack in parts(name, config):
        rows = []
        for theirs in stack:
            if not name.endswith("_scale_inv") and dtype != torch.float8_e4m3fn:
                rows.append(dequantized(tensors, theirs).to(dtype))
            elif theirs + "_scale_inv" in tensors:
                rows.append(tensors[theirs + ("_scale_inv" if name.endswith("_scale_inv") else "")])
            else:
                pair = quantized(tensors[theirs].float(), config.ue8m0_scales)
                rows.append(pair[name.endswith("_scale_inv")])
        experts.append(torch.cat([row.view(torch.uint8) for row in rows]).view(dtype))
    return torch.stack(experts) if ".experts." in name else experts[0]


def assert_loaded(
    model: torch.nn.Module, config: ModelConfig, precision: str, tensors: dict[str, torch.Tensor]
) -> None:
    found = dict(model.named_parameters(remove_duplicate=False))
    expected = expected_parameters(config, precision)
    assert {name: (tuple(each.shape), each.dtype) for name, each in found.items()} == expected
    for name, (_, dtype) in expected.items():
        content = assembled(name, dtype, tensors, config)
        assert torch.equal(found[name].view(torch.uint8), content.view(torch.uint8)), name


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "fp8"])
@pytest.mark.parametrize("case", CONFIGS)
def test_every_dtype_into_every_precision(tmp_path, case, dtype):
    write_checkpoint(tmp_path, CONFIGS[case], dtype, seed=1, shards=3)
    config, tensors = read_config(tmp_path), stored_tensors(tmp_path)
    for precision in ("exact", "bf16", "fp8"):
        model = load_model(tmp_path, precision)
        assert_loaded(model, config, precision, tensors)
        tied = CONFIGS[case].tie_word_embeddings
        assert tied == (model.lm_head.weight.data_ptr() == model.embed_tokens.weight.data_ptr())


@pytest.mark.parametrize("shards", [None, 1, 2, 7, 100])
def test_sharding_changes_nothing(tmp_path, shards):
    write_checkpoint(tmp_path / "whole", RAGGED, "fp8", seed=2)
    write_checkpoint(tmp_path / "split", RAGGED, "fp8", seed=2, shards=shards)
    files = list((tmp_path / "split").glob("*.safetensors"))
    assert len(files) == (shards or 1)
    assert (tmp_path / "split" / "model.safetensors.index.json").exists() == (shards is not None)
    whole, split = load_model(tmp_path / "whole", "fp8"), load_model(tmp_path / "split", "fp8")
    for ours, theirs in zip(whole.parameters(), split.parameters(), strict=True):
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


def test_row_chunks_do_not_change_the_result(tmp_path, monkeypatch):
    """A tensor converted in many row chunks equals one converted at once."""
    config = replace(TINY, intermediate_size=1000, num_hidden_layers=1)
    for dtype in ("bf16", "fp8"):
        write_checkpoint(tmp_path, config, dtype)
        for precision in ("exact", "fp8"):
            monkeypatch.setattr("deepseek_v32.model.checkpoint.rows._CONVERTED", 1)  # raised to one block of rows
            monkeypatch.setattr("deepseek_v32.model.checkpoint.manifest._PIECE_BYTES", 1 if dtype == "fp8" else 2**18)
            assert_loaded(load_model(tmp_path, precision), read_config(tmp_path), precision, stored_tensors(tmp_path))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_saved_by_transformers(tmp_path, seed, dtype):
    """Parameters loaded from `save_pretrained`, an independent writer, equal transformers' own parameters."""
    from transformers import DeepseekV32Config, DeepseekV32ForCausalLM

    torch.manual_seed(seed)
    theirs = DeepseekV32ForCausalLM(DeepseekV32Config(**random_arguments(seed))).to(dtype)
    with torch.no_grad():
        for tensor in (*theirs.parameters(), *theirs.buffers()):
            tensor.copy_(torch.randn_like(tensor))
    theirs.save_pretrained(tmp_path, max_shard_size="40KB" if seed % 2 else "1GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == bool(seed % 2)

    model = load_model(tmp_path, "exact")
    expected = {name.removeprefix("model."): tensor for name, tensor in theirs.state_dict().items()}
    for prefix in {name.rpartition("gate_proj")[0] for name in expected if name.endswith("gate_proj.weight")}:
        gate, up = expected.pop(f"{prefix}gate_proj.weight"), expected.pop(f"{prefix}up_proj.weight")
        expected[f"{prefix}gate_up_proj.weight"] = torch.cat([gate, up])
    found = dict(model.named_parameters(remove_duplicate=False))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor.float()), name


def test_progress(tmp_path):
    """Bytes rise to the total that is read, which excludes the MTP layer."""
    size = write_checkpoint(tmp_path / "plain", RAGGED, "fp8", shards=2)
    write_checkpoint(tmp_path / "mtp", replace(RAGGED, num_nextn_predict_layers=1), "fp8", shards=2)
    for name in ("plain", "mtp"):
        calls: list[tuple[int, int]] = []
        load_model(tmp_path / name, "fp8", progress=lambda done, total, calls=calls: calls.append((done, total)))
        assert calls[-1] == (size, size)
        assert len(calls) > 100
        assert all(before[0] < after[0] for before, after in pairwise(calls))


def test_another_configuration_reaches_the_model(tmp_path):
    write_checkpoint(tmp_path, TINY)
    model = load_model(tmp_path, "bf16", config=read_config(tmp_path).with_overrides(index_topk=7))
    assert isinstance(model, Transformer)
    assert model.config.index_topk == 7


def test_progress_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    """Bytes and rate, on standard error, so that standard output holds only a program's results."""
    with optional_bar("Loading weights") as report:
        for done in (1_000_000, 3_000_000, 4_000_000):
            report(done, 4_000_000)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Loading weights" in shown.err
    assert "4.0/4.0 MB" in shown.err
