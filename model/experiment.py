"""Selection under a SelectionPolicy, in plain PyTorch: experiments are for insight, and ordinary requests never come here."""

import torch
import torch.nn.functional as F

from ..kernels.cache_write import gather_index_keys, gather_latents
from ..kernels.hadamard import hadamard_transform
from ..kernels.indexer_logits import indexer_logits
from ..kernels.indexer_topk import LOGITS_BYTES
from ..kernels.reference.rope import rotate_index
from ..kernels.registry import preference_of
from ..kernels.select_topk import select_topk
from .indexer import Indexer, IndexQueries
from .metadata import AttentionMetadata, LayerCache, Prefill, Selection
from .selection_policy import SelectionPolicy, Span

# Of selections that are wider than index_topk; the sparse kernels process keys in blocks of 64 or 128.
WIDTH_MULTIPLE = 128


class Experiments:
    """One layer's selections under policies. `q` are absorbed queries [t, H, D] of the tokens that select."""

    def __init__(self, indexer: Indexer, latent_dim: int, softmax_scale: float) -> None:
        self.indexer, self.latent_dim, self.softmax_scale = indexer, latent_dim, softmax_scale

    def select(
        self, q: torch.Tensor, queries: IndexQueries, chunk: Prefill, metadata: AttentionMetadata, cache: LayerCache
    ) -> Selection:
        """The selection of each token of a chunk whose request has a policy, [t, K]; it is also reported."""
        selection = select_under_policy(self.indexer, queries, chunk, metadata, cache)
        assert chunk.policy is not None
        if chunk.policy.measure and metadata.on_selection is not None:
            mass = selected_mass(q, selection, chunk, cache, self.latent_dim, self.softmax_scale)
            selection = selection._replace(mass=mass)
        metadata.report(self.indexer.layer, chunk.rows, selection)
        return selection

    def replace(
        self,
        positions: torch.Tensor,
        q: torch.Tensor,
        queries: IndexQueries | None,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """The decodes' selections [B, K], those with a policy replaced by what it selects."""
        for b, chunk in metadata.experiments.items():
            assert queries is not None
            chosen = self.select(q[b : b + 1], queries, chunk, metadata, cache).positions
            # Columns that hold -1 alone are left out where possible: the same sums as in an ordinary step, bit by bit.
            positions = widened(positions, max(positions.shape[1], int((chosen >= 0).sum())))
            positions[b] = widened(chosen, positions.shape[1])[0]
        return positions


def select_under_policy(
    indexer: Indexer, queries: IndexQueries, chunk: Prefill, metadata: AttentionMetadata, cache: LayerCache
) -> Selection:
    """The selection of each token of a chunk, or of a decode, by `chunk.policy`: [t, K], positions first, K at least index_topk."""
    policy, count = chunk.policy, chunk.length - chunk.start
    assert policy is not None
    with_scores = metadata.on_selection is not None
    changed = policy.selector != "indexer" or policy.topk is not None or bool(policy.forbidden or policy.pinned)
    first = min(max(policy.start - chunk.start, 0), count) if changed else count
    parts = []
    if first:
        parts.append(indexer.select_prefill(queries, chunk.part(0, first), cache, with_scores))
    if first < count:
        parts.append(_choose(indexer, queries, chunk.part(first, count), policy, metadata, cache, with_scores))
    replayed = {
        row: layers[indexer.layer]
        for row in range(count)
        if indexer.layer in (layers := policy.recorded.get(chunk.start + row, {}))
    }
    widths = [part.positions.shape[1] for part in parts] + [len(chosen) for chosen in replayed.values()]
    width = max(widths) if max(widths) <= indexer.topk else -(-max(widths) // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
    width = max(width, indexer.topk)
    positions = torch.cat([widened(part.positions, width) for part in parts])
    for row, chosen in replayed.items():
        positions[row] = widened(torch.from_numpy(chosen).to(positions.device)[None], width)[0]
    scores = [part.scores for part in parts if part.scores is not None]
    if len(scores) < len(parts) or replayed:
        return Selection(positions)
    return Selection(positions, torch.cat([F.pad(part, (0, width - part.shape[1])) for part in scores]))


def widened(positions: torch.Tensor, width: int) -> torch.Tensor:
    """int32 [R, K] -> [R, width]: with more columns of -1, or without columns at the end, which the caller knows to be -1."""
    return F.pad(positions, (0, width - positions.shape[1]), value=-1)


def selected_mass(
    q: torch.Tensor, selection: Selection, chunk: Prefill, cache: LayerCache, latent_dim: int, scale: float
) -> torch.Tensor:
    """The share of dense attention's mass that falls on the selected positions: absorbed queries q [t, H, D] -> fp32 [t, H].

    sum over selected s of softmax(q . k[s] * scale), where the softmax runs over all s up to the query.
    """
    keys = gather_latents(cache.latent, chunk.context_slots, latent_dim, torch.float32, backend="reference")
    parts, step = [], max(1, LOGITS_BYTES // (4 * chunk.length * q.shape[1]))
    for first in range(0, q.shape[0], step):
        part = chunk.part(first, min(first + step, q.shape[0]))
        logits = torch.einsum("thd,sd->ths", q[first : first + step].float(), keys[: part.length]) * scale
        later = torch.arange(part.length, device=q.device) >= part.ends[:, None]
        logits.masked_fill_(later[:, None], float("-inf"))
        chosen = Selection(selection.positions[first : first + step]).mask(part.length)
        parts.append((logits.softmax(-1) * chosen[:, None]).sum(-1))
    return torch.cat(parts)


def _choose(
    indexer: Indexer,
    queries: IndexQueries,
    chunk: Prefill,
    policy: SelectionPolicy,
    metadata: AttentionMetadata,
    cache: LayerCache,
    with_scores: bool,
) -> Selection:
    """The selection of a chunk whose tokens are all affected. Logits are computed for a bounded number of rows at a time."""
    count = chunk.length - chunk.start
    step = max(1, LOGITS_BYTES // (4 * chunk.length))
    width = min(policy.width(chunk.length, indexer.topk), chunk.length)
    positions, scores = [], []
    for first in range(0, count, step):
        part = chunk.part(first, min(first + step, count))
        logits = _logits(indexer, queries, part, policy.selector, metadata, cache)
        chosen = select_topk(_preferred(logits, part, policy), None, part.ends, width, backend="reference")
        positions.append(chosen)
        if with_scores and policy.selector in ("indexer", "wrong_rope"):
            scores.append(logits.gather(1, chosen.clamp_min(0).long()))
    return Selection(torch.cat(positions), torch.cat(scores) if scores else None)


def _logits(
    indexer: Indexer,
    queries: IndexQueries,
    chunk: Prefill,
    selector: str,
    metadata: AttentionMetadata,
    cache: LayerCache,
) -> torch.Tensor:
    """What the selector maximises: fp32 [t, S]; columns after a token's own position hold anything."""
    if selector in ("window", "dense"):  # the newest; fp32 counts up to 2^24 exactly
        newest = torch.arange(chunk.length, dtype=torch.float32, device=chunk.context_slots.device)
        return newest.expand(chunk.length - chunk.start, -1)
    backend = indexer.compute.backend
    keys, scales = gather_index_keys(cache.index, chunk.context_slots, backend=backend)
    if selector == "wrong_rope":
        assert queries.wrong is not None and metadata.context_rope is not None
        queries, backend = queries.wrong, preference_of("reference", indexer.compute.deterministic)
        keys, scales = _rotated_wrongly(indexer, keys, scales, chunk, metadata.context_rope), None
    rows = chunk.rows
    return indexer_logits(
        queries.q[rows], keys, queries.weights[rows], chunk.starts, chunk.ends, scales, backend=backend
    )


def _rotated_wrongly(
    indexer: Indexer,
    keys: torch.Tensor,
    scales: torch.Tensor | None,
    chunk: Prefill,
    context_rope: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Cached index keys [S, D] as they would be with RoPE in the other layout, fp32: turned back, and rotated again."""
    keys = keys.float()
    if scales is not None:  # an FP8 cache holds the keys' Hadamard transforms, and the transform is its own inverse
        backend = preference_of("reference", indexer.compute.deterministic)
        keys = hadamard_transform(keys * scales[:, None], keys.shape[1] ** -0.5, backend=backend)
    cos, sin = (table[: chunk.length] for table in context_rope)
    plain = rotate_index(keys, cos, -sin, indexer.interleaved)
    return rotate_index(plain, cos, sin, not indexer.interleaved)


def _preferred(logits: torch.Tensor, chunk: Prefill, policy: SelectionPolicy) -> torch.Tensor:
    """The logits with pinned positions above all others, and without the forbidden ones."""
    for value, spans in ((float("inf"), policy.pinned), (float("-inf"), policy.forbidden)):
        for span in spans:
            logits = torch.where(_seen_behind(span, chunk, logits), value, logits)
    return logits


def _seen_behind(span: Span, chunk: Prefill, logits: torch.Tensor) -> torch.Tensor:
    """bool [t, S]: columns of the span, in the rows of queries behind it."""
    positions = torch.arange(logits.shape[1], device=logits.device)
    inside = (positions >= span[0]) & (positions < span[1])
    return inside & (chunk.ends[:, None] > span[1])
