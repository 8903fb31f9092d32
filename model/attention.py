"""Multi-head latent attention (MLA) with DeepSeek Sparse Attention (DSA).

The cache holds one latent (512 dims) and one rotated key part (64 dims) per token, which all heads share. Two forms compute the
same attention. The multi-head form (MHA) up-projects latents to keys and values of each head. The absorbed form (MQA) applies
the up-projection to queries and outputs instead and attends to the latents themselves.
Source: DeepSeek-V2 paper, section 2.1; V3.2 paper, section 2.1.
"""

import torch

from ..kernels.cache_write import write_latent_cache
from ..kernels.norm_and_cache import norm_and_cache
from ..kernels.select_topk import positions_to_slots
from ..kernels.sparse_mla_decode import sparse_mla_decode
from ..kernels.types import INDEX, LATENT, Caches, Norms
from .config import ModelConfig
from .experiment import Experiments
from .indexer import NORM_EPS, Indexer, IndexQueries
from .layers import Compute, KVUpProjection, Linear, Operand, RMSNorm, joined, projections
from .metadata import PAGE_SIZE, AttentionMetadata, LayerCache
from .prefill_attention import PrefillAttention
from .prefill_form import PrefillForm
from .profiling import profiler_range
from .stages import is_traced, stages

LATENT_NORM_EPS = 1e-6  # for compressed queries and keys; rms_norm_eps is for the residual stream
# In steps of up to this many decodes the projection of queries runs beside the selector, which leaves most of the bandwidth idle.
LATE_QUERIES = 16


