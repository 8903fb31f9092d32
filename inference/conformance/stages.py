"""The stages of a trace: their names, shapes and formulas, in the order of computation. docs/conformance.md explains them.

T tokens, S = T context positions, H heads, H_i index heads, D dims of the axis in question, K selected, E experts, V vocabulary.
"""

import re
from dataclasses import dataclass
from typing import Literal

# values: compared as numbers. choice: sets of ids, in ascending order, -1 behind them. bytes: records as the cache holds them.
Kind = Literal["values", "choice", "bytes"]

VERSION = "deepseek-v32 trace, version 1"


@dataclass(frozen=True)
class Stage:
    """One named result of a forward pass."""

    name: str
    axes: str
    formula: str
    kind: Kind = "values"


BEFORE = (
    Stage("tokens", "T", "token ids", "choice"),
    Stage("embedding", "T, hidden", "embed_tokens[tokens]"),
)
LAYER = (
    Stage("attention_norm", "T, hidden", "RMSNorm(residual of the layer before; embedding), eps rms_norm_eps"),
    Stage("q_a_proj", "T, q_lora", "attention_norm @ q_a_proj^T"),
    Stage("kv_a_proj", "T, kv_lora + rope", "attention_norm @ kv_a_proj_with_mqa^T = [latent | rope part]"),
    Stage("index_key_proj", "T, index_dim", "attention_norm @ indexer.wk^T"),
    Stage("compressed_query", "T, q_lora", "RMSNorm(q_a_proj), eps 1e-6"),
    Stage("latent", "T, kv_lora", "RMSNorm(kv_a_proj[:kv_lora]), eps 1e-6, as the cache holds it"),
    Stage("key_rope", "T, rope", "RoPE(kv_a_proj[kv_lora:]), interleaved pairs (2i, 2i + 1), as the cache holds it"),
    Stage("latent_record", "T, bytes", "the latent's cache record; in fp8 656 bytes for the released model", "bytes"),
    Stage("index_key", "T, index_dim", "RoPE(LayerNorm(index_key_proj), eps 1e-6), pairs (i, i + rope/2) of the first rope dims"),
    Stage("index_record", "T, bytes", "the index key's cache record; in fp8 128 + 4 bytes, Hadamard-transformed", "bytes"),
    Stage("query", "T, H, nope + rope", "compressed_query @ q_b_proj^T, before RoPE"),
    Stage("query_rope", "T, H, rope", "RoPE(query[nope:]), interleaved pairs"),
    Stage("index_query_proj", "T, H_i, index_dim", "compressed_query @ indexer.wq_b^T"),
    Stage("index_query", "T, H_i, index_dim", "RoPE(index_query_proj), as index_key; without the Hadamard transform"),
    Stage("index_query_codes", "T, H_i, index_dim", "in fp8: e4m3 bytes of the Hadamard transform of index_query", "bytes"),
    Stage("index_query_scales", "T, H_i", "in fp8: what index_query_codes are multiplied by"),
    Stage("index_weights", "T, H_i", "fp32 attention_norm @ indexer.weights_proj^T * H_i^-0.5 * index_dim^-0.5"),
    Stage("index_scores", "T, S", "sum_h index_weights[h] * relu(index_query[h] . index_key[s]); -inf for s > t"),
    Stage("selection", "T, K", "the index_topk positions s <= t with the largest index_scores, ascending", "choice"),
    Stage("key_nope", "T, H, nope", "latent @ kv_b_proj^T, key part of each head"),
    Stage("value", "T, H, v", "latent @ kv_b_proj^T, value part of each head"),
    Stage("attention_heads", "T, H, v", "softmax over the selection of softmax_scale * (query[:nope] . key_nope + query_rope . "
          "key_rope), @ value"),
    Stage("attention_output", "T, hidden", "attention_heads @ o_proj^T"),
    Stage("attention_residual", "T, hidden", "residual of the layer before + attention_output"),
    Stage("mlp_norm", "T, hidden", "RMSNorm(attention_residual), eps rms_norm_eps"),
    Stage("router_logits", "T, E", "fp32 mlp_norm @ gate^T"),
    Stage("router_scores", "T, E", "sigmoid(router_logits) + e_score_correction_bias"),
    Stage("router_choice", "T, k", "the k experts with the largest router_scores in the topk_group best groups", "choice"),
    Stage("router_weights", "T, k", "sigmoid(router_logits) of router_choice, divided by their sum, times routed_scaling_factor"),
    Stage("shared_expert", "T, hidden", "down(silu(gate x) * up x) of the shared expert, x = mlp_norm"),
    Stage("mlp_output", "T, hidden", "the experts' outputs weighted by router_weights + shared_expert; the MLP of a dense layer"),
    Stage("residual", "T, hidden", "attention_residual + mlp_output"),
)  # fmt: skip
AFTER = (
    Stage("final_norm", "T, hidden", "RMSNorm(residual of the last layer), eps rms_norm_eps"),
    Stage("logits", "T, V", "fp32 final_norm @ lm_head^T"),
)
MTP_BEFORE = (
    Stage("mtp_embedding_norm", "T - 1, hidden", "enorm(embedding of the next token), 0 in place of it at position 0"),
    Stage("mtp_hidden_norm", "T - 1, hidden", "hnorm(final_norm)"),
    Stage("mtp_input", "T - 1, hidden", "[mtp_embedding_norm | mtp_hidden_norm] @ eh_proj^T"),
)
MTP_AFTER = (
    Stage("mtp_norm", "T - 1, hidden", "RMSNorm(residual of the MTP layer)"),
    Stage("mtp_logits", "T - 1, V", "mtp_norm @ shared_head.head^T"),
)

STAGES = {stage.name: stage for stage in (*BEFORE, *LAYER, *AFTER, *MTP_BEFORE, *MTP_AFTER)}
MTP_NAMES = frozenset(stage.name for stage in (*MTP_BEFORE, *MTP_AFTER))
_PLACE = {stage.name: place for place, stage in enumerate((*BEFORE, *LAYER, *AFTER, *MTP_BEFORE, *MTP_AFTER))}
_IN_LAYER = frozenset(stage.name for stage in LAYER)
_FULL = re.compile(r"layers\.(\d+)\.(\w+)")


def full_name(name: str, layer: int | None) -> str:
    """ "layers.3.latent", "logits": the name of a tensor in a trace."""
    return name if layer is None else f"layers.{layer}.{name}"


def parse_name(full: str) -> tuple[str, int | None] | None:
    """(name, layer) of a tensor of a trace; None for a name that no stage has."""
    match = _FULL.fullmatch(full)
    name, layer = (match[2], int(match[1])) if match else (full, None)
    return (name, layer) if name in STAGES and (name in _IN_LAYER) == (layer is not None) else None


def order(full: str, layers: int) -> tuple[int, ...]:
    """A key that sorts the tensors of a trace by their computation; `layers`: of the main model, behind which the MTP layer is."""
    name, layer = parse_name(full) or ("", None)
    if layer is not None:
        return (1 if layer < layers else 4, layer, _PLACE[name])
    block = 0 if name in ("tokens", "embedding") else 2 if name in ("final_norm", "logits") else 3
    return (5 if name in ("mtp_norm", "mtp_logits") else block, 0, _PLACE.get(name, -1))
