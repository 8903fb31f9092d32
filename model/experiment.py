"""Selection under a SelectionPolicy, in plain PyTorch: experiments are for insight, and ordinary requests never come here."""

from functools import partial

import torch
import torch.nn.functional as F

from ..kernels.cache_write import gather_index_keys, gather_latents
from ..kernels.hadamard import hadamard_transform
from ..kernels.indexer_logits import indexer_logits
from ..kernels.indexer_topk import LOGITS_BYTES
from ..kernels.reference.rope import rotate_index
from ..kernels.registry import preference_of
from ..kernels.select_topk import select_topk
from .config import ModelConfig
from .indexer import Indexer, IndexQueries
from .launch_order import Later
from .metadata import AttentionMetadata, LayerCache, Prefill, Selection
from .rope import RotaryEmbedding
from .selection_policy import SelectionPolicy, Span

# Selections wider than index_topk have multiples of this width: the sparse kernels process keys in blocks of 64 or 128.
WIDTH_MULTIPLE = 128


class Experiments:
    """One layer's selections under policies. `absorbed` gives the absorbed queries [t, H, D] of the tokens that select."""

    def __init__(self, config: ModelConfig, indexer: Indexer) -> None:
        self.config, self.indexer = config, indexer

    def select(
        self, absorbed: Later, queries: IndexQueries, chunk: Prefill, metadata: AttentionMetadata, cache: LayerCache
    ) -> Selection:
        """Choose and report the selection of each token of a chunk whose request has a policy, [t, K]."""
        with_scores = metadata.on_selection is not None
        selection = self._select(queries, chunk, cache, with_scores)
        assert chunk.policy is not None
        if chunk.policy.measure and with_scores:
            selection = selection._replace(mass=self._mass(absorbed(), selection, chunk, cache))
        metadata.report(self.indexer.layer, chunk.rows, selection)
        return selection

    def replace(
        self,
        positions: torch.Tensor,
        absorbed: Later,
        queries: IndexQueries | None,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """Replace the rows of decodes with a policy in the decodes' selections [B, K]."""
        for b, chunk in metadata.experiments.items():
            assert queries is not None
            chosen = self.select(partial(absorbed().narrow, 0, b, 1), queries, chunk, metadata, cache).positions
            # Columns that hold only -1 are left out where possible, so that sums have the same bits as in an ordinary step.
            positions = _widened(positions, max(positions.shape[1], int((chosen >= 0).sum())))
            positions[b] = _widened(chosen, positions.shape[1])[0]
        return positions

    def _select(self, queries: IndexQueries, chunk: Prefill, cache: LayerCache, with_scores: bool) -> Selection:
        """Select for each token of a chunk, or of a decode, by `chunk.policy`: [t, K], positions first, K at least index_topk."""
        indexer, policy, count = self.indexer, chunk.policy, chunk.length - chunk.start
        assert policy is not None
        changed = policy.selector != "indexer" or policy.topk is not None or bool(policy.forbidden or policy.pinned)
        first = min(max(policy.start - chunk.start, 0), count) if changed else count
        parts = []
        if first:
            parts.append(indexer.select_prefill(queries, chunk.part(0, first), cache, with_scores))
        if first < count:
            parts.append(self._choose(queries, chunk.part(first, count), policy, cache, with_scores))
        replayed = {
            row: layers[indexer.layer]
            for row in range(count)
            if indexer.layer in (layers := policy.recorded.get(chunk.start + row, {}))
        }
        widths = [part.positions.shape[1] for part in parts] + [len(chosen) for chosen in replayed.values()]
        width = max(widths) if max(widths) <= indexer.topk else -(-max(widths) // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
        width = max(width, indexer.topk)
        positions = torch.cat([_widened(part.positions, width) for part in parts])
        for row, chosen in replayed.items():
            positions[row] = _widened(torch.from_numpy(chosen).to(positions.device)[None], width)[0]
        scores = [part.scores for part in parts if part.scores is not None]
        if len(scores) < len(parts) or replayed:
            return Selection(positions)
        return Selection(positions, torch.cat([F.pad(part, (0, width - part.shape[1])) for part in scores]))

    def _choose(
        self, queries: IndexQueries, chunk: Prefill, policy: SelectionPolicy, cache: LayerCache, with_scores: bool
    ) -> Selection:
        """Select for a chunk whose tokens are all affected. Logits are computed for a bounded number of rows at a time."""
        count = chunk.length - chunk.start
        step = max(1, LOGITS_BYTES // (4 * chunk.length))
        width = min(policy.width(chunk.length, self.indexer.topk), chunk.length)
        positions, scores = [], []
        for first in range(0, count, step):
            part = chunk.part(first, min(first + step, count))
            if policy.selector == "indexer":
                logits = self._index_scores(queries, part, cache)
            elif policy.selector == "wrong_rope":
                logits = self._wrong_rope_scores(queries, part, cache)
            else:  # the newest first; fp32 counts up to 2^24 exactly
                newest = torch.arange(part.length, dtype=torch.float32, device=part.context_slots.device)
                logits = newest.expand(part.length - part.start, -1)
            chosen = select_topk(_preferred(logits, part, policy), None, part.ends, width, backend="reference")
            positions.append(chosen)
            if with_scores and policy.selector in ("indexer", "wrong_rope"):
                scores.append(logits.gather(1, chosen.clamp_min(0).long()))
        return Selection(torch.cat(positions), torch.cat(scores) if scores else None)

    def _index_scores(self, queries: IndexQueries, chunk: Prefill, cache: LayerCache) -> torch.Tensor:
        """The indexer's scores, fp32 [t, S]; columns after a token's own position hold anything."""
        rows, backend = chunk.rows, self.indexer.compute.backend
        keys, scales = gather_index_keys(cache.index, chunk.context_slots, backend=backend)
        q, weights = queries.q[rows], queries.weights[rows]
        return indexer_logits(q, keys, weights, chunk.starts, chunk.ends, scales, backend=backend)

    def _wrong_rope_scores(self, queries: IndexQueries, chunk: Prefill, cache: LayerCache) -> torch.Tensor:
        """`_index_scores` in fp32 with RoPE in the other layout: queries and keys are turned back, and rotated again."""
        config, indexer, rows = self.config, self.indexer, chunk.rows
        backend = preference_of("reference", indexer.compute.deterministic)
        keys, scales = gather_index_keys(cache.index, chunk.context_slots, backend=indexer.compute.backend)
        positions = torch.arange(chunk.length, device=keys.device)
        cos, sin = RotaryEmbedding(config, keys.device)(positions)

        def turned(vectors: torch.Tensor, first: int) -> torch.Tensor:
            if scales is not None:  # FP8 vectors are Hadamard transforms, and the transform is its own inverse
                vectors = hadamard_transform(vectors, config.index_head_dim**-0.5, backend=backend)
            plain = rotate_index(vectors, cos[first:], -sin[first:], indexer.interleaved)
            return rotate_index(plain, cos[first:], sin[first:], not indexer.interleaved)

        k = turned(keys.float() if scales is None else keys.float() * scales[:, None], 0)
        q = turned(queries.q[rows].float(), chunk.start)
        return indexer_logits(q, k, queries.weights[rows], chunk.starts, chunk.ends, None, backend=backend)

    def _mass(self, q: torch.Tensor, selection: Selection, chunk: Prefill, cache: LayerCache) -> torch.Tensor:
        """Measure the share of dense attention's mass on the selected positions: absorbed queries q [t, H, D] -> fp32 [t, H].

        sum over selected s of softmax(q . k[s] * scale), where the softmax runs over all s up to the query.
        """
        config = self.config
        keys = gather_latents(
            cache.latent, chunk.context_slots, config.kv_lora_rank, torch.float32, backend="reference"
        )
        parts, step = [], max(1, LOGITS_BYTES // (4 * chunk.length * q.shape[1]))
        for first in range(0, q.shape[0], step):
            part = chunk.part(first, min(first + step, q.shape[0]))
            logits = torch.einsum("thd,sd->ths", q[first : first + step].float(), keys[: part.length])
            logits *= config.softmax_scale
            later = torch.arange(part.length, device=q.device) >= part.ends[:, None]
            logits.masked_fill_(later[:, None], float("-inf"))
            chosen = Selection(selection.positions[first : first + step]).mask(part.length)
            parts.append((logits.softmax(-1) * chosen[:, None]).sum(-1))
        return torch.cat(parts)


def _widened(positions: torch.Tensor, width: int) -> torch.Tensor:
    """int32 [R, K] -> [R, width]: add columns of -1, or drop last columns, which the caller knows to be -1."""
    return F.pad(positions, (0, width - positions.shape[1]), value=-1)


def _preferred(logits: torch.Tensor, chunk: Prefill, policy: SelectionPolicy) -> torch.Tensor:
    """Put pinned positions above all others, and forbidden ones below."""
    for value, spans in ((float("inf"), policy.pinned), (float("-inf"), policy.forbidden)):
        for span in spans:
            logits = torch.where(_seen_after(span, chunk, logits), value, logits)
    return logits


def _seen_after(span: Span, chunk: Prefill, logits: torch.Tensor) -> torch.Tensor:
    """bool [t, S]: columns of the span, in the rows of queries after it."""
    positions = torch.arange(logits.shape[1], device=logits.device)
    inside = (positions >= span[0]) & (positions < span[1])
    return inside & (chunk.ends[:, None] > span[1])
