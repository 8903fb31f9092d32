"""The configuration: both spellings against transformers' reading, and an error of one line for every wrong value."""

import json
import os
from dataclasses import replace

import pytest
import torch

from deepseek_v32.model.checkpoint.config_json import config_json, parse_config, read_config
from deepseek_v32.model.config import ModelConfig, YarnScaling
from deepseek_v32.model.errors import ConfigError
from deepseek_v32.model.rope import inverse_frequencies
from support.configs import RELEASED, random_arguments


def old_spelling(values: dict) -> dict:
    """The same configuration in the spelling before transformers 5."""
    rope = dict(values["rope_parameters"])
    old = {
        key: value for key, value in values.items() if key not in ("rope_parameters", "mlp_layer_types", "layer_types")
    }
    old["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    old["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    return old


def test_released_model():
    config = parse_config(RELEASED)
    assert config == ModelConfig()
    assert config.softmax_scale == pytest.approx(0.1352337788608801, rel=1e-15)
    assert parse_config(config_json(config)) == config
    config.check_precision("fp8")


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_transformers(seed):
    from transformers import DeepseekV32Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32RotaryEmbedding, yarn_apply_mscale

    theirs = DeepseekV32Config(**random_arguments(seed))
    config = parse_config(json.loads(theirs.to_json_string(use_diff=False)))
    old = parse_config(old_spelling(theirs.to_dict()))
    assert replace(old, first_k_dense_replace=config.first_k_dense_replace) == config
    assert parse_config(config_json(config)) == config

    same = set(ModelConfig.__dataclass_fields__) & set(theirs.to_dict()) - {"first_k_dense_replace"}
    assert len(same) > 20
    for key in same:
        assert getattr(config, key) == getattr(theirs, key), key
    for each in (config, old):  # the layer after the last one is the MTP layer
        dense = [each.is_dense(layer) for layer in range(config.num_hidden_layers + 1)]
        assert dense == [*(kind == "dense" for kind in theirs.mlp_layer_types), False]
    eos = theirs.eos_token_id
    assert config.eos_token_ids == tuple(eos if isinstance(eos, list) else [] if eos is None else [eos])
    assert config.softmax_scale == pytest.approx(
        yarn_apply_mscale(theirs.rope_parameters, theirs.qk_head_dim**-0.5), rel=1e-14
    )
    if config.yarn is None:
        expected, attention_factor = DeepseekV32RotaryEmbedding.compute_default_rope_parameters(theirs)
    else:
        expected, attention_factor = ROPE_INIT_FUNCTIONS["yarn"](theirs)
    assert attention_factor == 1
    torch.testing.assert_close(
        inverse_frequencies(config.qk_rope_head_dim, config.rope_theta, config.yarn), expected, rtol=1e-6, atol=0
    )


def test_defaults_of_absent_keys():
    """Absent: no YaRN, no quantisation, no MTP layer, and the released model's dimensions, as in transformers."""
    config = parse_config({})
    assert (config.yarn, config.weight_block, config.num_nextn_predict_layers) == (None, None, 0)
    assert config.hidden_size == 7168
    assert config.ue8m0_scales


def test_harmless_and_absent_keys_are_ignored():
    extra = {"transformers_version": "9", "pretraining_tp": 4, "_commit_hash": "x", "new_feature": None}
    extra |= {"unsloth_fixed": True, "unsloth_version": "2026.1", "gradient_checkpointing": True}
    assert parse_config(RELEASED | extra) == ModelConfig()


# Values that say what this program computes.
STATED = {
    "rope_interleave": True,
    "is_causal": True,
    "moe_router_dtype": "float32",
    "num_experts": 256,
    "num_local_experts": 256,
    "index_topk_freq": 1,
    "index_skip_topk_offset": 3,
    "index_topk_pattern": "F" * 61,
    "indexer_types": ["full"] * 61,
    "index_share_for_mtp_iteration": False,
    "use_index_cache": False,
    "use_sliding_window": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "rope_scaling": RELEASED["rope_scaling"] | {"apply_yarn_scaling": True, "truncate": True},
    "quantization_config": RELEASED["quantization_config"] | {"expert_dtype": "fp8", "dequantize": False},
}


@pytest.mark.parametrize("key", STATED)
def test_values_that_state_the_computation(key):
    assert parse_config(RELEASED | {key: STATED[key]}) == ModelConfig()


def test_default_generation_keys():
    """transformers 4 wrote the defaults of generation into config.json."""
    from transformers import GenerationConfig

    defaults = GenerationConfig._get_default_generation_params()
    assert len(defaults) > 30 and defaults["num_beams"] == 1
    for key, value in defaults.items():
        assert parse_config(RELEASED | {key: value}) == ModelConfig(), key


def test_no_quantization():
    assert parse_config(RELEASED | {"quantization_config": {}}).weight_block is None


def test_experts_by_another_name():
    values = {key: value for key, value in RELEASED.items() if key != "n_routed_experts"}
    assert parse_config(values | {"num_experts": 64}).n_routed_experts == 64


# In this family of models, each key asks for another computation. Most are false or null; absent keys change nothing.
OTHER_COMPUTATIONS = {
    "unknown, false": {"attn_output_gate": False},
    "half-split RoPE": {"rope_interleave": False},
    "half-split RoPE by null": {"rope_interleave": None},
    "not causal": {"is_causal": False},
    "not causal by null": {"is_causal": None},
    "no ReLU in the indexer": {"indexer_use_relu": False},
    "no index weights": {"use_index_weights": False},
    "no correction bias": {"use_routing_bias": False},
    "no query-key norm": {"use_qk_norm": False},
    "router in bf16": {"moe_router_dtype": "bfloat16"},
    "shared selections": {"index_topk_freq": 4},
    "shared selections by list": {"indexer_types": ["full", "shared"] * 30 + ["full"]},
    "shared selections by pattern": {"index_topk_pattern": "FS" * 30 + "F"},
    "cached selections": {"use_index_cache": True},
    "another number of experts": {"num_experts": 128},
    "sliding window": {"sliding_window": 4096},
    "encoder and decoder": {"is_encoder_decoder": True},
    "beams": {"num_beams": 4},
    "penalty": {"repetition_penalty": 1.1},
    "forced token": {"forced_bos_token_id": 7},
    "temperature": {"temperature": 0.6},
    "other scaling": {"rope_scaling": RELEASED["rope_scaling"] | {"apply_yarn_scaling": False}},
    "unknown scaling, false": {"rope_scaling": RELEASED["rope_scaling"] | {"finetuned": False}},
    "experts in fp4": {"quantization_config": RELEASED["quantization_config"] | {"expert_dtype": "fp4"}},
    "without quantisation": {"quantization_config": RELEASED["quantization_config"] | {"dequantize": True}},
    "pruned heads": {"pruned_heads": {"0": [1]}},
    "unknown quantisation, false": {"quantization_config": RELEASED["quantization_config"] | {"desc_act": False}},
}


@pytest.mark.parametrize("changes", OTHER_COMPUTATIONS.values(), ids=OTHER_COMPUTATIONS)
def test_other_computations_are_refused(changes):
    [key] = changes
    with pytest.raises(ConfigError, match=f"^{key}.* is .*; expected "):
        parse_config(RELEASED | changes)


def test_special_spellings():
    def read(**changes):
        return parse_config(RELEASED | changes)

    assert read(n_shared_experts=None).n_shared_experts == 0
    assert read(eos_token_id=[1, 5]).eos_token_ids == (1, 5)
    assert read(quantization_config=None).weight_block is None
    assert not read(quantization_config=RELEASED["quantization_config"] | {"scale_fmt": None}).ue8m0_scales
    assert read(mlp_layer_types=["dense"] * 5 + ["sparse"] * 56).first_k_dense_replace == 5
    assert read(num_local_experts=256).n_routed_experts == 256
    assert read(rope_scaling={"type": "default"}).yarn is None
    assert read(rope_scaling=RELEASED["rope_scaling"] | {"factor": None}).yarn == ModelConfig.yarn  # 163840 / 4096
    assert read(rope_scaling=RELEASED["rope_scaling"] | {"rope_type": "yarn"}).yarn == ModelConfig.yarn
    explicit = RELEASED["rope_scaling"] | {"mscale_all_dim": 0, "attention_factor": 1.0}
    assert read(rope_scaling=explicit).softmax_scale == 192**-0.5


ROPE = RELEASED["rope_scaling"]
FP8 = RELEASED["quantization_config"]
WRONG = {
    # dimensions: type, sign and relations between them
    "zero": ({"hidden_size": 0}, "hidden_size is 0; expected an integer of at least 1"),
    "negative": ({"n_shared_experts": -1}, "n_shared_experts is -1"),
    "float": ({"num_attention_heads": 128.0}, "num_attention_heads is 128.0"),
    "text": ({"vocab_size": "129280"}, "vocab_size is '129280'"),
    "bool": ({"num_hidden_layers": True}, "num_hidden_layers is True"),
    "huge": ({"hidden_size": 10**400}, "hidden_size is 1000"),
    "no query latent": ({"q_lora_rank": None}, "q_lora_rank is None"),
    "odd rope": ({"qk_rope_head_dim": 63}, "qk_rope_head_dim is 63; expected an even number"),
    "index head": ({"index_head_dim": 32}, "index_head_dim is 32; expected at least qk_rope_head_dim (64)"),
    "group": ({"n_group": 7}, "n_group is 7; expected a divisor of n_routed_experts (256)"),
    "kept groups": ({"topk_group": 9}, "topk_group is 9; expected at most n_group (8)"),
    "experts": ({"num_experts_per_tok": 129}, "num_experts_per_tok is 129; expected at most the 128 experts"),
    "not bool": ({"norm_topk_prob": 1}, "norm_topk_prob is 1; expected true or false"),
    "eps": ({"rms_norm_eps": 0}, "rms_norm_eps"),
    "infinite": ({"routed_scaling_factor": float("inf")}, "routed_scaling_factor is inf"),
    "theta": ({"rope_theta": 1.0}, "rope_theta is 1.0; expected a number above 1"),
    "huge theta": ({"rope_theta": 10**400}, "rope_theta is 1000"),
    "eos": ({"eos_token_id": 129280}, "eos_token_ids is (129280,); expected ids within the vocabulary"),
    "eos text": ({"eos_token_id": "</s>"}, "eos_token_ids"),
    "bos": ({"bos_token_id": -1}, "bos_token_id"),
    # keys with one implemented value
    "model type": ({"model_type": "deepseek_v3"}, "model_type is 'deepseek_v3'; expected 'deepseek_v32'"),
    "architecture": ({"architectures": ["GlmMoeDsaForCausalLM"]}, "architectures"),
    "softmax scores": ({"scoring_func": "softmax"}, "scoring_func is 'softmax'; expected 'sigmoid'"),
    "top-k method": ({"topk_method": "greedy"}, "topk_method"),
    "activation": ({"hidden_act": "gelu"}, "hidden_act"),
    "bias": ({"attention_bias": True}, "attention_bias is True; expected False"),
    "frequency": ({"moe_layer_freq": 2}, "moe_layer_freq"),
    # keys that repeat others
    "key heads": ({"num_key_value_heads": 8}, "num_key_value_heads is 8; expected num_attention_heads (128)"),
    "head dim": ({"qk_head_dim": 128}, "qk_head_dim"),
    "local experts": ({"num_local_experts": 8}, "num_local_experts"),
    "interleaved layers": ({"mlp_layer_types": ["dense", "sparse"] * 30 + ["dense"]}, "mlp_layer_types"),
    "too few layers": ({"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
    "other attention": ({"layer_types": ["full_attention"] * 61}, "layer_types"),
    # unknown ones
    "unknown": ({"attn_output_gate": True}, "attn_output_gate is True; expected no such key"),
    "unknown number": ({"logit_cap": 30.0}, "logit_cap"),
    # rotation
    "rope kind": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling.rope_type is 'linear'"),
    "rope list": ({"rope_scaling": [1]}, "rope_scaling is [1]"),
    "two kinds": ({"rope_scaling": ROPE | {"rope_type": "default"}}, "rope_scaling.rope_type"),
    "no original": ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "original_max_position_embeddings is None"),
    "factor": ({"rope_scaling": ROPE | {"factor": 0.5}}, "factor is 0.5; expected at least 1"),
    "factor text": ({"rope_scaling": ROPE | {"factor": "40"}}, "rope_scaling.factor is '40'"),
    "betas": ({"rope_scaling": ROPE | {"beta_fast": 0.5}}, "beta_fast"),
    "truncate": ({"rope_scaling": ROPE | {"truncate": False}}, "rope_scaling.truncate"),
    "mscales": ({"rope_scaling": ROPE | {"mscale": 0.5}}, "rope_scaling.mscale is 0.5"),
    "no mscales": ({"rope_scaling": ROPE | {"mscale": None, "mscale_all_dim": None}}, "rope_scaling.mscale"),
    "attention factor": ({"rope_scaling": ROPE | {"attention_factor": 2.0}}, "rope_scaling.attention_factor"),
    "partial": ({"rope_scaling": ROPE | {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    "unknown rope key": ({"rope_scaling": ROPE | {"long_factor": [1.0]}}, "rope_scaling.long_factor"),
    "two thetas": ({"rope_scaling": ROPE | {"rope_theta": 5e5}}, "rope_theta is 10000"),
    "two ropes": ({"rope_parameters": {"rope_type": "default"}}, "the same as rope_parameters"),
    # quantisation
    "method": ({"quantization_config": FP8 | {"quant_method": "awq"}}, "quantization_config.quant_method is 'awq'"),
    "block": ({"quantization_config": FP8 | {"weight_block_size": [64, 64]}}, "weight_block_size"),
    "static": ({"quantization_config": FP8 | {"activation_scheme": "static"}}, "activation_scheme"),
    "format": ({"quantization_config": FP8 | {"fmt": "e5m2"}}, "quantization_config.fmt"),
    "unknown quantisation key": ({"quantization_config": FP8 | {"bits": 4}}, "quantization_config.bits"),
    "not an object": ({"quantization_config": "fp8"}, "quantization_config is 'fp8'"),
}


@pytest.mark.parametrize("changes, message", WRONG.values(), ids=WRONG)
def test_wrong_values(changes, message):
    with pytest.raises(ConfigError) as caught:
        parse_config(RELEASED | changes)
    text = str(caught.value)
    assert message in text and "; expected " in text
    assert "\n" not in text and len(text) < 400


def test_overrides():
    config = ModelConfig()
    assert config.with_overrides(index_topk=16, yarn=None).index_topk == 16
    with pytest.raises(ConfigError, match="override is 'topk'; expected one of"):
        config.with_overrides(topk=3)
    with pytest.raises(ConfigError, match="index_topk is 0"):
        config.with_overrides(index_topk=0)
    with pytest.raises(ConfigError, match="yarn is "):
        config.with_overrides(yarn={"factor": 2})
    with pytest.raises(ConfigError, match="factor is 0; expected"):
        config.with_overrides(yarn=YarnScaling(0, 4096))


def test_precisions():
    small = ModelConfig(kv_lora_rank=64, index_head_dim=64)
    small.check_precision("exact")
    small.check_precision("bf16")
    with pytest.raises(ConfigError, match="kv_lora_rank is 64; expected a multiple of 128"):
        small.check_precision("fp8")
    with pytest.raises(ConfigError, match="index_head_dim is 64; expected 128"):
        small.with_overrides(kv_lora_rank=256).check_precision("fp8")
    with pytest.raises(ConfigError, match="precision is 'int4'; expected one of exact, bf16, fp8"):
        small.check_precision("int4")


def test_from_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(RELEASED))
    assert read_config(tmp_path) == read_config(tmp_path / "config.json") == ModelConfig()


BROKEN_FILES = {
    "empty": (b"", "cannot be read"),
    "list": (b"[]", "not a JSON object but list"),
    "cut": (b'{"hidden_size": 7', "cannot be read"),
    "not text": (b"\xff\xfe\x00", "cannot be read"),
    "deep": (b"[" * 100_000, "cannot be read"),
    "twice": (b'{"n_group": 8, "n_group": 4}', "'n_group' appears twice"),
    "endless number": (b'{"n_group": ' + b"9" * 10_000 + b"}", "cannot be read"),
    "wrong value": (b'{"n_group": 3}', "n_group is 3; expected a divisor"),
}


@pytest.mark.parametrize("content, message", BROKEN_FILES.values(), ids=BROKEN_FILES)
def test_broken_files(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path)
    assert message in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_config(tmp_path)
    os.mkfifo(tmp_path / "config.json")  # must not be opened, because opening waits for a writer
    with pytest.raises(ConfigError, match="no such file"):
        read_config(tmp_path)
