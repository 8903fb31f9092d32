"""Types that several operations share: operands, the order of experts' rows, caches, and split-KV plans.

The operations' modules, all backends and the model import them from here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch


class Quantized(NamedTuple):
    """FP8 values and their scales, the operands of the GEMMs."""

    values: torch.Tensor  # [..., D] float8_e4m3fn
    scales: torch.Tensor  # [..., ceil(D / 128)] fp32


class Normed(NamedTuple):
    """Outputs of the fused residual-add, RMSNorm and FP8 quantisation."""

    total: torch.Tensor  # [T, D]: the input of the norm, x or x + residual
    rows: torch.Tensor  # [T, D]: the normed rows in x's dtype
    quantized: Quantized  # the normed rows in FP8


class ExpertGroups(NamedTuple):
    """The order of the T * k (token, expert) pairs when they are sorted by expert. Made on the device, without waiting for it."""

    sorted_token_ids: torch.Tensor  # int32 [T * k]: the token of each sorted row
    inverse_permutation: torch.Tensor  # int32 [T, k]: the sorted row of each pair
    offsets: torch.Tensor  # int32 [E + 1]: expert e has the sorted rows offsets[e] to offsets[e + 1]


class ExpertChoice(NamedTuple):
    """The options of `route` (routing.py)."""

    topk: int
    num_groups: int
    topk_groups: int
    normalise: bool
    scale: float


class ExpertOutputs(NamedTuple):
    """The operands of `combine_experts` (routing.py)."""

    rows: torch.Tensor  # [T * k, D], sorted by expert
    groups: ExpertGroups
    weights: torch.Tensor  # fp32 [T, k]
    shared: torch.Tensor | None  # [T, D]


class GroupedRows(NamedTuple):
    """The arguments of `grouped_gemm` (grouped_gemm.py)."""

    a: torch.Tensor | Quantized
    weight: torch.Tensor
    offsets: torch.Tensor
    weight_scale: torch.Tensor | None
    sorted_token_ids: torch.Tensor | None
    expected_m: int
    out: torch.Tensor  # written in place
    slots: torch.Tensor | None = None

    @property
    def experts(self) -> int:
        """The number of logical experts, which decides tiles and splits; not the number of weights that `slots` leaves."""
        return len(self.offsets) - 1

    def gathered(self, part: slice = slice(None)) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return these sorted rows, and their scales if they are in FP8."""
        values, scales = self.a if isinstance(self.a, Quantized) else (self.a, None)
        rows: torch.Tensor | slice = part if self.sorted_token_ids is None else self.sorted_token_ids[part]
        return values[rows], None if scales is None else scales[rows]


LATENT, INDEX = range(2)  # the caches of a layer


class Stamp(NamedTuple):
    """The stamps that a launch stores with the entries that it writes: ``column[slots] = values``."""

    column: torch.Tensor  # int32 [S], one stamp per slot
    values: torch.Tensor  # int32 [T]


class Norms(NamedTuple):
    """The fp32 weights of the norms, and the epsilons added to the mean square or the variance."""

    query: torch.Tensor  # [Q], RMSNorm
    latent: torch.Tensor  # [L], RMSNorm
    key: torch.Tensor  # [D], LayerNorm
    key_bias: torch.Tensor  # [D]
    eps: float  # of both RMSNorms
    key_eps: float


class Fp32Projection(NamedTuple):
    """scale * x W^T in fp32, as `fp32_linear` computes it."""

    x: torch.Tensor  # [T, hidden]
    weight: torch.Tensor  # fp32 [N, hidden]
    scale: float


class Caches(NamedTuple):
    """The FP8 caches of a layer, in the layouts of cache_write.py, and where the new tokens' entries go."""

    latent: torch.Tensor  # uint8 [P, page, 1, L + L/128 * 4 + 2R]
    keys: torch.Tensor  # uint8 [P, page, 1, D + 4], of the index keys
    slots: torch.Tensor  # int64 [T], all different
    latent_stamp: Stamp | None = None  # stored with the entries (cache_stamps.py)
    key_stamp: Stamp | None = None


class NewEntries(NamedTuple):
    """The arguments of `norm_and_cache` (norm_and_cache.py)."""

    query: torch.Tensor
    kv: torch.Tensor
    keys: torch.Tensor
    norms: Norms
    cos: torch.Tensor
    sin: torch.Tensor
    caches: Caches
    interleaved: bool
    ue8m0: bool
    projection: Fp32Projection | None


class IndexerOperands(NamedTuple):
    """The arguments of `indexer_logits` (indexer_logits.py)."""

    q: torch.Tensor
    k: torch.Tensor
    weights: torch.Tensor
    starts: torch.Tensor
    ends: torch.Tensor
    k_scale: torch.Tensor | None


class PagedIndexerOperands(NamedTuple):
    """The arguments of `paged_indexer_logits` (indexer_logits.py)."""

    q: torch.Tensor
    cache: torch.Tensor
    weights: torch.Tensor
    block_table: torch.Tensor
    lengths: torch.Tensor
    max_context: int


class Selection(NamedTuple):
    """The arguments of `select_topk_slots` (select_topk.py). Without a block table, positions are selected."""

    logits: torch.Tensor
    starts: torch.Tensor | None
    ends: torch.Tensor
    k: int
    block_table: torch.Tensor | None = None
    page_size: int = 1
    record: torch.Tensor | None = None


class SparseAttention(NamedTuple):
    """The arguments of `sparse_mla_prefill`, and of `sparse_mla_decode` without its plan."""

    q: torch.Tensor
    latents: torch.Tensor
    indices: torch.Tensor
    softmax_scale: float
    value_dim: int
    topk_length: torch.Tensor | None
    attn_sink: torch.Tensor | None

    def as_prefill(self) -> "SparseAttention":
        """Return the arguments of `sparse_mla_prefill` for the B * s_q queries of a decode."""
        q, latents, indices, softmax_scale, value_dim, lengths, attn_sink = self
        if latents.dtype != torch.uint8:
            latents = latents.reshape(-1, 1, q.shape[3])  # a copy if pages lie apart
        if lengths is not None:
            lengths = lengths.repeat_interleave(q.shape[1])
        queries, selected = q.flatten(0, 1), indices.flatten(0, 1)[:, None]
        return SparseAttention(queries, latents, selected, softmax_scale, value_dim, lengths, attn_sink)


@dataclass(frozen=True)
class SplitPlan:
    """A division of queries and keys among CTAs (Flash-Decoding, 2023; the name is FlashMLA's).

    A planning kernel fills the tensors once a step, and all layers share them. Valid for every call with the same lengths, number
    of queries and rows.
    """

    parts: torch.Tensor  # int32 [parts, 8]: `struct Part` of cuda/attention/problem.cuh
    split_offset: torch.Tensor  # int32 [queries + 1]: the first split of each query
    rows: int  # query rows that share keys: the heads, times the new tokens in dense decode

    def check(self, queries: int, rows: int) -> None:
        """Raise a ValueError unless the plan was made for this many queries and rows."""
        if (self.split_offset.shape[0] - 1, self.rows) != (queries, rows):
            raise ValueError(
                f"plan is for {self.split_offset.shape[0] - 1} queries of {self.rows} rows; "
                f"expected one for {queries} queries of {rows} rows"
            )
