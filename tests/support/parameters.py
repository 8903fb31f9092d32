"""Names, shapes and dtypes of the model's parameters, written out by hand."""

import torch

from deepseek_v32.model.config import ModelConfig

Specification = dict[str, tuple[tuple[int, ...], torch.dtype]]


def expected_parameters(config: ModelConfig, precision: str) -> Specification:
    """Name -> (shape, dtype) of every parameter of a model in this precision."""
    fp32 = torch.float32
    compute = fp32 if precision == "exact" else torch.bfloat16
    weights = torch.float8_e4m3fn if precision == "fp8" else compute
    hidden, heads, latent = config.hidden_size, config.num_attention_heads, config.kv_lora_rank
    specification: Specification = {}

    def blocks(size: int) -> int:
        return (size + 127) // 128

    def linear(name: str, rows: int, columns: int, parts: int = 1) -> None:
        specification[name + ".weight"] = ((parts * rows, columns), weights)
        if precision == "fp8":
            specification[name + ".weight_scale_inv"] = ((parts * blocks(rows), blocks(columns)), fp32)

    def mlp(name: str, width: int) -> None:
        linear(name + ".gate_up_proj", width, hidden, parts=2)
        linear(name + ".down_proj", hidden, width)

    specification["embed_tokens.weight"] = ((config.vocab_size, hidden), compute)
    specification["lm_head.weight"] = ((config.vocab_size, hidden), compute)
    specification["norm.weight"] = ((hidden,), fp32)
    for layer in range(config.num_hidden_layers):
        prefix = f"layers.{layer}."
        attention, indexer = prefix + "self_attn.", prefix + "self_attn.indexer."
        specification[prefix + "input_layernorm.weight"] = ((hidden,), fp32)
        specification[prefix + "post_attention_layernorm.weight"] = ((hidden,), fp32)
        linear(attention + "q_a_proj", config.q_lora_rank, hidden)
        linear(attention + "q_b_proj", heads * config.qk_head_dim, config.q_lora_rank)
        linear(attention + "kv_a_proj_with_mqa", latent + config.qk_rope_head_dim, hidden)
        linear(attention + "o_proj", hidden, heads * config.v_head_dim)
        specification[attention + "q_a_layernorm.weight"] = ((config.q_lora_rank,), fp32)
        specification[attention + "kv_a_layernorm.weight"] = ((latent,), fp32)
        expanded = heads * (config.qk_nope_head_dim + config.v_head_dim)
        specification[attention + "kv_b_proj.weight"] = ((expanded, latent), compute)
        linear(indexer + "wq_b", config.index_n_heads * config.index_head_dim, config.q_lora_rank)
        linear(indexer + "wk", config.index_head_dim, hidden)
        specification[indexer + "k_norm.weight"] = ((config.index_head_dim,), fp32)
        specification[indexer + "k_norm.bias"] = ((config.index_head_dim,), fp32)
        specification[indexer + "weights_proj.weight"] = ((config.index_n_heads, hidden), fp32)
        if layer < config.first_k_dense_replace:
            mlp(prefix + "mlp", config.intermediate_size)
            continue
        experts, width = config.n_routed_experts, config.moe_intermediate_size
        specification[prefix + "mlp.gate.weight"] = ((experts, hidden), fp32)
        specification[prefix + "mlp.gate.e_score_correction_bias"] = ((experts,), fp32)
        specification[prefix + "mlp.experts.gate_up_proj"] = ((experts, 2 * width, hidden), weights)
        specification[prefix + "mlp.experts.down_proj"] = ((experts, hidden, width), weights)
        if precision == "fp8":
            shape = (experts, 2 * blocks(width), blocks(hidden))
            specification[prefix + "mlp.experts.gate_up_proj_scale_inv"] = (shape, fp32)
            specification[prefix + "mlp.experts.down_proj_scale_inv"] = ((experts, blocks(hidden), blocks(width)), fp32)
        if config.n_shared_experts:
            mlp(prefix + "mlp.shared_experts", width * config.n_shared_experts)
    return specification
