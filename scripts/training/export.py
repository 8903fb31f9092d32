"""Exports a trained model as a Hugging Face checkpoint: FP8 blocks with power-of-two scales, config.json, tokenizer files."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from deepseek_v32.model.checkpoint.manifest import write_manifest

from . import data
from .model import HEADS, INDEX, LATENT, NOPE, ROPE, VALUE, Model, Shape
from .quantization import quantize_weight


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
        "bos_token_id": data.BOS, "eos_token_id": data.EOS, "pad_token_id": data.PAD, "use_cache": True,
        "quantization_config": {
            "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            "scale_fmt": "ue8m0",
        },
    }  # fmt: skip


def tensors(model: Model) -> dict[str, torch.Tensor]:
    """The weights with the released checkpoint's names, dtypes and scales."""
    out: dict[str, torch.Tensor] = {}

    def fp8(name: str, weight: torch.Tensor) -> None:
        out[f"{name}.weight"], out[f"{name}.weight_scale_inv"] = quantize_weight(weight.detach().float().cpu())

    def keep(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> None:
        out[name] = tensor.detach().to("cpu", dtype).contiguous()

    keep("model.embed_tokens.weight", model.embed, torch.bfloat16)
    keep("lm_head.weight", model.head, torch.bfloat16)
    keep("model.norm.weight", model.norm, torch.float32)
    draft = f"model.layers.{model.shape.layers}"
    for name, norm in (
        ("enorm", model.draft.enorm),
        ("hnorm", model.draft.hnorm),
        ("shared_head.norm", model.draft.norm),
    ):
        keep(f"{draft}.{name}.weight", norm, torch.float32)
    keep(f"{draft}.eh_proj.weight", model.draft.eh, torch.bfloat16)
    for i, layer in enumerate([*model.layers, model.draft.layer]):
        at, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        keep(f"model.layers.{i}.input_layernorm.weight", layer.input_norm, torch.float32)
        keep(f"model.layers.{i}.post_attention_layernorm.weight", layer.mlp_norm, torch.float32)
        keep(f"{at}.q_a_layernorm.weight", layer.q_a_norm, torch.float32)
        keep(f"{at}.kv_a_layernorm.weight", layer.kv_a_norm, torch.float32)
        keep(f"{at}.indexer.k_norm.weight", layer.index_k_norm, torch.float32)
        keep(f"{at}.indexer.k_norm.bias", layer.index_k_bias, torch.float32)
        keep(f"{at}.indexer.weights_proj.weight", layer.index_weights, torch.bfloat16)
        for name, weight in [
            ("q_a_proj", layer.q_a), ("q_b_proj", layer.q_b), ("kv_a_proj_with_mqa", layer.kv_a), ("kv_b_proj", layer.kv_b),
            ("o_proj", layer.o), ("indexer.wq_b", layer.index_q), ("indexer.wk", layer.index_k),
        ]:  # fmt: skip
            fp8(f"{at}.{name}", weight)
        if layer.dense:
            experts = [(mlp, layer.gate, layer.up, layer.down)]
        else:
            keep(f"{mlp}.gate.weight", layer.router, torch.bfloat16)
            keep(f"{mlp}.gate.e_score_correction_bias", layer.router_bias, torch.float32)
            experts = [(f"{mlp}.shared_experts", layer.shared_gate, layer.shared_up, layer.shared_down)]
            experts += [
                (f"{mlp}.experts.{e}", layer.expert_gate[e], layer.expert_up[e], layer.expert_down[e])
                for e in range(layer.shape.experts)
            ]
        for prefix, gate, up, down in experts:
            for name, weight in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
                fp8(f"{prefix}.{name}", weight)
    return out


def export(model: Model, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config.json, model.safetensors with its manifest, tokenizer.json and tokenizer_config.json.

    Without a chat template, as the released checkpoint: messages are encoded in DeepSeek-V3.2's own format. The draft layer has no
    embedding and no head of its own, because they are the model's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors(model), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(model.shape), indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    names = {"bos_token": data.SPECIALS[0], "eos_token": data.SPECIALS[1], "pad_token": data.SPECIALS[2]}
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
