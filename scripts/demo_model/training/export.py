"""Writes a trained model as a Hugging Face checkpoint, with FP8 blocks and power-of-two scales, and reads it back."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from deepseek_v32.model.checkpoint.manifest import write_manifest

from . import vocabulary
from .model import Model
from .quantization import dequantize_weight, quantize_weight
from .shape import HEADS, INDEX, LATENT, NOPE, ROPE, VALUE, Shape


def config(shape: Shape) -> dict:
    return {
        "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "dtype": "bfloat16",
        "vocab_size": shape.vocab, "hidden_size": shape.hidden, "intermediate_size": shape.mlp,
        "moe_intermediate_size": shape.expert, "num_hidden_layers": shape.layers, "first_k_dense_replace": shape.dense_layers,
        "moe_layer_freq": 1, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "q_lora_rank": shape.q_lora,
        "kv_lora_rank": LATENT, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": VALUE,
        "n_routed_experts": shape.experts, "n_shared_experts": 1, "num_experts_per_tok": shape.experts_per_token,
        "n_group": shape.groups, "topk_group": shape.kept_groups, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        "norm_topk_prob": True, "routed_scaling_factor": shape.routed_scaling, "hidden_act": "silu",
        "index_n_heads": shape.index_heads, "index_head_dim": INDEX, "index_topk": shape.index_topk,
        "rms_norm_eps": 1e-6, "rope_theta": shape.theta, "max_position_embeddings": shape.positions,
        "rope_scaling": {
            "type": "yarn", "factor": shape.yarn_factor, "original_max_position_embeddings": shape.yarn_original,
            "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
        },
        "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
        "bos_token_id": vocabulary.BOS, "eos_token_id": vocabulary.EOS, "pad_token_id": vocabulary.PAD, "use_cache": True,
        "quantization_config": {
            "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            "scale_fmt": "ue8m0",
        },
    }  # fmt: skip


FP8 = torch.float8_e4m3fn


def layout(model: Model) -> Iterator[tuple[str, torch.Tensor, torch.dtype]]:
    """Every parameter of the model with its name in the released checkpoint's format and its dtype there.

    Experts are views of the stacked parameters, so writing into a tensor writes into the model.
    """
    yield "model.embed_tokens.weight", model.embed, torch.bfloat16
    yield "lm_head.weight", model.head, torch.bfloat16
    yield "model.norm.weight", model.norm, torch.float32
    draft = f"model.layers.{model.shape.layers}"
    yield f"{draft}.enorm.weight", model.draft.enorm, torch.float32
    yield f"{draft}.hnorm.weight", model.draft.hnorm, torch.float32
    yield f"{draft}.shared_head.norm.weight", model.draft.norm, torch.float32
    yield f"{draft}.eh_proj.weight", model.draft.eh, torch.bfloat16
    for i, layer in enumerate([*model.layers, model.draft.layer]):
        at, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        yield f"model.layers.{i}.input_layernorm.weight", layer.input_norm, torch.float32
        yield f"model.layers.{i}.post_attention_layernorm.weight", layer.mlp_norm, torch.float32
        yield f"{at}.q_a_layernorm.weight", layer.q_a_norm, torch.float32
        yield f"{at}.kv_a_layernorm.weight", layer.kv_a_norm, torch.float32
        yield f"{at}.indexer.k_norm.weight", layer.index_k_norm, torch.float32
        yield f"{at}.indexer.k_norm.bias", layer.index_k_bias, torch.float32
        yield f"{at}.indexer.weights_proj.weight", layer.index_weights, torch.bfloat16
        for name, weight in [
            ("q_a_proj", layer.q_a), ("q_b_proj", layer.q_b), ("kv_a_proj_with_mqa", layer.kv_a), ("kv_b_proj", layer.kv_b),
            ("o_proj", layer.o), ("indexer.wq_b", layer.index_q), ("indexer.wk", layer.index_k),
        ]:  # fmt: skip
            yield f"{at}.{name}.weight", weight, FP8
        if layer.dense:
            experts = [(mlp, layer.gate, layer.up, layer.down)]
        else:
            yield f"{mlp}.gate.weight", layer.router, torch.bfloat16
            yield f"{mlp}.gate.e_score_correction_bias", layer.router_bias, torch.float32
            experts = [(f"{mlp}.shared_experts", layer.shared_gate, layer.shared_up, layer.shared_down)]
            experts += [
                (f"{mlp}.experts.{e}", layer.expert_gate[e], layer.expert_up[e], layer.expert_down[e])
                for e in range(layer.shape.experts)
            ]
        for prefix, gate, up, down in experts:
            for name, weight in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
                yield f"{prefix}.{name}.weight", weight, FP8


def tensors(model: Model) -> dict[str, torch.Tensor]:
    """The weights with the released checkpoint's names, dtypes and scales."""
    out: dict[str, torch.Tensor] = {}
    for name, tensor, dtype in layout(model):
        if dtype == FP8:
            out[name], out[f"{name}_scale_inv"] = quantize_weight(tensor.detach().float().cpu())
        else:
            out[name] = tensor.detach().to("cpu", dtype).contiguous()
    return out


@torch.no_grad()
def restore(model: Model, folder: Path) -> None:
    """Fill the model's fp32 weights from a checkpoint that `export` wrote: FP8 blocks times their scales, the rest as it is.

    Raises ValueError if the folder has no checkpoint, or one of another shape.
    """
    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        raise ValueError(f"--from is {str(folder)!r}; expected a folder with config.json and model.safetensors")
    saved, own = json.loads((folder / "config.json").read_text()), config(model.shape)
    for key in sorted(own.keys() - {"dtype", "use_cache"}):
        if saved.get(key) != own[key]:
            raise ValueError(
                f"{key} of {folder} is {saved.get(key)!r}; expected {own[key]!r}, as scripts/demo_model/training/shape.py has it"
            )
    stored = load_file(folder / "model.safetensors")
    for name, tensor, dtype in layout(model):
        value = stored.pop(name, None)
        scale = stored.pop(f"{name}_scale_inv", None) if dtype == FP8 else None
        if value is None or (dtype == FP8 and scale is None):
            raise ValueError(
                f"{folder} has no {name}{'' if value is None else '_scale_inv'}; expected every weight of the model"
            )
        if value.shape != tensor.shape:
            raise ValueError(f"shape of {name} is {list(value.shape)}; expected {list(tensor.shape)}")
        tensor.copy_(value.float() if scale is None else dequantize_weight(value, scale))
    if stored:
        raise ValueError(f"{folder} has {sorted(stored)[0]}; expected no weights but the model's")


def export(model: Model, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config.json, model.safetensors with its manifest, tokenizer.json and tokenizer_config.json.

    Without a chat template, as the released checkpoint: messages are encoded in DeepSeek-V3.2's own format. The draft layer has no
    embedding and no head of its own, because they are the model's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors(model), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(model.shape), indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    names = {
        "bos_token": vocabulary.SPECIALS[0],
        "eos_token": vocabulary.SPECIALS[1],
        "pad_token": vocabulary.SPECIALS[2],
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast", **names, "add_bos_token": False, "add_eos_token": False,
                "clean_up_tokenization_spaces": False, "model_max_length": model.shape.positions,
            },
            indent=2, ensure_ascii=False,
        ) + "\n"
    )  # fmt: skip
    write_manifest(folder)
