"""The tensors of a Hugging Face checkpoint and their places in the model.

Our module tree has the checkpoint's names without ``model.``, with three exceptions: gate and up projections share one
parameter (gate rows first), the experts of a layer are stacked in one parameter, and the MTP layer, which the checkpoint
numbers after the last layer, is ``mtp``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .config import ModelConfig, blocks

# Appended to a weight's name, this is the checkpoint's name of its scales. Despite "inv", weights are multiplied by them.
SCALE = "_scale_inv"

# An MTP layer's copies of the vocabulary tables, after the layer's prefix.
MTP_EMBEDDING, MTP_HEAD = "embed_tokens.weight", "shared_head.head.weight"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of the checkpoint and its place in the model."""

    name: str  # in the checkpoint
    shape: tuple[int, ...]
    parameter: str | None  # our name; None: the tensor is checked if it is present, but not loaded
    quantised: bool = False  # may be stored as e4m3 with scales; otherwise it is bf16 or fp32
    expert: int | None = None  # its index in a parameter that stacks experts
    row: int = 0  # its first row in the parameter
    scale_row: int = 0  # its first row in the parameter's scales
    required: bool = True  # a checkpoint must hold it; an MTP layer's tensor only if the layer is loaded
    mtp: bool = False  # of the MTP layer that can be loaded

    @property
    def scale_name(self) -> str:
        return self.name + SCALE

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """One scale per 128x128 block; the last block of a side may be smaller."""
        return tuple(blocks(size) for size in self.shape)


def scale_parameter(parameter: str) -> str:
    """Our name of a quantised parameter's scales."""
    return parameter + SCALE


def tensor_specs(config: ModelConfig) -> Iterator[TensorSpec]:
    """Yield every tensor that a checkpoint of this model may hold, in the order of layers.

    The first MTP layer is loaded only for speculative decoding, further ones never.
    """
    vocabulary = (config.vocab_size, config.hidden_size)
    yield TensorSpec("model.embed_tokens.weight", vocabulary, "embed_tokens.weight")
    for layer in range(config.num_hidden_layers):
        yield from _layer(config, f"model.layers.{layer}.", f"layers.{layer}.", config.is_dense(layer))
    yield TensorSpec("model.norm.weight", (config.hidden_size,), "norm.weight")
    if config.tie_word_embeddings:
        yield TensorSpec("model.embed_tokens.weight", vocabulary, "lm_head.weight")
        yield TensorSpec("lm_head.weight", vocabulary, None, required=False)  # some programs store the tied copy too
    else:
        yield TensorSpec("lm_head.weight", vocabulary, "lm_head.weight")
    # transformers drops num_nextn_predict_layers, but still accepts the one MTP layer of the released checkpoint.
    for index in range(max(config.num_nextn_predict_layers, 1)):
        yield from _mtp_layer(config, f"model.layers.{config.num_hidden_layers + index}.", loaded=index == 0)


def _layer(config: ModelConfig, theirs: str, ours: str | None, dense: bool) -> Iterator[TensorSpec]:
    """One transformer layer; `ours` is None for a layer that is not loaded."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    query, latent, rope = config.q_lora_rank, config.kv_lora_rank, config.qk_rope_head_dim
    expanded = config.qk_nope_head_dim + config.v_head_dim
    index_heads, index_dim = config.index_n_heads, config.index_head_dim
    quantised: dict[str, tuple[int, ...]] = {
        "self_attn.q_a_proj.weight": (query, hidden),
        "self_attn.q_b_proj.weight": (heads * config.qk_head_dim, query),
        "self_attn.kv_a_proj_with_mqa.weight": (latent + rope, hidden),
        "self_attn.kv_b_proj.weight": (heads * expanded, latent),
        "self_attn.o_proj.weight": (hidden, heads * config.v_head_dim),
        "self_attn.indexer.wq_b.weight": (index_heads * index_dim, query),
        "self_attn.indexer.wk.weight": (index_dim, hidden),
    }
    plain: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_a_layernorm.weight": (query,),
        "self_attn.kv_a_layernorm.weight": (latent,),
        "self_attn.indexer.k_norm.weight": (index_dim,),
        "self_attn.indexer.k_norm.bias": (index_dim,),
        "self_attn.indexer.weights_proj.weight": (index_heads, hidden),
        "post_attention_layernorm.weight": (hidden,),
    }
    if not dense:
        plain["mlp.gate.weight"] = (config.n_routed_experts, hidden)
        plain["mlp.gate.e_score_correction_bias"] = (config.n_routed_experts,)
    required = ours is not None
    for table, may_quantise in ((quantised, True), (plain, False)):
        for name, shape in table.items():
            yield TensorSpec(theirs + name, shape, _join(ours, name), may_quantise, required=required)

    if dense:
        yield from _mlp(hidden, config.intermediate_size, theirs + "mlp.", _join(ours, "mlp."))
        return
    if config.n_shared_experts:
        width = config.moe_intermediate_size * config.n_shared_experts
        yield from _mlp(hidden, width, theirs + "mlp.shared_experts.", _join(ours, "mlp.shared_experts."))
    for expert in range(config.n_routed_experts):
        prefix = f"{theirs}mlp.experts.{expert}."
        yield from _mlp(hidden, config.moe_intermediate_size, prefix, _join(ours, "mlp.experts."), expert)


def _mlp(hidden: int, width: int, theirs: str, ours: str | None, expert: int | None = None) -> Iterator[TensorSpec]:
    """An MLP's gate, up and down projections. Stacked experts are plain parameters: their names lack ".weight"."""
    weight = ".weight" if expert is None else ""
    gate_up, down, required = _join(ours, "gate_up_proj" + weight), _join(ours, "down_proj" + weight), ours is not None
    yield TensorSpec(theirs + "gate_proj.weight", (width, hidden), gate_up, True, expert, required=required)
    yield TensorSpec(
        theirs + "up_proj.weight", (width, hidden), gate_up, True, expert, width, blocks(width), required=required
    )
    yield TensorSpec(theirs + "down_proj.weight", (hidden, width), down, True, expert, required=required)


def _mtp_layer(config: ModelConfig, theirs: str, loaded: bool) -> Iterator[TensorSpec]:
    """A multi-token-prediction (MTP) layer: an MoE layer with an input projection and an output head of its own."""
    for spec in _layer(config, theirs, "mtp.block." if loaded else None, dense=False):
        yield replace(spec, mtp=loaded)
    hidden, vocabulary = config.hidden_size, (config.vocab_size, config.hidden_size)
    own: tuple[tuple[str, tuple[int, ...], str], ...] = (
        ("enorm.weight", (hidden,), "enorm.weight"),
        ("hnorm.weight", (hidden,), "hnorm.weight"),
        ("eh_proj.weight", (hidden, 2 * hidden), "eh_proj.weight"),
        ("shared_head.norm.weight", (hidden,), "norm.weight"),
        (MTP_HEAD, vocabulary, "lm_head.weight"),
        (MTP_EMBEDDING, vocabulary, "embed_tokens.weight"),
    )
    for name, shape, parameter in own:
        # The tables may be left out: then they are the main model's.
        required = loaded and name not in (MTP_HEAD, MTP_EMBEDDING)
        yield TensorSpec(theirs + name, shape, f"mtp.{parameter}" if loaded else None, required=required, mtp=loaded)


def _join(prefix: str | None, name: str) -> str | None:
    return None if prefix is None else prefix + name
