"""Decode steps as CUDA graphs: one for each bucket of batch size and context length, captured when needed a second time.

A step of B decodes runs in the smallest bucket that holds it. One with drafts to verify has as many rows as tokens. Its bucket has
room for as many drafts of each request in the bucket of the number of requests: so few graphs serve answers that end one by one and
numbers of drafts that change. Rows past the step's own are padding: one token each, in a scratch page that belongs to no request.
`DecodeInputs` holds what changes from step to step. The kernels read lengths on the device, so a graph stays valid as they grow.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import add
from typing import NamedTuple

import torch

from ....kernels.registry import choose_implementation, leading_dtype
from ....model.metadata import AttentionMetadata, LayerCache
from ....model.transformer import Transformer
from ...cache_check.check import CacheCheck
from ...cache_check.plan import CheckPlan
from ...token_selection import SelectionSink
from ..sampling.greedy import GreedyTokens
from ..scheduling.batch import Batch
from .captured_step import CapturedStep, GraphMemory
from .decode_inputs import DecodeInputs
from .decode_record import DecodeRecord, DecodeRecords
from .inputs import StagedTokens

_Outputs = tuple[torch.Tensor, torch.Tensor | None]  # logits; hidden states, if the model returns them

_MOST_PADDING = 64  # rows of a step: each has its own slot of the scratch page
_FIRST_CONTEXT = 4096  # tokens; each further bucket of contexts is four times as long


def can_capture(model: object) -> bool:
    """Whether the model's decode steps can be CUDA graphs: no operation that they call makes the host wait for the GPU."""
    if not isinstance(model, Transformer):
        return False
    compute = model.compute
    if compute.device.type != "cuda" or compute.precision != "fp8":
        return False
    return all(
        choose_implementation(name, compute.device, leading_dtype(name, "fp8"), compute.backend, width).capturable
        for name, width in model.decode_operations().items()
    )


