"""Multi-head latent attention (MLA) with DeepSeek Sparse Attention (DSA).

Every token leaves one latent (512 dims) and one rotated key part (64 dims) in the cache, shared by all heads. Two forms compute
the same attention: multi-head (MHA), which expands keys and values of each head, and absorbed (MQA), which folds the expansion
into the queries and outputs and reads the latents themselves. Source: DeepSeek-V2 paper, section 2.1; V3.2 paper, section 2.1.
"""

import torch
import torch.nn.functional as F
from torch import nn

from ..kernels.cache_write import gather_latents, write_latent_cache
from ..kernels.dense_mla import mha_prefill
from ..kernels.kv_up_projection import absorb_queries, expand_quantize, expand_values
from ..kernels.reference.rope import rotate_interleaved
from ..kernels.registry import choose_implementation
from ..kernels.select_topk import positions_to_slots
from ..kernels.sparse_mla_decode import sparse_mla_decode
from ..kernels.sparse_mla_prefill import sparse_mla_prefill
from .config import ModelConfig
from .indexer import Indexer, IndexQueries
from .layers import Compute, Linear, Operand, RMSNorm, parameter, projections
from .metadata import PAGE_SIZE, AttentionMetadata, LayerCache, Prefill, Selection

LATENT_NORM_EPS = 1e-6  # of the compressed queries and keys, whatever rms_norm_eps says of the residual stream

# Gathering one selected key costs plain PyTorch as much as this many multiply-adds (1.4 us a key against 70 G/s on two cores).
REFERENCE_GATHER_COST = 100_000


# Over bf16 rows, kernels with many heads need not convert each key again for each query. With 128 heads that saves about 0.3 us a
# query (kernels/README.md), for which the chunk's context is converted once, at about 1 ns a token.
MANY_HEADS, CONTEXT_A_QUERY = 64, 256


