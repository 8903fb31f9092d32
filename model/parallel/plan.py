"""What each rank of a job keeps of a model: parameter pattern -> how it is shared.

Heads, dense MLPs, shared experts and the vocabulary are split (tensor parallel), routed experts are dealt out whole (expert
parallel); norms, the router and the weights of indexer and latent projections are on every rank. A split never cuts a
128x128 block of FP8 scales; what does not divide so is whole, and counted once in sums.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from ..config import FP8_BLOCK, ModelConfig, blocks
from ..errors import ConfigError
from ..weight_map import Piece, pieces

SIZES = (1, 2, 4, 8)  # ranks

# Our parameters (without layer prefix), the part that decides whether they are split, and the dimension that is. The rest is
# whole on every rank.
_TABLE = (
    (r"(embed_tokens|lm_head)\.weight", "vocabulary", 0),
    (r"self_attn\.(q_b_proj|kv_b_proj)\..+", "heads", 0),
    (r"self_attn\.o_proj\..+", "heads", 1),
    (r"mlp\.experts\..+", "experts", 0),
    (r"mlp\.shared_experts\.gate_up_proj\..+", "shared expert", 0),
    (r"mlp\.shared_experts\.down_proj\..+", "shared expert", 1),
    (r"mlp\.gate_up_proj\..+", "dense MLPs", 0),
    (r"mlp\.down_proj\..+", "dense MLPs", 1),
)


@dataclass(frozen=True)
class Cut:
    """Elements [start, stop) of one dimension of a tensor."""

    dim: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def in_blocks(self) -> "Cut":
        """The same of the tensor's scales."""
        return Cut(self.dim, self.start // FP8_BLOCK, blocks(self.stop))


@dataclass(frozen=True)
class Share:
    """What a rank keeps of one tensor of the checkpoint."""

    piece: Piece  # with the shape that is kept, and its place in this rank's parameter
    cut: Cut | None = None  # of the stored tensor; None: all of it


@dataclass(frozen=True)
class Plan:
    """What rank `rank` of `size` keeps of a model."""

    config: ModelConfig
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ConfigError(f"the model would run on {self.size} ranks; it can on 1, 2, 4 or 8")
        if self.size > self.config.n_routed_experts:
            raise ConfigError(
                f"{self.size} ranks share {self.config.n_routed_experts} experts; wanted one each at least"
            )
        assert 0 <= self.rank < self.size

    @cached_property
    def split(self) -> dict[str, bool]:
        """Which parts of the model are split: those that divide, with whole 128-blocks."""
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
        """This rank's routed experts, one of every `size`.

        A token's experts are of a few groups of neighbours: dealt out in blocks, they would be on a few ranks.
        """
        return range(self.rank, self.config.n_routed_experts, self.size)

    def describe(self) -> str:
        """What is split and what is not, in one line."""
        config = self.config
        whole = [part for part in ("vocabulary", "heads", "dense MLPs") if not self.split[part]]
        text = f"{self.size} ranks, {len(self.experts)} of {config.n_routed_experts} experts on each"
        if self.split["heads"]:
            text += f", {config.num_attention_heads // self.size} of {config.num_attention_heads} heads"
        if whole:
            text += f"; not divisible, so whole on every rank: {', '.join(whole)}"
        if config.n_shared_experts and not self.split["shared expert"]:
            text += "; not divisible, so on rank 0 alone: shared expert"
        return text

    def cut(self, name: str, shape: Sequence[int]) -> Cut | None:
        """What this rank keeps of a parameter, of one of its pieces, or of their scales, of this shape; None: all."""
        part, dim = _rule(name)
        if part is None or not self.split[part] or self.size == 1:
            return None
        if part == "experts":
            return Cut(0, 0, len(self.experts))  # of the stacked ones; each expert is kept whole, or not at all
        share = shape[dim] // self.size
        return Cut(dim, share * self.rank, share * (self.rank + 1))

    def holds(self, name: str) -> bool:
        """False for what is not split and is counted in a sum: rank 0 alone keeps it."""
        return _rule(name)[0] != "shared expert" or self.split["shared expert"] or self.rank == 0

    def shares(self) -> Iterator[Share]:
        """This rank's part of every tensor of the checkpoint that has a place in the model, in reading order."""
        return (share for share in map(self.share, pieces(self.config)) if share is not None)

    def share(self, piece: Piece) -> Share | None:
        """What this rank keeps of a tensor; None: nothing."""
        if piece.parameter is None or not self.holds(piece.parameter):
            return None
        if piece.expert is not None:
            if piece.expert not in self.experts:
                return None
            return Share(replace(piece, expert=self.experts.index(piece.expert)))
        cut = self.cut(piece.parameter, piece.shape)
        if cut is None:
            return Share(piece)
        shape = (*piece.shape[: cut.dim], cut.size, *piece.shape[cut.dim + 1 :])
        part = piece.row // piece.shape[0]  # gate rows are a parameter's first part, up rows its second
        return Share(replace(piece, shape=shape, row=part * shape[0], scale_row=part * blocks(shape[0])), cut)


def _rule(name: str) -> tuple[str | None, int]:
    """The part of the model that decides on a parameter's split, and the dimension."""
    return _local_rule(re.sub(r"^layers\.\d+\.", "", name))


@cache
def _local_rule(name: str) -> tuple[str | None, int]:
    for pattern, part, dim in _TABLE:
        if re.fullmatch(pattern, name):
            return part, dim
    return None, 0