def batch_buckets(most: int) -> list[int]:
    """1, 2, 4, 8, 16, 24, … 64, 80, … 256, 320, … up to `most`: steps of at most 64, so each padding row has its own slot."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, most, 64)]
    return [size for size in sizes if size < most] + [most]


def context_buckets(topk: int, longest: int) -> list[int]:
    """`topk`, the longest context that needs no selection; then 4K, 16K, 64K, … up to `longest`."""
    sizes, size = [topk], _FIRST_CONTEXT
    while size < longest:
        sizes.append(size)
        size *= 4
    return sorted({size for size in sizes if size < longest} | {longest})


class Bucket(NamedTuple):
    """The step of a bucket, with what it reads and writes."""

    inputs: DecodeInputs
    step: CapturedStep[_Outputs]
    record: DecodeRecord | None
    greedy: GreedyTokens


class DecodeGraphs:
    """Runs steps of decodes as CUDA graphs of the model's `forward`. On a CPU it calls `forward` with the same inputs instead.

    `forward` returns logits, or logits and hidden states. `scratch_page` is a page of `caches` that the pool does not hand out.
    Contexts of up to `topk` tokens need no selection.
    """

    def __init__(
        self,
        forward: Callable[..., torch.Tensor | tuple[torch.Tensor, torch.Tensor]],
        caches: list[LayerCache],
        scratch_page: int,
        max_sequences: int,
        max_model_len: int,
        topk: int,
        device: torch.device,
        cache_check: CacheCheck | None = None,
        max_rows: int | None = None,
        layers: int | None = None,
    ) -> None:
        """max_rows: of a step; None: one for each sequence. layers: whose selections can be recorded; None: all."""
        self.topk = topk
        self.forward = forward
        self.caches = caches
        self.scratch_page = scratch_page
        self.device = device
        self.cache_check = cache_check
        self.batches = batch_buckets(max_rows or max_sequences)
        self.contexts = context_buckets(topk, max_model_len)
        self.staged = StagedTokens(max_sequences, device)
        self._records = DecodeRecords(self.batches[-1], len(caches) if layers is None else layers, topk, device)
        # Of the step that ran last, in tensors that stay in place until another one runs.
        self.inputs: DecodeInputs
        self.greedy: GreedyTokens
        self.hidden: torch.Tensor | None = None  # [B, D], if `forward` returns hidden states
        self.is_new = False  # whether it had no graph before
        # By bucket of batch size, bucket of context, and whether selections are recorded.
        self._buckets: dict[tuple[int, int, bool], Bucket] = {}
        self._logits: torch.Tensor | None = None  # fp32 [rows, vocab], of the step that ran last
        self.capture = GraphMemory(device).capture

    @property
    def logits(self) -> torch.Tensor:
        """fp32 [rows of the largest step, vocab]: the first rows are those of the step that ran last."""
        assert self._logits is not None
        return self._logits

    @property
    def captured(self) -> int:
        """The number of graphs so far."""
        return sum(each.step.is_captured for each in self._buckets.values())

    def free(self) -> None:
        """Free all graphs. Steps that come after would capture new ones."""
        self._buckets.clear()

    def run(self, batch: Batch, sink: SelectionSink | None = None, plan: CheckPlan | None = None) -> torch.Tensor:
        """fp32 [B, vocab] logits of a step of decodes, valid until the next step."""
        bucket = self._bucket(batch, sink is not None)
        if bucket not in self._buckets:
            self._buckets[bucket] = self._make(*bucket)
        self.inputs, step, record, self.greedy = self._buckets[bucket]
        self.is_new = not step.is_captured
        self.inputs.fill(batch, plan, 0 if record is None else record.next_place(), self.greedy.next_place())
        logits, self.hidden = step.run()
        if record is not None and sink is not None:
            sink.decodes(record.latest())
        return logits[: batch.tokens]

    def is_quick(self, batch: Batch, recorded: bool) -> bool:
        """Whether the step's bucket has a graph, or has been given up and will never have one. recorded: with selections."""
        bucket = self._buckets.get(self._bucket(batch, recorded))
        return bucket is not None and (bucket.step.is_captured or bucket.step.is_given_up)

    def _bucket(self, batch: Batch, recorded: bool) -> tuple[int, int, bool]:
        longest = max(map(add, batch.starts, batch.counts))
        rows = self._rows(len(batch.requests), batch.tokens, batch.most_drafts)
        return rows, self.contexts[bisect_left(self.contexts, longest)], recorded

    def _rows(self, requests: int, tokens: int, drafts: int) -> int:
        """Those of a step's bucket. drafts: the most that it verifies or makes for a request."""
        if drafts:
            whole = self.batches[bisect_left(self.batches, requests)] * (1 + drafts)
            rows = self.batches[min(bisect_left(self.batches, whole), len(self.batches) - 1)]
            if tokens <= rows <= tokens + _MOST_PADDING:
                return rows
        return self.batches[bisect_left(self.batches, tokens)]

    def _make(self, size: int, context: int, recorded: bool) -> Bucket:
        inputs = DecodeInputs(size, context, self.scratch_page, self.staged, self.cache_check is not None)
        needed = recorded and context > self.topk  # else everything is selected
        record = self._records.of(size) if needed else None
        greedy = GreedyTokens(size, self.staged)
        step = CapturedStep(partial(self._step, inputs, record, greedy), self.capture)
        return Bucket(inputs, step, record, greedy)

    def _step(self, inputs: DecodeInputs, record: DecodeRecord | None, greedy: GreedyTokens) -> _Outputs:
        """One forward pass. Each layer writes what it selects to the record, which every replay overwrites."""
        tokens, positions, metadata = inputs.read(greedy.given)
        if record is not None:
            metadata = replace(metadata, selections=record.device)
        outputs = self._forward(tokens, positions, metadata, inputs)
        greedy.find(outputs[0], inputs.greedy_place, inputs.stage)
        if record is not None:
            record.copy_to_ring(inputs.record_place)
        return outputs

    def _forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, inputs: DecodeInputs
    ) -> _Outputs:
        if self.cache_check is None:
            return self._outputs(self.forward(tokens, positions, metadata, self.caches))
        stamps = self.cache_check.begin(tokens, positions, metadata.slots, metadata.block_table, metadata.query_lengths)
        metadata = replace(metadata, stamps=stamps)
        outputs = self._outputs(self.forward(tokens, positions, metadata, self.caches))
        self.cache_check.end_decodes(metadata, inputs.check_words)
        return outputs

    def _outputs(self, found: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> _Outputs:
        """The logits, in memory that all graphs share: there are many, and 64 rows of the released model's are 33 MB."""
        logits, hidden = (found, None) if isinstance(found, torch.Tensor) else found
        if self._logits is None:
            self._logits = logits.new_empty(self.batches[-1], logits.shape[1])
        shared = self._logits[: len(logits)]
        return shared.copy_(logits), hidden
