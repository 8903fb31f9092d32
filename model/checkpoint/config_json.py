"""Reads and writes a Hugging Face ``config.json``: its old and new spellings, and the keys that this program honours."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from ..config import FP8_BLOCK, ModelConfig, YarnScaling
from ..errors import ConfigError, short_repr
from .files import WEIGHTS, no_directory, parse_object

# Keys of which this program computes these values only. Comments name the programs that read a key which V3.2's file lacks.
_FIXED: dict[str, tuple[Any, ...]] = {
    "model_type": ("deepseek_v32",),
    "architectures": (["DeepseekV32ForCausalLM"], None),
    "scoring_func": ("sigmoid",),
    "topk_method": ("noaux_tc",),
    "hidden_act": ("silu",),
    "moe_layer_freq": (1,),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1.0,),
    "rope_interleave": (True,),  # transformers, of DeepSeek-V3: false and null make MLA's RoPE half-split
    "is_causal": (True,),  # transformers: false and null make attention bidirectional
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "use_sliding_window": (False, None),
    "pruned_heads": ({}, None),  # transformers 4
    "moe_router_dtype": ("float32", "fp32", None),  # vLLM
    "index_topk_freq": (1, None),  # vLLM and transformers, of GLM: layers between share a selection
    "use_index_cache": (False, None),  # other programs, the same
    "index_share_for_mtp_iteration": (False, None),  # vLLM: drafts of one step share a selection
}

# transformers 4 wrote its defaults of generation into config.json. Settings of a model are read from generation_config.json only,
# so other values would be ignored, and are refused.
_GENERATION = {
    "do_sample": False,
    "early_stopping": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "num_beams": 1,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "diversity_penalty": 0.0,
    "length_penalty": 1.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "remove_invalid_values": False,
    "min_length": 0,
}
_FIXED |= {key: (default, None) for key, default in _GENERATION.items()}

# Keys about training, storage or other programs; nothing computed here depends on them. head_dim: transformers writes the width of
# the RoPE part, other programs the width of the whole head. index_skip_topk_offset says where selections are shared, if they are.
_HARMLESS = """
    _name_or_path assistant_confidence_threshold assistant_lookbehind attention_dropout attn_implementation auto_map aux_loss_alpha
    chunk_size_feed_forward classifier_dropout cross_attention_hidden_size dtype ep_size experts_implementation finetuning_task
    gradient_checkpointing head_dim id2label index_skip_topk_offset initializer_range is_decoder label2id max_length
    num_assistant_tokens num_assistant_tokens_schedule output_attentions output_hidden_states output_router_logits output_scores
    pad_token_id pretraining_tp problem_type return_dict return_dict_in_generate router_aux_loss_coef sep_token_id seq_aux
    target_lookbehind tf_legacy_loss tie_encoder_decoder tokenizer_class torch_dtype torchscript transformers_version unsloth_fixed
    unsloth_version use_bfloat16 use_cache use_return_dict
"""

# Keys that the functions below read.
_SPECIAL = """
    eos_token_id rope_theta rope_scaling rope_parameters quantization_config mlp_layer_types layer_types indexer_types
    index_topk_pattern num_local_experts num_experts num_key_value_heads qk_head_dim
