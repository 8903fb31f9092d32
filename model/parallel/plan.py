"""How a model is sharded: which slice of each parameter a rank holds.

Tensor parallelism splits heads, dense MLPs, the shared expert and the vocabulary. Expert parallelism gives each rank whole
routed experts. Norms, the router, the indexer and the latent projections are replicated. A split never crosses a 128x128
block of FP8 scales. A part whose sizes do not allow that is replicated. The shared expert, whose outputs ranks sum, is then only
on rank 0.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from ..config import FP8_BLOCK, ModelConfig, blocks
from ..errors import ConfigError
from ..mtp import MTPTables
from ..weight_map import MTP_EMBEDDING, MTP_HEAD, TensorSpec, tensor_specs

SIZES = (1, 2, 4, 8)  # numbers of ranks

VOCABULARY_TABLES = r"(embed_tokens|lm_head)\.weight"  # the main model's, and those that an MTP layer has of its own

# Our parameters (without the layer's prefix), the part of the model that decides whether they are split, and the dimension
# that is split. All other parameters are replicated.
_TABLE = (
    (VOCABULARY_TABLES, "vocabulary", 0),
    (r"self_attn\.(q_b_proj|kv_b_proj)\..+", "heads", 0),
    (r"self_attn\.o_proj\..+", "heads", 1),
    (r"mlp\.experts\..+", "experts", 0),
    (r"mlp\.shared_experts\.gate_up_proj\..+", "shared expert", 0),
    (r"mlp\.shared_experts\.down_proj\..+", "shared expert", 1),
    (r"mlp\.gate_up_proj\..+", "dense MLPs", 0),
    (r"mlp\.down_proj\..+", "dense MLPs", 1),
)


@dataclass(frozen=True)
class ShardSlice:
    """Elements [start, stop) of one dimension of a tensor."""

    dim: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def of_scales(self) -> "ShardSlice":
        """The same slice of the tensor's scales."""
        return ShardSlice(self.dim, self.start // FP8_BLOCK, blocks(self.stop))


@dataclass(frozen=True)
class Shard:
    """A rank's part of one tensor of the checkpoint."""

    spec: TensorSpec  # with the part's shape, and its place in this rank's parameter
    kept: ShardSlice | None = None  # of the stored tensor; None: all of it


@dataclass(frozen=True)
class Plan:
    """The part of a model that rank `rank` of `size` holds."""

    config: ModelConfig
    rank: int = 0
    size: int = 1
    mtp: MTPTables | None = None  # with the MTP layer, which only speculative decoding needs
    # Every rank holds the weights of all heads, so that prompts can be divided by tokens (rows.py). Decodes use a part of them.
    whole_attention: bool = False

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ConfigError(f"number of ranks is {self.size}; expected 1, 2, 4 or 8")
        if self.size > self.config.n_routed_experts:
            raise ConfigError(
                f"number of ranks is {self.size}; expected at most the {self.config.n_routed_experts} routed experts"
            )
        assert 0 <= self.rank < self.size

    @cached_property
    def split(self) -> dict[str, bool]:
        """The parts of the model that are split: their sizes divide into whole 128-wide blocks."""
        config, size = self.config, self.size
        heads, uneven = divmod(config.num_attention_heads, size)
        expanded = config.qk_nope_head_dim + config.v_head_dim
        widths = (heads * config.qk_head_dim, heads * expanded, heads * config.v_head_dim)
        shared = config.moe_intermediate_size * config.n_shared_experts
        return {
            "vocabulary": config.vocab_size % size == 0,
            "heads": not uneven and not any(width % FP8_BLOCK for width in widths),
            "dense MLPs": config.intermediate_size % (size * FP8_BLOCK) == 0,
            "shared expert": shared > 0 and shared % (size * FP8_BLOCK) == 0,
            "experts": True,
        }

    @property
    def experts(self) -> range:
        """This rank's routed experts: every `size`-th.

        A token's experts come from a few groups of neighbours. If each rank held neighbours, a token would keep few ranks busy.
        """
        return range(self.rank, self.config.n_routed_experts, self.size)

    def describe(self, by_sequences: bool = False) -> str:
        """Describe in one line what is split and what is not. by_sequences: see `divide_sequences`."""
        config = self.config
        whole = [part for part in ("vocabulary", "heads", "dense MLPs") if not self.split[part]]
        text = f"{self.size} ranks, {len(self.experts)} of {config.n_routed_experts} experts on each"
        if self.split["heads"] and not by_sequences:
            text += f", {config.num_attention_heads // self.size} of {config.num_attention_heads} heads"
        way = f"prompts{'' if self.whole_attention else ' not'} divided by tokens"
        text += f", {'attention divided by sequences' if by_sequences else way}"
        if whole:
            text += f"; not divisible, so whole on every rank: {', '.join(whole)}"
        if config.n_shared_experts and not self.split["shared expert"]:
            text += "; not divisible, so only on rank 0: shared expert"
        return text

    def slice_of(self, name: str, shape: Sequence[int]) -> ShardSlice | None:
        """Return this rank's slice of a parameter, of a tensor that fills a part of one, or of their scales; None: all of it."""
        part, dim = _rule(name)
        if part is None or not self.split[part] or self.size == 1 or (part == "heads" and self.whole_attention):
            return None
        if part == "experts":
            # Parameters that stack experts. Each expert is on this rank wholly or not at all.
            return ShardSlice(0, 0, len(self.experts))
        size = shape[dim] // self.size
        return ShardSlice(dim, size * self.rank, size * (self.rank + 1))

    def holds(self, name: str) -> bool:
        """Return False for a part that is not split and whose outputs ranks sum, except on rank 0."""
        return _rule(name)[0] != "shared expert" or self.split["shared expert"] or self.rank == 0

    def loads(self, spec: TensorSpec) -> bool:
        """Return whether a tensor has a place in the model. MTP tensors need the layer; shared tables are not loaded twice."""
        if not spec.mtp:
            return spec.parameter is not None
        if self.mtp is None:
            return False
        own = {MTP_EMBEDDING: self.mtp.embedding, MTP_HEAD: self.mtp.head}
        prefix = f"model.layers.{self.config.num_hidden_layers}."
        return own.get(spec.name.removeprefix(prefix), True)

    def shards(self) -> Iterator[Shard]:
        """Yield this rank's part of every tensor that has a place in the model, in the order of `tensor_specs`."""
        return (shard for shard in map(self.shard, tensor_specs(self.config)) if shard is not None)

    def shard(self, spec: TensorSpec) -> Shard | None:
        """Return this rank's part of a tensor, or None."""
        if spec.parameter is None or not self.loads(spec) or not self.holds(spec.parameter):
            return None
        if spec.expert is not None:
            if spec.expert not in self.experts:
                return None
            return Shard(replace(spec, expert=self.experts.index(spec.expert)))
        kept = self.slice_of(spec.parameter, spec.shape)
        if kept is None:
            return Shard(spec)
        shape = (*spec.shape[: kept.dim], kept.size, *spec.shape[kept.dim + 1 :])
        part = spec.row // spec.shape[0]  # gate rows are the first part of a parameter, up rows the second
        return Shard(replace(spec, shape=shape, row=part * shape[0], scale_row=part * blocks(shape[0])), kept)


def _rule(name: str) -> tuple[str | None, int]:
    """Return the part of the model that decides whether a parameter is split, and the split dimension."""
    return _local_rule(re.sub(r"^(layers\.\d+|mtp\.block|mtp)\.", "", name))


@cache
def _local_rule(name: str) -> tuple[str | None, int]:
    for pattern, part, dim in _TABLE:
        if re.fullmatch(pattern, name):
            return part, dim
    return None, 0
