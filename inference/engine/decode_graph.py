"""Decode steps as CUDA graphs: one for each bucket of batch size and context length, captured when first needed.

A step of B decodes runs in the smallest bucket that holds it; one with drafts to verify has as many rows as tokens. Rows past B
are padding: one token each, in a scratch page that belongs to no request. `DecodeInputs` holds what changes from step to step. The
kernels read lengths on the device, so the graph stays valid while they grow.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple, TypeVar

import torch

from ...kernels.registry import choose_implementation, leading_dtype
from ...model.metadata import AttentionMetadata, LayerCache, SelectionSink
from ...model.transformer import Transformer
from .batch import Batch
from .cache_check import CacheCheck
from .check_plan import CheckPlan
from .decode_inputs import DecodeInputs
from .decode_record import DecodeRecord, DecodeRecords
from .greedy import GreedyTokens
from .inputs import StagedTokens

T = TypeVar("T")
_Outputs = tuple[torch.Tensor, torch.Tensor | None]  # logits; hidden states, if the model returns them

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


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures on a device: cuBLAS keeps memory for each stream that it has seen."""
    return torch.cuda.Stream(device)


class _Captured(NamedTuple):
    """The graph of a bucket, with what it reads and writes."""

    inputs: DecodeInputs
    replay: Callable[[], _Outputs]
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
        # Of the step that ran last, in tensors that stay in place until another one is captured.
        self.inputs: DecodeInputs
        self.greedy: GreedyTokens
        self.hidden: torch.Tensor | None = None  # [B, D], if `forward` returns hidden states
        self.is_new = False  # whether its graph was captured for it
        # By bucket of batch size, bucket of context, and whether selections are recorded.
        self._captured: dict[tuple[int, int, bool], _Captured] = {}
        self._logits: torch.Tensor | None = None  # fp32 [rows, vocab], of the step that ran last
        # All graphs share one memory pool, because only one runs at a time.
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        # One stream for all warm-up runs: cuBLAS keeps 32 MiB for each stream that it has seen.
        self._warm_up_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def captured(self) -> int:
        """The number of graphs so far."""
        return len(self._captured)

    def free(self) -> None:
        """Free all graphs. Steps that come after would capture new ones."""
        self._captured.clear()

    def run(self, batch: Batch, sink: SelectionSink | None = None, plan: CheckPlan | None = None) -> torch.Tensor:
        """fp32 [B, vocab] logits of a step of decodes, valid until the next step."""
        size = batch.tokens
        longest = max(start + count for start, count in zip(batch.starts, batch.counts, strict=True))
        bucket = (
            self.batches[bisect_left(self.batches, size)],
            self.contexts[bisect_left(self.contexts, longest)],
            sink is not None,
        )
        self.is_new = bucket not in self._captured
        if self.is_new:
            inputs = DecodeInputs(*bucket[:2], self.scratch_page, self.staged, self.cache_check is not None)
            needed = sink is not None and bucket[1] > self.topk  # else everything is selected
            record = self._records.of(bucket[0]) if needed else None
            if record is not None:
                inputs.fill(Batch((), (), (), 0, ()), record_place=record.scratch_place)
            greedy = GreedyTokens(bucket[0], self.staged)
            replay = self.capture(partial(self._step, inputs, record, greedy))
            self._captured[bucket] = _Captured(inputs, replay, record, greedy)
        self.inputs, replay, record, self.greedy = self._captured[bucket]
        self.inputs.fill(batch, plan, 0 if record is None else record.next_place(), self.greedy.next_place())
        logits, self.hidden = replay()
        if record is not None and sink is not None:
            sink.decodes(record.latest())
        return logits[:size]

    def _step(self, inputs: DecodeInputs, record: DecodeRecord | None, greedy: GreedyTokens) -> _Outputs:
        """One forward pass. Each layer writes what it selects to the record, which every replay overwrites."""
        tokens, positions, metadata = inputs.read(greedy.given)
        if record is not None:
            metadata = replace(metadata, record=record.device)
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

    def capture(self, step: Callable[[], T]) -> Callable[[], T]:
        """A function that replays the step as a CUDA graph and returns what it has returned; on a CPU, the step itself.

        The step runs once before that.
        """
        if self._pool is None:
            return step
        side, current = self._warm_up_stream, torch.cuda.current_stream(self.device)
        assert side is not None
        side.wait_stream(current)
        with torch.cuda.stream(side):  # compiles kernels and sets up libraries, which a capture does not allow
            step()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may call CUDA during the capture, as NCCL's watchdog thread does.
        stream = _capture_stream(side.device)
        with (
            torch.cuda.device(side.device),  # this thread's may be another
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            outputs = step()

        def replay() -> T:
            graph.replay()
            return outputs

        return replay
