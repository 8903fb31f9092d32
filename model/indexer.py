"""The lightning indexer: inexpensive scores that decide which tokens each query attends to.

Source: DeepSeek-V3.2 paper, section 2.1. Its RoPE is half-split and covers the first dims of a head; MLA's is interleaved and
covers the last.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..kernels.cache_write import gather_index_keys, write_index_cache
from ..kernels.fp32_ops import fp32_linear, layer_norm
from ..kernels.hadamard import rotate_quantize
from ..kernels.indexer_logits import indexer_logits, paged_indexer_logits
from ..kernels.indexer_topk import rows_at_a_time
from ..kernels.reference.rope import rotate_index
from ..kernels.select_topk import select_topk, select_topk_slots
from ..kernels.types import INDEX, Fp32Projection, Quantized
from .config import ModelConfig
from .layers import Compute, Linear, parameter
from .metadata import PAGE_SIZE, AttentionMetadata, LayerCache, Prefill, Selection
from .profiling import layer_part, profiler_range
from .stages import stages

NORM_EPS = 1e-6


class LayerNorm(nn.Module):
    """LayerNorm with fp32 weight and bias, computed in fp32, then cast."""

    def __init__(self, width: int, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.weight = parameter(width, dtype=torch.float32, device=compute.device)
        self.bias = parameter(width, dtype=torch.float32, device=compute.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, self.weight, self.bias, NORM_EPS, backend=self.compute.backend)


class Fp32Linear(nn.Module):
    """A small projection that stays in fp32 in every precision, because its result decides a selection."""

    def __init__(self, inputs: int, outputs: int, compute: Compute) -> None:
        super().__init__()
        self.compute = compute
        self.weight = parameter(outputs, inputs, dtype=torch.float32, device=compute.device)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """x [T, inputs] -> fp32 [T, outputs], times scale."""
        return fp32_linear(x, self.weight, scale, backend=self.compute.fp32_backend)


class IndexQueries(NamedTuple):
    """Index queries of T tokens."""

    q: torch.Tensor  # [T, H_i, D] rotated; e4m3 in fp8 precision
    weights: torch.Tensor  # fp32 [T, H_i], the queries' FP8 scales and H_i^-0.5 * D^-0.5 included


class Indexer(nn.Module):
    """logits[t, s] = sum over heads of weights[t, h] * relu(q[t, h] . k[s]); each query selects the index_topk best."""

    def __init__(self, config: ModelConfig, compute: Compute, layer: int) -> None:
        super().__init__()
        self.compute = compute
        self.layer = layer
        self.heads, self.head_dim = config.index_n_heads, config.index_head_dim
        self.topk = config.index_topk
        self.interleaved = config.indexer_rope_interleave
        self.wq_b = Linear(config.q_lora_rank, self.heads * self.head_dim, compute)
        self.wk = Linear(config.hidden_size, self.head_dim, compute)
        self.k_norm = LayerNorm(self.head_dim, compute)
        self.weights_proj = Fp32Linear(config.hidden_size, self.heads, compute)
        self.weights_scale = self.heads**-0.5 * self.head_dim**-0.5

    def write_keys(
        self, keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, metadata: AttentionMetadata, cache: LayerCache
    ) -> None:
        """Cache the new tokens' index keys (wk's outputs). Needed even while every context fits: later tokens will score them."""
        keys = self.k_norm(keys)
        stamp, backend = metadata.stamp(cache, self.layer, INDEX), self.compute.backend
        write_index_cache(keys, cos, sin, cache.index, metadata.slots, self.interleaved, stamp, backend=backend)

    def weights_projection(self, x: torch.Tensor) -> Fp32Projection:
        """Return the projection of x [T, hidden] to the heads' weights."""
        return Fp32Projection(x, self.weights_proj.weight, self.weights_scale)

    @layer_part("indexer")
    def queries(
        self,
        x: torch.Tensor,
        q: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        weights: torch.Tensor | None = None,
    ) -> IndexQueries:
        """Rotate and quantise index queries: x [T, hidden]; q [T, H_i * D], wq_b's outputs; the heads' weights, if known."""
        q = q.unflatten(1, (self.heads, self.head_dim))
        if weights is None:
            weights = self.weights_proj(x, self.weights_scale)
        stages(self.layer, index_query_proj=q, index_weights=weights)
        if not self.compute.quantized:
            # The Hadamard rotation changes no dot product, so precisions without quantisation skip it.
            rotated_only = rotate_index(q, cos, sin, self.interleaved)
            stages(self.layer, index_query=rotated_only)
            return IndexQueries(rotated_only, weights)
        rotated = rotate_quantize(
            q, cos, sin, self.interleaved, self.compute.ue8m0, weights, backend=self.compute.backend
        )
        assert rotated.weights is not None
        stages(self.layer, index_query=Quantized(rotated.values, rotated.scales))
        return IndexQueries(rotated.values, rotated.weights)

    def select_decodes(self, queries: IndexQueries | None, metadata: AttentionMetadata, cache: LayerCache) -> Selection:
        """Select for each decode, [B, K]. queries None: every context fits in index_topk."""
        _, lengths = metadata.of_decodes
        if queries is None:
            positions = torch.arange(metadata.max_context, dtype=torch.int32, device=lengths.device)
            return Selection(torch.where(positions < lengths[:, None], positions, -1))
        logits = self._decode_logits(queries, metadata, cache)
        return self._best(logits, None, lengths, metadata.on_selection is not None)

    def select_decode_slots(
        self, queries: IndexQueries, metadata: AttentionMetadata, cache: LayerCache
    ) -> torch.Tensor:
        """Make the same selection as cache slots, int32 [B, K], which the top-k kernel writes directly."""
        table, lengths = metadata.of_decodes
        logits = self._decode_logits(queries, metadata, cache)
        with profiler_range(f"layer {self.layer}/selection"):
            return select_topk_slots(
                logits,
                None,
                lengths,
                self.topk,
                table,
                PAGE_SIZE,
                metadata.selections_of(self.layer),
                backend=self.compute.backend,
            )

    @layer_part("indexer")
    def _decode_logits(self, queries: IndexQueries, metadata: AttentionMetadata, cache: LayerCache) -> torch.Tensor:
        """Score each decode's context, fp32 [B, S]."""
        count = metadata.decodes
        logits = paged_indexer_logits(
            queries.q[:count, None],
            cache.index,
            queries.weights[:count, None],
            *metadata.of_decodes,
            metadata.max_context,
            backend=self.compute.backend,
        )
        stages(self.layer, slice(0, count), index_scores=logits)
        return logits

    def select_prefill(
        self, queries: IndexQueries, prefill: Prefill, cache: LayerCache, with_scores: bool = False
    ) -> Selection:
        """Select for each token of a prompt chunk, [t, K]."""
        keys, scales = gather_index_keys(cache.index, prefill.context_slots, backend=self.compute.backend)
        q, weights = queries.q[prefill.rows], queries.weights[prefill.rows]
        starts, ends = prefill.starts, prefill.ends
        step = rows_at_a_time(prefill.length)
        parts = []
        for first in range(0, q.shape[0], step):
            rows = slice(first, first + step)
            with profiler_range(f"layer {self.layer}/indexer"):
                logits = indexer_logits(
                    q[rows], keys, weights[rows], starts[rows], ends[rows], scales, backend=self.compute.backend
                )
            of_step = slice(prefill.rows.start + first, prefill.rows.start + first + len(logits))
            parts.append(self._best(logits, starts[rows], ends[rows], with_scores))
            stages(self.layer, of_step, index_scores=logits, selection=parts[-1].positions)
        if len(parts) == 1:
            return parts[0]
        positions = torch.cat([part.positions for part in parts])
        scores = [part.scores for part in parts if part.scores is not None]
        return Selection(positions, torch.cat(scores) if scores else None)

    @layer_part("selection")
    def _best(
        self, logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, with_scores: bool
    ) -> Selection:
        positions = select_topk(logits, starts, ends, self.topk, backend=self.compute.backend)
        return Selection(positions, logits.gather(1, positions.clamp_min(0).long()) if with_scores else None)