class MultiHeadLatentAttention(PrefillAttention):
    """One layer's attention: projections, writes to both caches, selection, and the form of attention that suits the sequence."""

    def __init__(self, config: ModelConfig, compute: Compute, layer: int) -> None:
        super().__init__()
        self.compute = compute
        self.layer = layer
        self.heads = config.num_attention_heads
        self.nope, self.rope, self.value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        self.latent_dim = config.kv_lora_rank
        self.topk = config.index_topk
        self.softmax_scale = config.softmax_scale
        hidden = config.hidden_size
        self.q_a_proj = Linear(hidden, config.q_lora_rank, compute)
        self.q_a_layernorm = RMSNorm(config.q_lora_rank, LATENT_NORM_EPS, compute)
        self.q_b_proj = Linear(config.q_lora_rank, self.heads * config.qk_head_dim, compute)
        self.kv_a_proj_with_mqa = Linear(hidden, self.latent_dim + self.rope, compute)
        self.kv_a_layernorm = RMSNorm(self.latent_dim, LATENT_NORM_EPS, compute)
        self.kv_b_proj = KVUpProjection(config, compute)
        self.o_proj = Linear(self.heads * self.value, hidden, compute)
        self.indexer = Indexer(config, compute, layer)
        self.experiments = Experiments(config, self.indexer)
        self.form = PrefillForm(config, compute)
        self.prefill_sharing = None

    def forward(
        self,
        x: torch.Tensor,
        operand: Operand,
        cos: torch.Tensor,
        sin: torch.Tensor,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """x [T, hidden] normed, and the same as an operand; cos, sin [T, rope/2] -> [T, hidden]."""
        indexer = self.indexer
        with profiler_range(f"layer {self.layer}/projections"):
            longest = max((metadata.max_context, *metadata.context_lengths[metadata.decodes :]))
            selects = longest > self.topk or bool(metadata.policies)
            compressed, kv, keys = projections(operand, self.q_a_proj, self.kv_a_proj_with_mqa, indexer.wk)
            qr, weights = self._norm_and_cache(compressed, kv, keys, x if selects else None, cos, sin, metadata, cache)
            q = index_q = None
            if selects and self._projects_late(metadata):
                index_q = indexer.wq_b(qr)
            elif selects:
                q, index_q = projections(qr, self.q_b_proj, indexer.wq_b)
            else:
                q = self.q_b_proj(qr)
        queries = None if index_q is None else indexer.queries(x, index_q, cos, sin, weights)
        q = None if q is None else q.unflatten(1, (self.heads, -1))
        stages(self.layer, q_a_proj=compressed, kv_a_proj=kv, index_key_proj=keys, compressed_query=qr, query=q)

        parts = []
        if metadata.decodes:
            latents = self._decode(q, qr, cos, sin, queries, metadata, cache)
            parts.append(self._values(latents, slice(0, metadata.decodes)))
        for prefill in metadata.prefills:
            assert q is not None
            rows = prefill.rows
            parts.append(self._prefill(q[rows], cos[rows], sin[rows], queries, prefill, metadata, cache))
        with profiler_range(f"layer {self.layer}/output projection"):
            return self.o_proj(joined(parts))

    def _norm_and_cache(
        self,
        compressed: torch.Tensor,
        kv: torch.Tensor,
        keys: torch.Tensor,
        x: torch.Tensor | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> tuple[Operand, torch.Tensor | None]:
        """The compressed query [T, Q], normed, as an operand; and the index heads' weights if they come with it, from x.

        Writes the cache entries of kv [T, L + R] and keys [T, D].
        """
        indexer, norm, query_norm = self.indexer, self.kv_a_layernorm, self.q_a_layernorm
        stamps = metadata.stamp(cache, self.layer, LATENT), metadata.stamp(cache, self.layer, INDEX)
        if self.compute.quantized:
            norms = Norms(
                query_norm.weight, norm.weight, indexer.k_norm.weight, indexer.k_norm.bias, norm.eps, NORM_EPS
            )
            return norm_and_cache(
                compressed,
                kv,
                keys,
                norms,
                cos,
                sin,
                Caches(cache.latent, cache.index, metadata.slots, *stamps),
                indexer.interleaved,
                self.compute.ue8m0,
                None if x is None else indexer.weights_projection(x),
                backend=self.compute.backend,
            )
        write_latent_cache(
            kv, norm.weight, norm.eps, cos, sin, cache.latent, metadata.slots, stamps[0], backend=self.compute.backend
        )
        indexer.write_keys(keys, cos, sin, metadata, cache)
        return query_norm(compressed), None

    def _selects_slots(self, metadata: AttentionMetadata) -> bool:
        """Whether the decodes' selection is made as slots, because nothing but attention needs it."""
        return metadata.max_context > self.topk and metadata.on_selection is None and not metadata.experiments

    def _projects_late(self, metadata: AttentionMetadata) -> bool:
        """Whether queries are projected after the selection, whose last kernel begins after their input is complete."""
        few = len(metadata.query_lengths) == metadata.decodes <= LATE_QUERIES
        return few and self.compute.quantized and self._selects_slots(metadata) and not is_traced()

    def _decode(
        self,
        q: torch.Tensor | None,
        qr: Operand,
        cos: torch.Tensor,
        sin: torch.Tensor,
        queries: IndexQueries | None,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """Absorbed attention of the decodes: q [B, H, nope + rope], or None to project it from qr -> attended latents [B, H, L]."""
        count = metadata.decodes
        rows = slice(0, count)
        if queries is None or not self._selects_slots(metadata):
            assert q is not None
            all_selected = metadata.max_context <= self.topk
            q = self._absorb(q[rows], cos[rows], sin[rows], rows)
            selection = self.indexer.select_decodes(None if all_selected else queries, metadata, cache)
            metadata.report(self.layer, rows, selection)
            positions = self.experiments.replace(selection.positions, q, queries, metadata, cache)
            slots = positions_to_slots(positions, metadata.block_table[:count], PAGE_SIZE)
        else:
            slots = self.indexer.select_decode_slots(queries, metadata, cache)
            if q is None:
                q = self.q_b_proj(qr, beside_previous=True).unflatten(1, (self.heads, -1))
            # After the selection: while it still runs, which reads little, this kernel or the projection requests weights.
            q = self._absorb(q[rows], cos[rows], sin[rows], rows)
        with profiler_range(f"layer {self.layer}/attention"):
            latents, _ = sparse_mla_decode(
                q[:, None],
                cache.latent,
                slots[:, None],
                self.softmax_scale,
                self.latent_dim,
                plan=metadata.decode_plan,
                backend=self.compute.backend,
            )
        return latents[:, 0]
