"""Random weights on the device: right shapes and variances, the same for every number of ranks, ready to run."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands.cli import app
from deepseek_v32.kernels.quantize_weight import dequantize_weight
from deepseek_v32.model.checkpoint.config_json import config_json
from deepseek_v32.model.parallel.collectives import Ranks
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.weights import fill_synthetic
from tiny_model.checkpoint import TINY

# Tables of several row chunks, some of which are split between ranks.
CONFIG = replace(
    TINY, vocab_size=1300, intermediate_size=1536, num_attention_heads=8, qk_nope_head_dim=96, v_head_dim=128
)


def filled(precision: str, rank: int = 0, size: int = 1, seed: int = 0) -> dict[str, torch.Tensor]:
    model = build_model(CONFIG, precision, "reference", "cpu", Ranks(rank, size))
    for parameter in model.parameters():
        parameter.view(torch.uint8).fill_(0xFF)  # NaN in every dtype, so that unfilled elements are noticed
    fill_synthetic(model, Plan(CONFIG, rank, size), seed)
    return dict(model.named_parameters())


def test_variances():
    """1 / inputs; for projections into the residual stream also / (2 layers). In fp8 up to its rounding."""
    exact, fp8 = filled("exact"), filled("fp8")
    assert all(tensor.isfinite().all() for tensor in exact.values())
    for name in (
        "layers.0.mlp.gate_up_proj.weight",
        "layers.1.self_attn.q_b_proj.weight",
        "layers.1.mlp.experts.gate_up_proj",
    ):
        tensor = exact[name]
        assert tensor.std().item() == pytest.approx(tensor.shape[-1] ** -0.5, rel=0.02)
        weight, scale = fp8[name].flatten(0, -2), fp8[name + "_scale_inv"].flatten(0, -2)
        back = dequantize_weight(weight, scale)
        assert (back - tensor.flatten(0, -2)).abs().max() < 0.1 * tensor.abs().max()
    down = exact["layers.0.mlp.down_proj.weight"]
    assert down.std().item() == pytest.approx((2 * CONFIG.num_hidden_layers * down.shape[1]) ** -0.5, rel=0.02)
    assert exact["norm.weight"].mean().item() == pytest.approx(1, abs=0.05)
    assert not exact["layers.1.mlp.gate.e_score_correction_bias"].any()


def test_weights_depend_on_the_seed():
    first, again, other = filled("exact"), filled("exact"), filled("exact", seed=1)
    name = "layers.1.self_attn.o_proj.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.isclose(first[name], other[name]).all(1).any()


@pytest.mark.parametrize("precision", ["exact", "fp8"])
def test_ranks_together_hold_the_same_model_as_one(precision):
    whole, parts = filled(precision), [filled(precision, rank, 2) for rank in range(2)]
    dims = {"embed_tokens.weight": 0, "layers.1.self_attn.o_proj.weight": 1, "layers.0.mlp.down_proj.weight": 1}
    dims |= {"layers.1.self_attn.kv_b_proj.weight": 0}
    for name, dim in dims.items():
        joined = torch.cat([part[name].view(torch.uint8) for part in parts], dim)
        assert torch.equal(joined, whole[name].view(torch.uint8)), name
    experts = [part["layers.1.mlp.experts.down_proj"].view(torch.uint8) for part in parts]
    dealt = torch.stack(experts, 1).flatten(0, 1)
    assert torch.equal(dealt, whole["layers.1.mlp.experts.down_proj"].view(torch.uint8))
    for name in ("layers.1.self_attn.indexer.wq_b.weight", "layers.1.mlp.gate.weight", "norm.weight"):
        assert all(torch.equal(part[name].view(torch.uint8), whole[name].view(torch.uint8)) for part in parts)


@pytest.mark.parametrize("precision", ["exact", "bf16", "fp8"])
def test_a_model_with_random_weights_answers(precision, tmp_path):
    config = replace(CONFIG, num_hidden_layers=2)
    llm = LLM(config_json(config), synthetic=True, device="cpu", precision=precision, page_count=8)
    [answer] = llm.generate([list(range(100))], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    assert len(answer.token_ids) == 4 and answer.error is None
    logits = llm.logits(list(range(100)))
    assert 0.2 < logits.std() < 5  # neither vanishing nor exploding


def test_overrides_replace_the_number_of_layers():
    overrides = {"num_hidden_layers": 1, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1}
    choices = {"synthetic": True, "device": "cpu", "page_count": 4, "speculative_tokens": 1}
    llm = LLM(config_json(CONFIG), config_overrides=overrides, **choices)
    assert len(llm.model.layers) == 1
    assert "block.mlp.experts.down_proj" in dict(llm.model.mtp.named_parameters())  # it has experts whatever its number


def test_a_configuration_has_no_weights():
    with pytest.raises(ValueError, match="model is a configuration without weights; expected a checkpoint directory"):
        LLM(config_json(CONFIG), device="cpu")


def test_the_command(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(config_json(CONFIG)))
    arguments = [
        "--prompt-tokens",
        "16",
        "--batch",
        "1",
        "--new-tokens",
        "2",
        "--repeats",
        "1",
        "--json",
        "--device",
        "cpu",
    ]
    command = ["bench", "--model", str(config), "--layers", "1", *arguments]
    result = CliRunner().invoke(app, [*command, "--synthetic"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["model"] == "synthetic, 1 layers"
    refused = CliRunner().invoke(app, command)
    assert "--layers is 1; expected only together with --synthetic" in str(refused.exception)
