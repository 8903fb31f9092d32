"""The engine: prefix reuse, chunks, decodes and batches, where index keys and positions go wrong."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from .bug import ALL, HTTP, Bug
from .patching import replaced

KEPT_STEPS = 4  # for which a decode's selection is used


def reused_index_keys_missing() -> AbstractContextManager[None]:
    """A prefix that is found has its latents, but no index keys."""

    def change(run: Any) -> Any:
        def without_keys(self: Any, batch: Any, inputs: Any) -> torch.Tensor:
            for request, start in zip(batch.requests, batch.starts, strict=True):
                if start and start == request.queue.cached_tokens:
                    for cache in self.caches:
                        cache.index[request.cache.pages[: start // 64]] = 0
            return run(self, batch, inputs)

        return without_keys

    return replaced("inference.engine.running.runner.Runner._forward", change)


def _moved(distance: Callable[[int], int]) -> AbstractContextManager[None]:
    """Tokens after a prefix that was found are rotated as if they stood `distance` earlier."""

    def change(run: Any) -> Any:
        def moved(self: Any, batch: Any, inputs: Any) -> torch.Tensor:
            counts = torch.tensor(batch.counts)
            distances = torch.tensor([distance(request.queue.cached_tokens or 0) for request in batch.requests])
            positions = inputs.positions - distances.repeat_interleave(counts)
            return run(self, batch, inputs._replace(positions=positions))

        return moved

    return replaced("inference.engine.running.runner.Runner._forward", change)


def reused_positions_restart() -> AbstractContextManager[None]:
    return _moved(lambda cached: cached)


def reused_positions_off_by_one() -> AbstractContextManager[None]:
    return _moved(lambda cached: int(cached > 0))


def first_chunk_alone_is_scored() -> AbstractContextManager[None]:
    """The indexer of a later chunk scores as many keys as the chunk has tokens, from the beginning of the context."""

    def change(select: Any) -> Any:
        def shortened(self: Any, queries: Any, prefill: Any, *rest: Any) -> Any:
            chunk = replace(prefill)
            if prefill.start:
                chunk.__dict__["ends"] = prefill.ends.clamp(max=prefill.length - prefill.start)
            return select(self, queries, chunk, *rest)

        return shortened

    return replaced("model.indexer.Indexer.select_prefill", change)


def decoded_index_keys_missing() -> AbstractContextManager[None]:
    """Only prompts write index keys."""

    def change(write: Any) -> Any:
        def prompts_alone(self: Any, keys: Any, cos: Any, sin: Any, metadata: Any, cache: Any) -> None:
            new = slice(metadata.decodes, None)
            metadata = replace(metadata, slots=metadata.slots[new], stamps=())
            write(self, keys[new], cos[new], sin[new], metadata, cache)

        return prompts_alone

    return replaced("model.indexer.Indexer.write_keys", change)


def selection_of_an_earlier_step() -> AbstractContextManager[None]:
    """A decode attends to what was selected up to KEPT_STEPS steps ago."""
    kept: dict[tuple[int, int], list[Any]] = {}

    def change(select: Any) -> Any:
        def stale(self: Any, queries: Any, metadata: Any, cache: Any) -> torch.Tensor:
            entry = kept.setdefault((self.layer, metadata.decodes), [None, 0])
            if entry[1] % KEPT_STEPS == 0:
                entry[0] = select(self, queries, metadata, cache)
            entry[1] += 1
            return entry[0]

        return stale

    return replaced("model.indexer.Indexer.select_decode_slots", change)


def length_of_the_longest() -> AbstractContextManager[None]:
    """Every decode of a step selects from as many tokens as the longest of them has."""

    def change(select: Any) -> Any:
        def longest(self: Any, queries: Any, metadata: Any, cache: Any) -> torch.Tensor:
            lengths = torch.full_like(metadata.lengths, metadata.max_context)
            return select(self, queries, replace(metadata, lengths=lengths), cache)

        return longest

    return replaced("model.indexer.Indexer.select_decode_slots", change)


def first_layer_selects_for_all() -> AbstractContextManager[None]:
    """All layers use the first layer's selection, as GLM-5.2's layers share one."""
    kept: dict[Any, Any] = {}

    def change(select: Any) -> Any:
        def shared(self: Any, queries: Any, of: Any, cache: Any, *rest: Any) -> Any:
            place = of.rows.start if hasattr(of, "rows") else "decodes"
            if self.layer == 0:
                kept[place] = select(self, queries, of, cache, *rest)
            return kept[place] if place in kept else select(self, queries, of, cache, *rest)

        return shared

    return replaced(("model.indexer.Indexer.select_prefill", "model.indexer.Indexer.select_decode_slots"), change)


def _bug(name: str, seed: Callable[[], AbstractContextManager[None]], precisions: frozenset[str] = ALL) -> Bug:
    return Bug(name, frozenset({HTTP}), precisions, None, seed)


# In fp8 precision another function writes the keys of decodes.
UNFUSED = frozenset({"exact", "bf16"})

BUGS = (
    _bug("reused-index-keys-missing", reused_index_keys_missing),
    _bug("reused-positions-restart", reused_positions_restart),
    _bug("reused-positions-off-by-one", reused_positions_off_by_one),
    _bug("first-chunk-alone-is-scored", first_chunk_alone_is_scored),
    _bug("decoded-index-keys-missing", decoded_index_keys_missing, UNFUSED),
    _bug("selection-of-an-earlier-step", selection_of_an_earlier_step),
    _bug("length-of-the-longest", length_of_the_longest),
    _bug("first-layer-selects-for-all", first_layer_selects_for_all),
)