"""

# Fields of ModelConfig that have another name in config.json. The rest have the same.
_RENAMED = {"yarn", "rope_theta", "eos_token_ids", "weight_block", "ue8m0_scales"}
_PLAIN = {field.name: field.type for field in fields(ModelConfig) if field.name not in _RENAMED}

_LAYER_TYPES = ("indexed_attention", "deepseek_sparse_attention")  # both mean that the layer has an indexer
_YARN_KEYS = {field.name for field in fields(YarnScaling)}


def read_config(path: str | Path) -> ModelConfig:
    """`parse_config` of a config.json, given by its own path or by its directory's. Raises ConfigError."""
    path = Path(path)
    if path.suffix in WEIGHTS or not (path.exists() or path.suffix == ".json"):
        raise ConfigError(f"{short_repr(str(path), 300)} {no_directory(path)}")
    path = path / "config.json" if path.is_dir() else path
    try:
        if not path.is_file():
            raise ConfigError("no such file; expected the config.json of a checkpoint directory")
        try:
            values = parse_object(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot be read: {error}; expected a JSON object") from error
        return parse_config(values)
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from error


def parse_config(values: dict[str, Any]) -> ModelConfig:
    """Parse config.json's keys, in the old (``rope_scaling``) or new (``rope_parameters``) spelling.

    An absent dimension is the released model's. A key that is not known here, or a value that asks for another computation, raises
    ConfigError; harmless ones are ignored.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key in _PLAIN:
            found[key] = _number(key, value) if _PLAIN[key] is float else value
        elif key in _FIXED and not any(type(value) in (type(one), int) and value == one for one in _FIXED[key]):
            raise _wrong(key, value, " or ".join(short_repr(one) for one in _FIXED[key]))
    if found.get("n_shared_experts", 1) is None:
        found["n_shared_experts"] = 0
    found.setdefault("num_nextn_predict_layers", 0)  # transformers drops the key along with the layer
    for key in ("num_local_experts", "num_experts"):  # transformers' other names
        if values.get(key) is not None:
            found.setdefault("n_routed_experts", values[key])
    if "eos_token_id" in values:
        eos = values["eos_token_id"]
        found["eos_token_ids"] = tuple(eos if isinstance(eos, list) else [] if eos is None else [eos])
    found["rope_theta"], found["yarn"] = _read_rope(values)
    found["weight_block"], found["ue8m0_scales"] = _read_quantization(values.get("quantization_config"))
    _read_layer_types(values, found)
    _check_derived(values, found)

    known = _PLAIN.keys() | _FIXED.keys() | set(_HARMLESS.split()) | set(_SPECIAL.split())
    for key, value in values.items():
        # An unknown key set to null is absent. Any other value may change the result: false, too, if true states what V3.2 does.
        if key not in known and not key.startswith("_") and value is not None:
            raise _wrong(key, value, "no such key, because it may change the model in an unknown way")
    return ModelConfig(**found)


def _wrong(key: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"{key} is {short_repr(value)}; expected {expected}")


def _read_rope(values: dict[str, Any]) -> tuple[float, YarnScaling | None]:
    """(theta, YaRN or None) from either spelling. If both are given, they must agree."""
    readings = []
    for key in ("rope_scaling", "rope_parameters"):
        if values.get(key) is not None:
            readings.append(_read_rope_dict(key, values))
    if len(readings) == 2 and readings[0] != readings[1]:
        raise _wrong("rope_scaling", values["rope_scaling"], f"the same as rope_parameters ({readings[1]})")
    if readings:
        return readings[0]
    return _number("rope_theta", values.get("rope_theta", ModelConfig.rope_theta)), None


def _read_rope_dict(where: str, values: dict[str, Any]) -> tuple[float, YarnScaling | None]:
    rope = values[where]
    if not isinstance(rope, dict):
        raise _wrong(where, rope, "an object, or null")
    outer = values.get("rope_theta")
    theta = next((one for one in (rope.get("rope_theta"), outer) if one is not None), ModelConfig.rope_theta)
    if outer is not None and theta != outer:
        raise _wrong("rope_theta", outer, f"the same as {where}.rope_theta ({short_repr(theta)})")
    theta = _number(f"{where}.rope_theta", theta)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("type", kind) != kind or kind not in ("default", "yarn"):
        raise _wrong(f"{where}.rope_type", kind, "'yarn' or 'default', the same as type")
    only = {"truncate": True, "partial_rotary_factor": 1, "apply_yarn_scaling": True}  # the last: vLLM
    checked = {"rope_type", "type", "rope_theta", "attention_factor", *only}
    for key, value in rope.items():
        if key not in checked | _YARN_KEYS and value is not None:
            raise _wrong(f"{where}.{key}", value, "no such key, because it may change the rotation")
    for key, value in only.items():
        if rope.get(key, value) != value:
            raise _wrong(f"{where}.{key}", rope[key], short_repr(value))
    if kind == "default":
        return theta, None

    given = {key: rope[key] for key in _YARN_KEYS if rope.get(key) is not None}
    original = given.get("original_max_position_embeddings")
    if type(original) is not int or original < 1:
        raise _wrong(f"{where}.original_max_position_embeddings", original, "the context length before YaRN")
    if "factor" not in given:
        length = values.get("max_position_embeddings", ModelConfig.max_position_embeddings)
        given["factor"] = _number("max_position_embeddings", length) / original
    for key in _YARN_KEYS - {"original_max_position_embeddings"}:
        if key in given:
            given[key] = _number(f"{where}.{key}", given[key])
    _check_unscaled(where, rope, given)
    return theta, YarnScaling(**given)


def _check_unscaled(where: str, rope: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise ConfigError if cos and sin would be scaled. YaRN scales them by the ratio of two mscales; DeepSeek-V3.2 does not."""
    explicit = rope.get("attention_factor")
    if explicit is not None:
        if explicit != 1:
            raise _wrong(f"{where}.attention_factor", explicit, "1 (cos and sin are not scaled)")
        return
    mscale, all_dim = given.get("mscale"), given.get("mscale_all_dim")
    if given["factor"] > 1 and (mscale != all_dim or not mscale):
        expected = f"the same as {where}.mscale_all_dim ({short_repr(all_dim)}) and not 0: cos and sin are not scaled"
        raise _wrong(f"{where}.mscale", mscale, expected)


def _number(key: str, value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e300:  # an integer may exceed the range of floats
        raise _wrong(key, value, "a finite number")
    return float(value)


def _read_quantization(given: Any) -> tuple[tuple[int, int] | None, bool]:
    """(weight_block, ue8m0_scales) of quantization_config."""
    if given is None or given == {}:
        return None, ModelConfig.ue8m0_scales
    if not isinstance(given, dict):
        raise _wrong("quantization_config", given, "an object, or null")
    accepted: dict[str, tuple[Any, ...]] = {
        "quant_method": ("fp8",),
        "fmt": ("e4m3", None),
        "activation_scheme": ("dynamic", None),
        "weight_block_size": ([FP8_BLOCK, FP8_BLOCK],),
        "scale_fmt": ("ue8m0", "float", None),
        "expert_dtype": ("fp8", None),  # transformers
        "dequantize": (False, None),  # transformers: true computes in bfloat16
    }
    for key, allowed in accepted.items():
        if given.get(key) not in allowed:
            raise _wrong(f"quantization_config.{key}", given.get(key), " or ".join(short_repr(one) for one in allowed))
    # The tensors themselves say which of them are not quantised.
    harmless = accepted.keys() | {"modules_to_not_convert", "ignored_layers"}
    for key, value in given.items():
        if key not in harmless and value is not None:
            raise _wrong(f"quantization_config.{key}", value, "no such key, because it may change the numbers")
    return (FP8_BLOCK, FP8_BLOCK), given.get("scale_fmt") == "ue8m0"


def _read_layer_types(values: dict[str, Any], found: dict[str, Any]) -> None:
    """Read lists of layer types. They replace `first_k_dense_replace`, which must be able to express them."""
    layers = found.get("num_hidden_layers", ModelConfig.num_hidden_layers)
    types = values.get("mlp_layer_types")
    if types is not None:
        dense = types.count("dense") if isinstance(types, list) else 0
        if not isinstance(layers, int) or types != ["dense"] * dense + ["sparse"] * (layers - dense):
            raise _wrong(
                "mlp_layer_types", types, f"'dense' layers first, then 'sparse' ones, {short_repr(layers)} in all"
            )
        found["first_k_dense_replace"] = dense
    types = values.get("layer_types")
    if types is not None and (
        not isinstance(types, list) or len(types) != layers or any(one not in _LAYER_TYPES for one in types)
    ):
        raise _wrong("layer_types", types, f"{short_repr(layers)} times {_LAYER_TYPES[0]!r}")
    # transformers' and vLLM's lists of the layers that select for themselves. Draft layers may be included.
    for key, own in (("indexer_types", "full"), ("index_topk_pattern", "F")):
        types = values.get(key)
        whole = isinstance(types, list | str) and (type(layers) is not int or len(types) >= layers)
        if types is not None and (not whole or any(one != own for one in types)):
            raise _wrong(key, types, f"{own!r} for every layer: each selects for itself")


def _check_derived(values: dict[str, Any], found: dict[str, Any]) -> None:
    """Raise ConfigError for a key that repeats others and disagrees with them."""

    def field(key: str) -> Any:
        return found.get(key, getattr(ModelConfig, key))

    repeats = {
        "num_key_value_heads": (field("num_attention_heads"), "num_attention_heads"),
        "num_local_experts": (field("n_routed_experts"), "n_routed_experts"),
        "num_experts": (field("n_routed_experts"), "n_routed_experts"),
    }
    nope, rope = field("qk_nope_head_dim"), field("qk_rope_head_dim")
    if type(nope) is int and type(rope) is int:
        repeats["qk_head_dim"] = (nope + rope, "qk_nope_head_dim + qk_rope_head_dim")
    for key, (expected, formula) in repeats.items():
        if values.get(key) is not None and values[key] != expected:
            raise _wrong(key, values[key], f"{formula} ({short_repr(expected)})")


def config_json(config: ModelConfig) -> dict[str, Any]:
    """Write a configuration in the released model's spelling, so that `parse_config` reads it back."""
    values: dict[str, Any] = {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32"}
    values |= {key: getattr(config, key) for key in _PLAIN}
    values |= {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "hidden_act": "silu", "attention_bias": False}
    values["num_key_value_heads"] = config.num_attention_heads
    eos = config.eos_token_ids
    values["eos_token_id"] = eos[0] if len(eos) == 1 else list(eos) or None
    values["rope_theta"] = config.rope_theta
    values["rope_scaling"] = None
    if config.yarn is not None:
        values["rope_scaling"] = {"type": "yarn"} | {key: getattr(config.yarn, key) for key in sorted(_YARN_KEYS)}
    if config.weight_block is not None:
        values["quantization_config"] = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": list(config.weight_block),
            "scale_fmt": "ue8m0" if config.ue8m0_scales else None,
        }
    return values
