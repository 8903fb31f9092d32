"""Multi-head latent attention (MLA) with DeepSeek Sparse Attention (DSA).

The cache holds one latent (512 dims) and one rotated key part (64 dims) per token, which all heads share. Two forms compute the
same attention. The multi-head form (MHA) up-projects latents to keys and values of each head. The absorbed form (MQA) applies
the up-projection to queries and outputs instead and attends to the latents themselves.
Source: DeepSeek-V2 paper, section 2.1; V3.2 paper, section 2.1.
"""

import torch
from torch import nn

from ..kernels.cache_write import gather_latents, write_latent_cache
from ..kernels.dense_mla import mha_prefill
from ..kernels.kv_up_projection import absorb_queries, expand_quantize, expand_values, rotate_queries
from ..kernels.norm_and_cache import norm_and_cache
from ..kernels.select_topk import positions_to_slots
from ..kernels.sparse_mla_decode import sparse_mla_decode
from ..kernels.sparse_mla_prefill import attends_as_decode, converts_context, sparse_mla_prefill
from ..kernels.types import INDEX, LATENT, Caches, Norms
from .config import ModelConfig
from .experiment import Experiments
from .indexer import NORM_EPS, Indexer, IndexQueries
from .launch_order import Later, LaunchOrder
from .layers import Compute, KVUpProjection, Linear, Operand, RMSNorm, joined, projections
from .metadata import PAGE_SIZE, AttentionMetadata, LayerCache, Prefill, Selection
from .prefill_form import PrefillForm
from .profiling import layer_part, profiler_range
from .stages import stages

LATENT_NORM_EPS = 1e-6  # of the norms of compressed queries and keys; rms_norm_eps belongs to the residual stream


