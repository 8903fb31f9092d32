"""Turns a model into one rank's part of it, and inserts the collectives between the ranks.

The model is written for one device. `shard_model` takes it on the meta device, allocates this rank's part of every parameter,
and connects the ranks: around the vocabulary, and in each layer by the kind of the step (rows.py).

In replicated steps every rank computes the same hidden states, bit for bit: the same kernels on the same inputs, and the same sums
by gloo, NCCL or shared memory, because each element is summed in one place, or everywhere in the same order. Therefore all ranks
select the same tokens in decoding, where each runs the whole indexer. In divided steps only one rank computes a row, and all write
the same caches. No shape depends on data, so that even NaN cannot make ranks wait for each other forever.
"""

import re
from copy import copy
from dataclasses import replace

import torch
from torch import nn

from ...kernels.registry import preference_of
from ..attention import MultiHeadLatentAttention
from ..block import Block
from ..config import ModelConfig, Precision
from ..layers import MLP, Compute, Embedding, parameter
from ..moe import MixtureOfExperts
from ..mtp import MTPTables
from ..rope import RotaryEmbedding
from ..transformer import Transformer
from .collectives import Ranks
from .plan import VOCABULARY_TABLES, Plan
from .rows import RankRows, SequenceRows


def build_model(
    config: ModelConfig,
    precision: Precision,
    backend: str,
    device: torch.device | str,
    ranks: Ranks | None = None,
    mtp: MTPTables | None = None,
    deterministic: bool = False,
    offload: bool = False,
    whole_attention: bool = False,
) -> Transformer:
    """Build the model, or this rank's part of it, with uninitialised parameters on `device`.

    mtp: with the MTP layer, for speculative decoding. offload: without the routed experts. whole_attention: see Plan.
    """
    if ranks is None or ranks.size == 1:
        return Transformer(config, precision, backend, device, mtp, deterministic, offload)
    model = Transformer(config, precision, backend, "meta", mtp, deterministic, offload)  # takes no memory
    shard_model(model, Plan(config, ranks.rank, ranks.size, mtp, whole_attention), ranks, torch.device(device))
    return model


def parameter_bytes(
    config: ModelConfig,
    precision: Precision,
    rank: int = 0,
    size: int = 1,
    mtp: MTPTables | None = None,
    offload: bool = False,
    whole_attention: bool = False,
) -> int:
    """Count the bytes of one rank's parameters. offload: without the routed experts. whole_attention: see Plan."""
    model = Transformer(config, precision, "reference", "meta", mtp, offload=offload)
    if size > 1:
        plan = Plan(config, rank, size, mtp, whole_attention)
        shard_model(model, plan, Ranks(rank, size), torch.device("meta"))
    return sum(each.numel() * each.element_size() for each in model.parameters())


def shard_model(model: Transformer, plan: Plan, ranks: Ranks, device: torch.device) -> None:
    """Turn a whole model on the meta device into one rank's part on `device`, with the collectives between ranks."""
    config, split = plan.config, plan.split
    if model.compute.backend == preference_of("reference"):
        ranks = Ranks(ranks.rank, ranks.size)  # all sums are torch.distributed's
    for name, module in model.named_modules():
        if isinstance(module, MixtureOfExperts) and not plan.holds(f"{name}.shared_experts.down_proj.weight"):
            module.shared_experts = None
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    compute = replace(model.compute, device=device)
    for module in model.modules():
        if isinstance(getattr(module, "compute", None), Compute):
            module.compute = compute  # type: ignore[assignment]
    model.rotary = RotaryEmbedding(config, device)
    if split["vocabulary"]:
        tied = model.lm_head is model.embed_tokens
        model.embed_tokens = SplitEmbedding(config, compute, ranks)
        model.lm_head = model.embed_tokens if tied else SplitEmbedding(config, compute, ranks)
        if model.mtp is not None:
            for table in ("embed_tokens", "lm_head"):
                if getattr(model.mtp, table) is not None:
                    setattr(model.mtp, table, SplitEmbedding(config, compute, ranks))
    for name, whole in list(model.named_parameters()):
        shape = list(whole.shape)
        if not re.fullmatch(rf"(mtp\.)?{VOCABULARY_TABLES}", name):  # these have this rank's shape already
            kept = plan.slice_of(name, shape)  # the same for scales, because a split never crosses a block
            if kept is not None:
                shape[kept.dim] = kept.size
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, parameter(*shape, dtype=whole.dtype, device=device))
    for block in blocks:
        _divide(block, plan)
    attentions = [block.self_attn for block in blocks]
    own = {each: own_heads(each, plan) for each in attentions} if plan.whole_attention and split["heads"] else {}
    model.division = plan.describe()
    model.divide = RankRows(ranks, compute, config.index_topk, own, plan.whole_attention).of


def divide_sequences(model: Transformer, plan: Plan, ranks: Ranks) -> None:
    """Let each rank attend for the sequences in its caches, with the weights of all heads, which it must have."""
    assert plan.whole_attention
    topk, model.division = plan.config.index_topk, plan.describe(by_sequences=True)
    model.divide = lambda step, cos, sin: SequenceRows(ranks, step, cos, sin, topk).part()


def _divide(block: Block, plan: Plan) -> None:
    """Tell a layer's parts which share of the heads, columns and experts they hold."""
    split = plan.split
    if split["heads"] and not plan.whole_attention:
        _keep_heads(block.self_attn, plan.size)
    if isinstance(block.mlp, MLP):
        block.mlp.partial = split["dense MLPs"]
        return
    experts = block.mlp.experts
    experts.first, experts.step, experts.count = plan.experts.start, plan.experts.step, len(plan.experts)
    block.mlp.partial = True


def _keep_heads(attention: MultiHeadLatentAttention, size: int) -> None:
    attention.heads //= size
    attention.kv_b_proj.heads //= size
    attention.partial = True


def own_heads(whole: MultiHeadLatentAttention, plan: Plan) -> MultiHeadLatentAttention:
    """Return the attention of this rank's heads, whose weights are views of the whole ones."""
    part = copy(whole)
    part._modules = dict(whole._modules)
    plan = replace(plan, whole_attention=False)
    for name in ("q_b_proj", "kv_b_proj", "o_proj"):
        module = part._modules[name] = copy(whole.get_submodule(name))
        module._parameters = {}
        for key, value in whole.get_submodule(name).named_parameters():
            kept = plan.slice_of(f"self_attn.{name}.{key}", value.shape)
            assert kept is not None
            view = value.narrow(kept.dim, kept.start, kept.size)
            module._parameters[key] = nn.Parameter(view, requires_grad=False)
    _keep_heads(part, plan.size)
    return part


class SplitEmbedding(Embedding):
    """This rank's rows of the [V, D] table."""

    def __init__(self, config: ModelConfig, compute: Compute, ranks: Ranks) -> None:
        rows = config.vocab_size // ranks.size
        super().__init__(rows, config.hidden_size, compute)
        self.ranks, self.rows = ranks, rows

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        local = tokens - self.rows * self.ranks.rank
        elsewhere = (local < 0) | (local >= self.rows)
        embedded = super().forward(local.masked_fill(elsewhere, 0)).masked_fill(elsewhere[:, None], 0)
        return self.ranks.all_reduce(embedded)

    def logits(self, h: torch.Tensor) -> torch.Tensor:
        """h [N, D] -> fp32 [N, V], on every rank."""
        parts = self.ranks.all_gather(super().logits(h))
        return parts.transpose(0, 1).flatten(1)
