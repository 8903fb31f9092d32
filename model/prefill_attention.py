"""MLA of the chunk of a prompt: selection by the indexer, and the form of attention that suits the chunk."""

import torch
from torch import nn

from ..kernels.cache_write import gather_latents
from ..kernels.dense_mla import mha_prefill
from ..kernels.kv_up_projection import absorb_queries, expand_quantize, expand_values
from ..kernels.reference.rope import rotate_interleaved
from ..kernels.sparse_mla_decode import sparse_mla_decode
from ..kernels.sparse_mla_prefill import sparse_mla_prefill
from .experiment import Experiments
from .indexer import Indexer, IndexQueries, PrefillSharing
from .layers import Compute, KVUpProjection, Operand
from .metadata import AttentionMetadata, LayerCache, Prefill, Selection
from .prefill_form import PrefillForm
from .profiling import layer_part
from .stages import stages


class PrefillAttention(nn.Module):
    """The part of a layer's attention that comes between its projections, for prompts; attention.py has the whole layer's."""

    compute: Compute
    layer: int
    heads: int  # of this rank
    nope: int
    rope: int
    value: int
    latent_dim: int
    topk: int
    softmax_scale: float
    kv_b_proj: KVUpProjection
    indexer: Indexer
    experiments: Experiments
    form: PrefillForm
    prefill_sharing: PrefillSharing | None  # set where several ranks run the model

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
        """Attention of one prompt chunk: q [t, H, nope + rope] -> the heads' values [t, H * v], as an input of o_proj.

        Keys are read from the cache, in its precision.
        """
        multi_head = self.form.is_multi_head(prefill, q)
        if prefill.policy is not None:
            absorbed = self._absorb(q, cos, sin, prefill.rows)
            assert queries is not None
            selection = self.experiments.select(absorbed, queries, prefill, metadata, cache)
            if multi_head:
                return self._mha(q, cos, sin, prefill, cache, selection.mask(prefill.length))
            return self._values(self.attend_selected(absorbed, selection.positions, prefill, cache), prefill.rows)
        if queries is None or prefill.length <= self.topk:
            if metadata.on_selection is not None:
                metadata.report(self.layer, prefill.rows, Selection(prefill.causal_positions()))
            if multi_head:
                return self._mha(q, cos, sin, prefill, cache, None)
            absorbed = self._absorb(q, cos, sin, prefill.rows)
            return self._values(
                self.attend_selected(absorbed, prefill.causal_positions(), prefill, cache), prefill.rows
            )
        if metadata.on_selection is None and not multi_head:
            sharing = self.prefill_sharing
            attend = self.select_and_attend if sharing is None else sharing.attend
            latents = attend(self._absorb(q, cos, sin, prefill.rows), queries, prefill, cache)
            return self._values(latents, prefill.rows)
        selection = self._select_prefill(queries, prefill, cache, metadata.on_selection is not None)
        metadata.report(self.layer, prefill.rows, selection)
        if multi_head:
            return self._mha(q, cos, sin, prefill, cache, selection.mask(prefill.length))
        absorbed = self._absorb(q, cos, sin, prefill.rows)
        return self._values(self.attend_selected(absorbed, selection.positions, prefill, cache), prefill.rows)

    def _select_prefill(
        self, queries: IndexQueries, prefill: Prefill, cache: LayerCache, with_scores: bool = False
    ) -> Selection:
        """The selection of each token of a prompt chunk, [t, K]."""
        select = self.indexer.select_prefill if self.prefill_sharing is None else self.prefill_sharing.select
        return select(queries, prefill, cache, with_scores)

    def select_and_attend(
        self, q: torch.Tensor, queries: IndexQueries, prefill: Prefill, cache: LayerCache
    ) -> torch.Tensor:
        """Absorbed queries q [t, H, L + rope] over the tokens that the indexer selects for them -> latents [t, H, L]."""
        return self.attend_selected(q, self._select_prefill(queries, prefill, cache).positions, prefill, cache)

    @layer_part("attention")
    def attend_selected(
        self, q: torch.Tensor, positions: torch.Tensor, prefill: Prefill, cache: LayerCache
    ) -> torch.Tensor:
        """Absorbed queries q [t, H, L + rope] over context positions int32 [t, K] (-1: none) -> attended latents [t, H, L]."""
        kv, indices, backend = cache.latent, positions, self.compute.backend
        counts = None if prefill.policy is not None else prefill.selected_counts(positions.shape[1])
        if self.form.attends_as_decode(q):
            slots = torch.where(positions < 0, -1, prefill.context_slots[positions.clamp_min(0).long()]).int()
            scale, dim = self.softmax_scale, self.latent_dim
            latents, _ = sparse_mla_decode(q[:, None], kv, slots[:, None], scale, dim, counts, backend=backend)
            return latents[:, 0]
        is_fp8 = kv.dtype == torch.uint8
        if is_fp8 and self.form.converts_context(prefill, q, positions.shape[1]):
            kv = gather_latents(kv, prefill.context_slots, self.latent_dim, q.dtype, backend=backend)[:, None]
        else:
            kv = kv if is_fp8 else kv.view(-1, 1, kv.shape[-1])
            indices = torch.where(positions < 0, -1, prefill.context_slots[positions.clamp_min(0).long()]).int()
        latents, _, _ = sparse_mla_prefill(
            q,
            kv,
            indices[:, None],
            self.softmax_scale,
            self.latent_dim,
            counts,
            backend=backend,
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
        mask: torch.Tensor | None,
    ) -> Operand:
        """The heads' values in the multi-head form over the whole context, with a causal mask or with `mask` [t, S]."""
        context = gather_latents(
            cache.latent, prefill.context_slots, self.latent_dim, q.dtype, backend=self.compute.backend
        )
        latent, k_rope = context.split((self.latent_dim, self.rope), 1)
        k_nope, v = self.kv_b_proj(latent)
        q_nope, q_rope = q.split((self.nope, self.rope), 2)
        q = torch.cat((q_nope, rotate_interleaved(q_rope, cos, sin)), 2)
        stages(self.layer, prefill.rows, query_rope=q[..., self.nope :])
        k = torch.cat((k_nope, k_rope[:, None].expand(-1, self.heads, -1)), 2)
        values = mha_prefill(q, k, v, self.softmax_scale, mask, backend=self.compute.backend)
        stages(self.layer, prefill.rows, attention_heads=values)
        return self.compute.operand(values.flatten(1))

    @layer_part("attention")
    def _absorb(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: slice) -> torch.Tensor:
        """Queries of some rows, which attend to latents: [q_nope @ Wk | rotated q_rope], [T, H, L + rope]."""
        wk, _ = self.kv_b_proj.halves()
        absorbed = absorb_queries(q, cos, sin, wk, backend=self.compute.backend)
        stages(self.layer, rows, query_rope=absorbed[..., self.latent_dim :])
        return absorbed

    @layer_part("attention")
    def _values(self, latents: torch.Tensor, rows: slice) -> Operand:
        """Attended latents [t, H, L] of some rows -> the heads' values [t, H * v], as an input of o_proj."""
        _, wv = self.kv_b_proj.halves()
        if self.compute.quantized:
            stages(self.layer, rows, attention_heads=lambda: torch.einsum("thl,hvl->thv", latents, wv))
            return expand_quantize(latents, wv, self.compute.ue8m0, backend=self.compute.backend)
        values = latents.new_empty(*latents.shape[:2], self.value)
        expand_values(latents, wv, values, backend=self.compute.backend)
        stages(self.layer, rows, attention_heads=values)
        return values.flatten(1)
