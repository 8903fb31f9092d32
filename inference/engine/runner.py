"""From a batch to logits: input tensors, AttentionMetadata, forward pass."""

from typing import Protocol

import numpy as np
import torch

from ...model.config import ModelConfig, Precision
from ...model.metadata import PAGE_SIZE, AttentionMetadata, LayerCache, SelectionCallback
from ...model.transformer import Transformer
from .cache import SCRATCH_PAGES, allocate
from .cache_check import CacheCheck, CheckPlan
from .decode_graph import DecodeGraphs, can_capture
from .limits import Limits
from .scheduler import Batch


class Model(Protocol):
    """What the runner needs of a model: model.transformer.Transformer, or a test's stand-in."""

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor: ...


class ModelRunner(Protocol):
    """What the engine needs of a runner: this module's on one rank, distributed.worker's LeadingRunner on several."""

    @property
    def supports_async_scheduling(self) -> bool:
        """Whether a step of decodes may take its tokens from the device, where the step before has left them.

        The engine may then launch it before it has read them. See Batch.sampled_rows.
        """

    def run(self, batch: Batch, on_selection: SelectionCallback | None = None) -> torch.Tensor:
        """Launch a step: fp32 [N, vocab], the logits of the last ``logit_counts[i]`` new tokens of each entry, in order.

        They are valid until the next step is launched.
        """

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        """Keep the tokens that the latest step has sampled (int64 [N], on the device) for the next step.

        Called only if asynchronous scheduling is supported.
        """


class Runner:
    """Runs batches through the model, over caches that it owns. Steps of decodes alone go to `graphs`, if given.

    With a `cache_check`, each step is checked as its plan says. Rank 0 makes the plan; the other ranks are given it.
    """

    def __init__(
        self,
        model: Model,
        caches: list[LayerCache],
        device: torch.device | str = "cpu",
        graphs: DecodeGraphs | None = None,
        cache_check: CacheCheck | None = None,
    ) -> None:
        self.model = model
        self.caches = caches
        self.device = torch.device(device)
        self.graphs = graphs
        self.cache_check = cache_check

    @property
    def supports_async_scheduling(self) -> bool:
        return self.graphs is not None

    @property
    def sampled(self) -> torch.Tensor:
        """int64 [max_sequences] on the device: the staged tokens come first, the rest is left from earlier steps."""
        assert self.graphs is not None
        return self.graphs.sampled

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        self.sampled[: len(tokens)] = tokens

    def plan(self, batch: Batch) -> CheckPlan:
        """What the step checks, as rank 0 decides for all ranks."""
        assert self.cache_check is not None
        return self.cache_check.plan(batch, self._in_graph(batch))

    def _in_graph(self, batch: Batch) -> bool:
        return self.graphs is not None and all(batch.logit_counts) and max(batch.counts) == 1

    @torch.inference_mode()
    def run(
        self, batch: Batch, on_selection: SelectionCallback | None = None, plan: CheckPlan | None = None
    ) -> torch.Tensor:
        check = self.cache_check
        if check is not None:
            plan = plan or self.plan(batch)
            check.check_reused(batch, plan)
        if self.graphs is not None and self._in_graph(batch):
            return self.graphs.run(batch, on_selection, plan)
        assert not batch.sampled_rows
        tokens, positions, metadata = self.prepare(batch, on_selection)
        if check is None or plan is None:
            return self.model.forward(tokens, positions, metadata, self.caches)
        uploaded = check.upload(plan)
        logits = self.model.forward(tokens, positions, metadata, self.caches)
        check.end(metadata, uploaded)
        return logits

    def prepare(
        self, batch: Batch, on_selection: SelectionCallback | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, AttentionMetadata]:
        """(tokens int64 [T], positions int64 [T], metadata), on the device."""
        lengths = [start + count for start, count in zip(batch.starts, batch.counts, strict=True)]
        entries = list(zip(batch.requests, batch.starts, lengths, strict=True))
        table = np.zeros((len(entries), max(-(-length // PAGE_SIZE) for length in lengths)), dtype=np.int32)
        tokens, positions, slots, logit_rows = [], [], [], []
        row = 0
        for b, (request, start, length) in enumerate(entries):
            pages = request.pages[: -(-length // PAGE_SIZE)]  # the request may hold more, for the rest of its prompt
            table[b, : len(pages)] = pages
            position = np.arange(start, length)
            tokens.append(request.tokens[start:length])
            positions.append(position)
            slots.append(table[b, position // PAGE_SIZE].astype(np.int64) * PAGE_SIZE + position % PAGE_SIZE)
            row += length - start
            logit_rows.append(np.arange(row - batch.logit_counts[b], row))
        new_tokens, new_positions, new_slots = (
            self._tensor(np.concatenate(each)) for each in (tokens, positions, slots)
        )
        block_table, check = self._tensor(table), self.cache_check
        rows = (new_tokens, new_positions, new_slots, block_table, batch.counts)
        metadata = AttentionMetadata(
            query_lengths=batch.counts,
            context_lengths=tuple(lengths),
            decodes=batch.decodes,
            block_table=block_table,
            lengths=self._tensor(np.array(lengths, dtype=np.int32)),
            slots=new_slots,
            logit_rows=self._tensor(np.concatenate(logit_rows)),
            max_context=max(lengths[: batch.decodes], default=0),
            on_selection=on_selection,
            stamps=() if check is None else check.begin(*rows),
        )
        return new_tokens, new_positions, metadata

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def make_runner(
    model: Model, config: ModelConfig, precision: Precision, limits: Limits, device: torch.device | str, ranks: int = 1
) -> Runner:
    """Allocate the caches, and build this rank's runner over them: with decode graphs where they are possible."""
    device = torch.device(device)
    caches = allocate(config, precision, limits.page_count + SCRATCH_PAGES, device)
    scratch_page, check = limits.page_count, None
    if limits.check_cache:
        backend = model.compute.backend if isinstance(model, Transformer) else "auto"
        check = CacheCheck(caches, limits.max_sequences, limits.max_model_len, scratch_page, backend, ranks)
        caches = check.caches
    if not (limits.decode_graphs and can_capture(model)):
        return Runner(model, caches, device, None, check)
    sizes = (scratch_page, limits.max_sequences, limits.max_model_len, config.index_topk)
    return Runner(model, caches, device, DecodeGraphs(model.forward, caches, *sizes, device, check), check)
