"""Turns a model into one rank's part of it, and inserts the collectives between the ranks.

The model is written for one device. `shard_model` takes it on the meta device, allocates this rank's part of every parameter,
and inserts collectives where ranks depend on each other: after attention, after the MLP, around the vocabulary, and over the
tokens of prompt chunks (prefill.py).

Every rank computes the same hidden states, bit for bit. Replicated parts run the same kernels on the same inputs. An
all-reduce, by gloo, NCCL or shared memory, returns the same sums on every rank: each element is summed in one place, or
everywhere in the same order. Therefore all ranks select the same tokens in decoding, where each runs the whole indexer. No
shape depends on data, so that even NaN cannot make ranks wait for each other forever.
"""

import re
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from ...kernels.registry import preference_of
from ..block import Block
from ..config import ModelConfig, Precision
from ..layers import MLP, Compute, Embedding, Operand, RMSNorm, Update, parameter
from ..moe import DEFERRED_TOKENS, MixtureOfExperts
from ..mtp import MTPTables
from ..rope import RotaryEmbedding
from ..transformer import Transformer
from .collectives import Ranks
from .plan import VOCABULARY_TABLES, Plan
from .prefill import SequenceParallelLinear, SequenceParallelPrefill, SequenceParallelRouter


def build_model(
    config: ModelConfig,
    precision: Precision,
    backend: str,
    device: torch.device | str,
    ranks: Ranks | None = None,
    mtp: MTPTables | None = None,
    deterministic: bool = False,
    offload: bool = False,
) -> Transformer:
    """Build the model, or this rank's part of it, with uninitialised parameters on `device`.

    mtp: with the MTP layer, for speculative decoding. offload: without the routed experts.
    """
    if ranks is None or ranks.size == 1:
        return Transformer(config, precision, backend, device, mtp, deterministic, offload)
    model = Transformer(config, precision, backend, "meta", mtp, deterministic, offload)  # takes no memory
    shard_model(model, Plan(config, ranks.rank, ranks.size, mtp), ranks, torch.device(device))
    return model


def parameter_bytes(
    config: ModelConfig,
    precision: Precision,
    rank: int = 0,
    size: int = 1,
    mtp: MTPTables | None = None,
    offload: bool = False,
) -> int:
    """Count the bytes of one rank's parameters. offload: without the routed experts."""
    model = Transformer(config, precision, "reference", "meta", mtp, offload=offload)
    if size > 1:
        shard_model(model, Plan(config, rank, size, mtp), Ranks(rank, size), torch.device("meta"))
    return sum(each.numel() * each.element_size() for each in model.parameters())


def shard_model(model: Transformer, plan: Plan, ranks: Ranks, device: torch.device) -> None:
    """Turn a whole model on the meta device into one rank's part on `device`, with the collectives between ranks."""
    config, split = plan.config, plan.split
    if model.compute.backend == preference_of("reference"):
        ranks = ranks.by_library()
    for name, module in model.named_modules():
        if isinstance(module, MixtureOfExperts) and not plan.holds(f"{name}.shared_experts.down_proj.weight"):
            module.shared_experts = None
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:  # ranks share the fp32 projections, which none of them splits, by tokens
        indexer = block.self_attn.indexer
        sizes = config.hidden_size, config.index_n_heads
        indexer.weights_proj = SequenceParallelLinear(*sizes, indexer.compute, ranks)
        if isinstance(block.mlp, MixtureOfExperts):
            block.mlp.gate = SequenceParallelRouter(config, indexer.compute, ranks)
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
        _connect(block, plan, ranks)


def _connect(block: Block, plan: Plan, ranks: Ranks) -> None:
    """Insert a layer's collectives: over the tokens of prompt chunks, after attention and after the MLP."""
    attention, split = block.self_attn, plan.split
    attention.prefill_sharing = SequenceParallelPrefill(attention, ranks, split["heads"])
    if split["heads"]:
        attention.heads //= plan.size
        attention.kv_b_proj.heads //= plan.size
        attention.register_forward_hook(partial(_sum_outputs, ranks, attention.compute))
    if isinstance(block.mlp, MLP):
        if split["dense MLPs"]:
            block.mlp.register_forward_hook(partial(_sum_outputs, ranks, attention.compute))
        return
    experts = block.mlp.experts
    experts.first, experts.step, experts.count = plan.experts.start, plan.experts.step, len(plan.experts)
    block.mlp.defers_sum = False
    block.mlp.register_forward_hook(partial(_sum_outputs, ranks, attention.compute))


class PendingSum(NamedTuple):
    """This rank's part [T, D] of a sublayer's output."""

    part: torch.Tensor
    ranks: Ranks

    def sum(self, compute: Compute) -> torch.Tensor:
        """The sum of all ranks' parts, [T, D]."""
        return self.ranks.all_reduce(self.part, compute.deterministic)

    def norm(self, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor, Operand]:
        """Return the same as `RMSNorm.with_operand` for the residual stream [T, D] and the sum."""
        return self.ranks.all_reduce_norm(self.part, residual, norm.weight, norm.eps, norm.compute.ue8m0)


def _sum_outputs(ranks: Ranks, compute: Compute, module: nn.Module, inputs: Any, output: torch.Tensor) -> Update:
    if compute.quantized and len(output) <= DEFERRED_TOKENS and ranks.fuses_norm(output):
        return PendingSum(output, ranks)
    return ranks.all_reduce(output, compute.deterministic)


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
