"""Configurations that tests share: the released model's, and random small ones as arguments of transformers' class."""

import random
from typing import Any

# The released model's config.json.
RELEASED: dict[str, Any] = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "ep_size": 1,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v32",
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.44.2",
    "use_cache": True,
    "v_head_dim": 128,
    "vocab_size": 129280,
}


def random_arguments(seed: int) -> dict[str, Any]:
    """Arguments of a small transformers `DeepseekV32Config`. At least 16 index heads, so that scores do not tie at zero."""
    rng = random.Random(seed)
    heads, groups, group_size = rng.randint(1, 4), rng.choice((1, 2, 4)), rng.choice((2, 3, 4))
    kept = rng.randint(1, groups)
    rope = rng.choice((4, 8, 16))
    arguments: dict[str, Any] = {
        "vocab_size": rng.choice((64, 100)),
        "hidden_size": rng.choice((32, 48, 136)),
        "intermediate_size": rng.choice((24, 130)),
        "moe_intermediate_size": rng.choice((16, 20)),
        "num_hidden_layers": rng.randint(1, 3),
        "first_k_dense_replace": rng.randint(0, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "q_lora_rank": rng.choice((16, 24)),
        "kv_lora_rank": rng.choice((16, 32)),
        "qk_nope_head_dim": rng.choice((8, 12)),
        "qk_rope_head_dim": rope,
        "v_head_dim": rng.choice((8, 10)),
        "n_routed_experts": groups * group_size,
        "n_shared_experts": rng.randint(1, 2),
        "n_group": groups,
        "topk_group": kept,
        "num_experts_per_tok": rng.randint(1, kept * group_size),
        "norm_topk_prob": rng.random() < 0.7,
        "routed_scaling_factor": rng.choice((1.0, 2.5)),
        "index_n_heads": 16,
        "index_head_dim": rope + rng.choice((0, 16)),
        "index_topk": rng.choice((4, 16)),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": rng.random() < 0.3,
        "eos_token_id": rng.choice((1, [1, 2], None)),
    }
    arguments["rope_parameters"] = {"rope_type": "default", "rope_theta": rng.choice((1e4, 5e5))}
    if rng.random() < 0.7:
        mscale = rng.choice((0.707, 1.0))
        arguments["rope_parameters"] |= {
            "rope_type": "yarn",
            "factor": rng.choice((2.0, 40.0)),
            "original_max_position_embeddings": rng.choice((256, 4096)),
            "beta_fast": rng.choice((16, 32)),
            "beta_slow": rng.choice((1, 2)),
            "mscale": mscale,
            "mscale_all_dim": mscale,
        }
    return arguments