class KVUpProjection(nn.Module):
    """kv_b_proj, never quantised: its rows per head are [nope | v], read as Wk [H, nope, L] and Wv [H, v, L]."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.nope, self.value = config.qk_nope_head_dim, config.v_head_dim
        rows = self.heads * (self.nope + self.value)
        self.weight = parameter(rows, config.kv_lora_rank, dtype=compute.dtype, device=compute.device)

    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Wk [H, nope, L] and Wv [H, v, L]."""
        wk, wv = self.weight.unflatten(0, (self.heads, -1)).split((self.nope, self.value), 1)
        return wk, wv

    def forward(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """latent [S, L] -> k_nope [S, H, nope], v [S, H, v]."""
        expanded = F.linear(latent, self.weight).unflatten(1, (self.heads, -1))
        k_nope, v = expanded.split((self.nope, self.value), 2)
        return k_nope, v


class MultiHeadLatentAttention(nn.Module):
    """One layer's attention: projections, both caches, selection, and whichever form of attention fits the sequence."""

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
        self.indexer = Indexer(config, compute)

    def forward(
        self,
        x: torch.Tensor,
        operand: Operand,
        cos: torch.Tensor,
        sin: torch.Tensor,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """x [T, hidden] normed, the same as an operand; cos, sin [T, rope/2] -> [T, hidden]."""
        indexer, norm = self.indexer, self.kv_a_layernorm
        compressed, kv, keys = projections(operand, self.q_a_proj, self.kv_a_proj_with_mqa, indexer.wk)
        write_latent_cache(
            kv, norm.weight, norm.eps, cos, sin, cache.latent, metadata.slots, backend=self.compute.backend
        )
        indexer.write_keys(keys, cos, sin, metadata, cache)
        _, _, qr = self.q_a_layernorm.with_operand(compressed)
        longest = max((metadata.max_context, *metadata.context_lengths[metadata.decodes :]))
        queries = None
        if longest > self.topk:
            q, index_q = projections(qr, self.q_b_proj, indexer.wq_b)
            queries = indexer.queries(x, index_q, cos, sin)
        else:
            q = self.q_b_proj(qr)
        q = q.unflatten(1, (self.heads, -1))
        _, wv = self.kv_b_proj.halves()

        if metadata.decodes == q.shape[0] and self.compute.quantized:
            latents = self._decode(q, cos, sin, queries, metadata, cache)
            return self.o_proj(expand_quantize(latents, wv, self.compute.ue8m0, backend=self.compute.backend))
        out = q.new_empty(q.shape[0], self.heads, self.value)
        if metadata.decodes:
            out[: metadata.decodes] = expand_values(self._decode(q, cos, sin, queries, metadata, cache), wv)
        for prefill in metadata.prefills():
            rows = prefill.rows
            out[rows] = self._prefill(q[rows], cos[rows], sin[rows], queries, prefill, metadata, cache)
        return self.o_proj(self.compute.operand(out.flatten(1)))

    def _decode(
        self,
        q: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        queries: IndexQueries | None,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """The leading sequences' single tokens -> attended latents [B, H, L]."""
        count = metadata.decodes
        all_selected = metadata.max_context <= self.topk
        if all_selected or queries is None or metadata.on_selection is not None:
            selection = self.indexer.select_decodes(None if all_selected else queries, metadata, cache)
            if metadata.on_selection is not None:
                metadata.on_selection(self.layer, torch.arange(count), selection)
            slots = positions_to_slots(selection.positions, metadata.block_table[:count], PAGE_SIZE)
        else:
            slots = self.indexer.select_decode_slots(queries, metadata, cache)
        q = self._absorb(q[:count], cos[:count], sin[:count])
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

    def _prefill(
        self,
        q: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        queries: IndexQueries | None,
        prefill: Prefill,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """One sequence's prompt chunk -> [t, H, v]. Keys are read back from the cache, in its precision."""
        if queries is None or prefill.length <= self.topk:
            if metadata.on_selection is not None:
                self._report(metadata, prefill, Selection(_causal_positions(prefill, cache.latent.device)))
            return self._mha(q, cos, sin, prefill, cache, None)
        _, wv = self.kv_b_proj.halves()
        masked = self._masked_mha_is_cheaper(prefill, q)
        if metadata.on_selection is None and not masked:
            return expand_values(self.attend_best(self._absorb(q, cos, sin), queries, prefill, cache), wv)
        selection = self.indexer.select_prefill(queries, prefill, cache, metadata.on_selection is not None)
        if metadata.on_selection is not None:
            self._report(metadata, prefill, selection)
        if masked:
            return self._mha(q, cos, sin, prefill, cache, _selection_mask(selection.positions, prefill.length))
        latents = self.attend_selected(self._absorb(q, cos, sin), selection.positions, prefill, cache)
        return expand_values(latents, wv)

    def attend_best(self, q: torch.Tensor, queries: IndexQueries, prefill: Prefill, cache: LayerCache) -> torch.Tensor:
        """Absorbed queries q [t, H, L + rope] over what the indexer selects for them -> attended latents [t, H, L]."""
        return self.attend_selected(q, self.indexer.select_prefill(queries, prefill, cache).positions, prefill, cache)

    def attend_selected(
        self, q: torch.Tensor, positions: torch.Tensor, prefill: Prefill, cache: LayerCache
    ) -> torch.Tensor:
        """The same over given context positions, int32 [t, K], -1 for none."""
        kv, indices, backend = cache.latent, positions, self.compute.backend
        converts = kv.dtype == torch.uint8
        if converts and q.shape[1] >= MANY_HEADS and prefill.length <= CONTEXT_A_QUERY * q.shape[0]:
            kv = gather_latents(kv, prefill.context_slots, self.latent_dim, q.dtype, backend=backend)[:, None]
        else:
            kv = kv if converts else kv.view(-1, 1, kv.shape[-1])
            indices = torch.where(positions < 0, -1, prefill.context_slots[positions.clamp_min(0).long()]).int()
        latents, _, _ = sparse_mla_prefill(
            q, kv, indices[:, None], self.softmax_scale, self.latent_dim, backend=backend
        )
        return latents

    def _mha(
        self,
        q: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        prefill: Prefill,
        cache: LayerCache,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Multi-head form over the whole context: causal, or over `mask` [t, S]."""
        context = gather_latents(
            cache.latent, prefill.context_slots, self.latent_dim, q.dtype, backend=self.compute.backend
        )
        latent, k_rope = context.split((self.latent_dim, self.rope), 1)
        k_nope, v = self.kv_b_proj(latent)
        q_nope, q_rope = q.split((self.nope, self.rope), 2)
        q = torch.cat((q_nope, rotate_interleaved(q_rope, cos, sin)), 2)
        k = torch.cat((k_nope, k_rope[:, None].expand(-1, self.heads, -1)), 2)
        return mha_prefill(q, k, v, self.softmax_scale, mask, backend=self.compute.backend)

    def _absorb(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Queries against latents: [q_nope @ Wk | q_rope turned], [T, H, L + rope]."""
        wk, _ = self.kv_b_proj.halves()
        return absorb_queries(q, cos, sin, wk, backend=self.compute.backend)

    def _masked_mha_is_cheaper(self, prefill: Prefill, q: torch.Tensor) -> bool:
        """Without a compiled sparse kernel, masking a dense product beats gathering keys up to a few times index_topk."""
        if choose_implementation("sparse_mla_prefill", q.device, q.dtype, self.compute.backend).backend != "reference":
            return False
        chunk = prefill.length - prefill.start
        expand = self.heads * self.latent_dim * (self.nope + self.value) / chunk
        masked = prefill.length * (self.heads * (self.nope + self.rope + self.value) + expand)
        gathered = self.topk * (REFERENCE_GATHER_COST + self.heads * (2 * self.latent_dim + self.rope))
        return masked < gathered

    def _report(self, metadata: AttentionMetadata, prefill: Prefill, selection: Selection) -> None:
        assert metadata.on_selection is not None
        metadata.on_selection(self.layer, torch.arange(prefill.rows.start, prefill.rows.stop), selection)


def _causal_positions(prefill: Prefill, device: torch.device) -> torch.Tensor:
    """What a chunk selects when its whole context fits: int32 [t, S], -1 past each token."""
    positions = torch.arange(prefill.length, dtype=torch.int32, device=device)
    return torch.where(positions <= positions[prefill.start :, None], positions, -1)


def _selection_mask(positions: torch.Tensor, length: int) -> torch.Tensor:
    """positions int32 [t, K] (-1: none) -> bool [t, length], true where selected."""
    mask = torch.zeros(positions.shape[0], length + 1, dtype=torch.bool, device=positions.device)
    mask.scatter_(1, torch.where(positions < 0, length, positions).long(), True)
    return mask[:, :length]