class MultiHeadLatentAttention(nn.Module):
    """One layer's attention: projections, writes to both caches, selection, and the form of attention that suits each sequence."""

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
        self.partial = False  # whether it has some of the heads, whose outputs ranks add up

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
        selects = metadata.longest_context > self.topk or bool(metadata.policies)
        order = LaunchOrder.of(metadata, self.compute, self._selects_slots(metadata))
        with profiler_range(f"layer {self.layer}/projections"):
            compressed, kv, keys = projections(operand, self.q_a_proj, self.kv_a_proj_with_mqa, indexer.wk)
            qr, weights = self._norm_and_cache(compressed, kv, keys, x if selects else None, cos, sin, metadata, cache)
            q, index_q = order.project(qr, self.heads, self.q_b_proj, indexer.wq_b if selects else None)
        queries = None if index_q is None else indexer.queries(x, index_q, cos, sin, weights)
        stages(self.layer, q_a_proj=compressed, kv_a_proj=kv, index_key_proj=keys, compressed_query=qr, query=q)

        values = []
        if metadata.decodes:
            values.append(self._decode(q, cos, sin, queries, order, metadata, cache))
        for prefill in metadata.prefills:
            rows = prefill.rows
            values.append(self._prefill(q()[rows], cos[rows], sin[rows], queries, prefill, metadata, cache))
        metadata.rows.report(self.layer)
        with profiler_range(f"layer {self.layer}/output projection"):
            return self.o_proj(joined(values))

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
        """Write the new tokens' entries of both caches, from kv [T, L + R] and keys [T, D].

        Returns the compressed query [T, Q], normed, as an operand; and the index heads' weights where the same launch computes
        them from x.
        """
        indexer, norm, query_norm = self.indexer, self.kv_a_layernorm, self.q_a_layernorm
        kv, keys, cos, sin, step = metadata.rows.entries(kv, keys, cos, sin, metadata)  # of all ranks
        stamps = step.stamp(cache, self.layer, LATENT), step.stamp(cache, self.layer, INDEX)
        if self.compute.quantized:
            k_norm = indexer.k_norm
            norms = Norms(query_norm.weight, norm.weight, k_norm.weight, k_norm.bias, norm.eps, NORM_EPS)
            return norm_and_cache(
                compressed,
                kv,
                keys,
                norms,
                cos,
                sin,
                Caches(cache.latent, cache.index, step.slots, *stamps),
                indexer.interleaved,
                self.compute.ue8m0,
                None if x is None else indexer.weights_projection(x),
                backend=self.compute.backend,
            )
        write_latent_cache(
            kv, norm.weight, norm.eps, cos, sin, cache.latent, step.slots, stamps[0], backend=self.compute.backend
        )
        indexer.write_keys(keys, cos, sin, step, cache)
        return query_norm(compressed), None

    def _selects_slots(self, metadata: AttentionMetadata) -> bool:
        """Decide whether the top-k kernel writes the decodes' selection as slots: only attention needs it then."""
        return metadata.max_context > self.topk and metadata.on_selection is None and not metadata.experiments

    def _decode(
        self,
        q: Later,
        cos: torch.Tensor,
        sin: torch.Tensor,
        queries: IndexQueries | None,
        order: LaunchOrder,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> Operand:
        """Attention of the decodes in the absorbed form: q [T, H, nope + rope] -> the heads' values [B, H * v], for o_proj."""
        rows = slice(0, metadata.decodes)
        absorbed = order.absorb(lambda: self._absorb(q()[rows], cos[rows], sin[rows], rows))
        if queries is not None and self._selects_slots(metadata):
            slots = self.indexer.select_decode_slots(queries, metadata, cache)
        else:
            everything = metadata.max_context <= self.topk
            selection = self.indexer.select_decodes(None if everything else queries, metadata, cache)
            metadata.report(self.layer, rows, selection)
            positions = self.experiments.replace(selection.positions, absorbed, queries, metadata, cache)
            slots = positions_to_slots(positions, metadata.of_decodes[0], PAGE_SIZE)
        with profiler_range(f"layer {self.layer}/attention"):
            latents, _ = sparse_mla_decode(
                absorbed()[:, None],
                cache.latent,
                slots[:, None],
                self.softmax_scale,
                self.latent_dim,
                plan=metadata.decode_plan,
                backend=self.compute.backend,
            )
        return self._values(latents[:, 0], rows)

    def _prefill(
        self,
        q: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        queries: IndexQueries | None,
        prefill: Prefill,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> Operand:
        """Attention of one prompt chunk: q [t, H, nope + rope] -> the heads' values [t, H * v], for o_proj.

        Keys are read from the cache, in its precision.
        """
        if self.form.is_multi_head(prefill, q):
            selection = self._choose(lambda: self._absorb(q, cos, sin, prefill.rows), queries, prefill, metadata, cache)
            return self._mha(q, cos, sin, prefill, cache, selection)
        absorbed = self._absorb(q, cos, sin, prefill.rows)
        selection = self._choose(lambda: absorbed, queries, prefill, metadata, cache)
        positions = prefill.causal_positions() if selection is None else selection.positions
        return self._values(self.attend_selected(absorbed, positions, prefill, cache), prefill.rows)

    def _choose(
        self,
        absorbed: Later,
        queries: IndexQueries | None,
        prefill: Prefill,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> Selection | None:
        """Choose and report the selection of each token of a prompt chunk, [t, K]. None: each selects its whole context."""
        if prefill.policy is not None:
            assert queries is not None
            return self.experiments.select(absorbed, queries, prefill, metadata, cache)
        watched = metadata.on_selection is not None
        if queries is None or prefill.length <= self.topk:
            if watched:
                metadata.report(self.layer, prefill.rows, Selection(prefill.causal_positions()))
            return None
        selection = metadata.rows.select(
            lambda part: self.indexer.select_prefill(queries, part, cache, watched), prefill
        )
        metadata.report(self.layer, prefill.rows, selection)
        return selection

    @layer_part("attention")
    def attend_selected(
        self, q: torch.Tensor, positions: torch.Tensor, prefill: Prefill, cache: LayerCache
    ) -> torch.Tensor:
        """Attend with absorbed queries q [t, H, L + rope] to context positions int32 [t, K] (-1: none) -> latents [t, H, L]."""
        kv, indices, backend = cache.latent, positions, self.compute.backend
        counts = None if prefill.policy is not None else prefill.selected_counts(positions.shape[1])
        if attends_as_decode(q, backend=backend):
            slots = torch.where(positions < 0, -1, prefill.context_slots[positions.clamp_min(0).long()]).int()
            scale, dim = self.softmax_scale, self.latent_dim
            latents, _ = sparse_mla_decode(q[:, None], kv, slots[:, None], scale, dim, counts, backend=backend)
            return latents[:, 0]
        is_fp8 = kv.dtype == torch.uint8
        if is_fp8 and converts_context(q, prefill.length, positions.shape[1], backend=backend):
            kv = gather_latents(kv, prefill.context_slots, self.latent_dim, q.dtype, backend=backend)[:, None]
        else:
            kv = kv if is_fp8 else kv.view(-1, 1, kv.shape[-1])
            indices = torch.where(positions < 0, -1, prefill.context_slots[positions.clamp_min(0).long()]).int()
        latents, _, _ = sparse_mla_prefill(
            q, kv, indices[:, None], self.softmax_scale, self.latent_dim, counts, backend=backend
        )
        return latents

    @layer_part("attention")
    def _mha(
        self,
        q: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        prefill: Prefill,
        cache: LayerCache,
        selection: Selection | None,
    ) -> Operand:
        """Attend in the multi-head form to the whole context, masked by `selection`, or causally if it is None -> heads' values."""
        mask = None if selection is None else selection.mask(prefill.length)
        context = gather_latents(
            cache.latent, prefill.context_slots, self.latent_dim, q.dtype, backend=self.compute.backend
        )
        latent, k_rope = context.split_with_sizes((self.latent_dim, self.rope), 1)
        k_nope, v = self.kv_b_proj(latent)
        q = rotate_queries(q, cos, sin, backend=self.compute.backend)
        stages(self.layer, prefill.rows, query_rope=q[..., self.nope :])
        k = torch.cat((k_nope, k_rope[:, None].expand(-1, self.heads, -1)), 2)
        values = mha_prefill(q, k, v, self.softmax_scale, mask, backend=self.compute.backend)
        stages(self.layer, prefill.rows, attention_heads=values)
        return self.compute.operand(values.flatten(1))

    @layer_part("attention")
    def _absorb(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: slice) -> torch.Tensor:
        """Absorb the key projection into queries: [q_nope @ Wk | rotated q_rope], [T, H, L + rope]."""
        wk, _ = self.kv_b_proj.halves()
        absorbed = absorb_queries(q, cos, sin, wk, backend=self.compute.backend)
        stages(self.layer, rows, query_rope=absorbed[..., self.latent_dim :])
        return absorbed

    @layer_part("attention")
    def _values(self, latents: torch.Tensor, rows: slice) -> Operand:
        """Project attended latents [t, H, L] to the heads' values [t, H * v], as an input of o_proj."""
        _, wv = self.kv_b_proj.halves()
        if self.compute.quantized:
            stages(self.layer, rows, attention_heads=lambda: torch.einsum("thl,hvl->thv", latents, wv))
            return expand_quantize(latents, wv, self.compute.ue8m0, backend=self.compute.backend)
        values = latents.new_empty(*latents.shape[:2], self.value)
        expand_values(latents, wv, values, backend=self.compute.backend)
        stages(self.layer, rows, attention_heads=values)
        return values.flatten(1)
