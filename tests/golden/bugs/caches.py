"""Index keys that are missing, late or stale in the cache: they show only in schedules of several steps."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.model.indexer import Indexer
from deepseek_v32.model.metadata import Prefill, Selection

from .bug import ALL, SCENARIO, Bug
from .patching import replaced

WRITES = ("model.indexer.write_index_cache", "kernels.reference.norm_and_cache.write_index_cache")
RUN = "inference.engine.running.runner.Runner.run"
ONLY = frozenset({SCENARIO})


def keys_of_this_chunk() -> AbstractContextManager[None]:
    """A query of a chunk chooses among the chunk's own tokens."""

    def make(select: Any) -> Any:
        def patched(self: Indexer, queries: Any, prefill: Prefill, cache: Any, with_scores: bool = False) -> Selection:
            slots = prefill.context_slots[prefill.start :]
            own = Prefill(prefill.rows, 0, prefill.length - prefill.start, slots)
            found = select(self, queries, own, cache, with_scores)
            return found._replace(positions=torch.where(found.positions < 0, -1, found.positions + prefill.start))

        return patched

    return replaced("model.indexer.Indexer.select_prefill", make)


@contextmanager
def not_written(skips: Any) -> Iterator[None]:
    """Steps whose batch `skips(batch)` write no index keys."""
    skipping = [False]

    def make_write(write: Any) -> Any:
        return lambda *arguments, **options: None if skipping[0] else write(*arguments, **options)

    def make_run(run: Any) -> Any:
        def patched(self: Any, batch: Batch, *arguments: Any, **options: Any) -> Any:
            skipping[0] = skips(batch)
            return run(self, batch, *arguments, **options)

        return patched

    with replaced(WRITES, make_write), replaced(RUN, make_run):
        yield


def not_while_dense() -> AbstractContextManager[None]:
    """While the context needs no selection (first steps of a prompt), no index keys are cached."""
    return not_written(lambda batch: max(map(sum, zip(batch.starts, batch.counts, strict=True))) <= 48)


def not_after_preemption() -> AbstractContextManager[None]:
    """A request that is computed again does not write its index keys again."""
    return not_written(lambda batch: any(request.cache.admission > 1 for request in batch.requests))


def latents_alone_are_reused() -> AbstractContextManager[None]:
    """Pages of a reused prefix bring their latents, but no index keys."""
    reused: list[int] = []

    def make_match(match: Any) -> Any:
        def patched(self: Any, *arguments: Any) -> Any:
            found = match(self, *arguments)
            reused.extend(found[0])
            return found

        return patched

    def make_run(run: Any) -> Any:
        def patched(self: Any, *arguments: Any, **options: Any) -> Any:
            for cache in self.caches:
                cache.index[reused] = 0
            reused.clear()
            return run(self, *arguments, **options)

        return patched

    @contextmanager
    def seeded() -> Iterator[None]:
        with replaced("inference.engine.scheduling.pages.PagePool.match", make_match), replaced(RUN, make_run):
            yield

    return seeded()


BUGS = (
    Bug("index-keys-of-the-chunk-only", ONLY, ALL, "index_scores", keys_of_this_chunk),
    Bug("index-keys-not-cached-while-dense", ONLY, ALL, "index_key", not_while_dense),
    Bug(
        "latents-reused-without-index-keys",
        ONLY,
        ALL,
        "index_key",
        latents_alone_are_reused,
    ),
    Bug("index-keys-stale-after-preemption", ONLY, ALL, "index_key", not_after_preemption),
)
