"""Decode steps as CUDA graphs: one for each bucket of batch size and context length, captured when first needed.

A step of B decodes runs in the smallest bucket that holds it; one with drafts to verify has as many rows as tokens. Rows past B
are padding: one token each, in a scratch page that belongs to no request. What changes from step to step (tokens, positions,
slots, lengths, block table) is first copied into tensors of the graph. The kernels read lengths on the device, so the graph stays
valid while they grow. Tokens that the previous step has sampled, and its drafts, are read from the device, where it staged them, so
the host does not wait for them.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from ...kernels.registry import choose_implementation, leading_dtype
from ...model.metadata import PAGE_SIZE, AttentionMetadata, LayerCache, SelectionSink
from ...model.transformer import Transformer
from ..params import Request
from .batch import Batch
from .cache_check import DECODE_WORDS, CacheCheck, CheckPlan
from .decode_record import DecodeRecord
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


class DecodeInputs:
    """The inputs of a step of at most `batch` rows with contexts of at most `context` tokens, in tensors that stay in place.

    `staged`: where the device finds tokens that the host does not know. `checked`: with the words of a cache check.
    """

    def __init__(
        self, batch: int, context: int, scratch_page: int, staged: StagedTokens, checked: bool = False
    ) -> None:
        self.batch, self.context, self.scratch_page, self.staged = batch, context, scratch_page, staged
        device, pages = staged.device, -(-context // PAGE_SIZE)
        # The host's copies are pinned so that copying does not wait. int64 [5, B]: tokens, positions, slots, places in `staged`
        # (-1: the token is the given one), and the first row of each request (-1 after the last one); then the words of a check.
        # int32: lengths [B], block table [B, P].
        on_gpu = device.type == "cuda"
        host_wide = torch.zeros(5 * batch + (DECODE_WORDS if checked else 0), dtype=torch.int64, pin_memory=on_gpu)
        host_narrow = torch.empty(batch * (1 + pages), dtype=torch.int32, pin_memory=on_gpu)
        self._host = (host_wide, host_narrow)
        self._device = (torch.empty_like(host_wide, device=device), torch.empty_like(host_narrow, device=device))
        self._copied = torch.cuda.Event() if on_gpu else None
        self._wide = host_wide[: 5 * batch].view(5, batch).numpy()
        self._words = host_wide[5 * batch :].numpy()
        self._words[1:] = -1
        self._truths = 0  # in the words
        self._lengths = host_narrow[:batch].numpy()
        self._table = host_narrow[batch:].view(batch, pages).numpy()
        self._table[:] = scratch_page
        # Per row of the block table: (id, admission) of the request whose pages it holds, and how many of them.
        self._held: list[tuple[tuple[int, int], int] | None] = [None] * batch
        self._used = batch
        self.fill(Batch((), (), (), 0, ()))

    def fill(self, batch: Batch, plan: CheckPlan | None = None) -> None:
        """Copy a step's inputs to the device. The rows that it does not need become padding."""
        if self._copied is not None:
            self._copied.synchronize()  # until the previous step's copies have left the pinned memory
        used = self._used
        self._used = max(used, batch.tokens)  # the rows that the next step has to pad if this one fails here
        row = 0
        for entry, (request, start, rows) in enumerate(zip(batch.requests, batch.starts, batch.counts, strict=True)):
            self._wide[4, entry] = row
            for offset in range(rows):
                position = start + offset
                self._hold(row, request)
                slot = request.pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
                token, place = 0, -1
                if offset:
                    place = self.staged.place_of_draft(batch.draft_rows[entry], offset - 1)
                elif batch.sampled_rows:
                    place = batch.sampled_rows[entry]
                else:
                    token = request.tokens[start]
                self._wide[:4, row] = token, position, slot, place
                self._lengths[row] = position + 1
                row += 1
        self._wide[4, len(batch.requests) :] = -1
        for row in range(batch.tokens, used):
            self._wide[:4, row] = 0, 0, self.scratch_page * PAGE_SIZE + row % PAGE_SIZE, -1
            self._lengths[row] = 1
            self._table[row, 0] = self.scratch_page
            self._held[row] = None
        self._used = batch.tokens
        if plan is not None:
            used, self._truths = 3 * self._truths, len(plan.truths)
            self._words[0] = plan.step
            if used or self._truths:
                self._words[1 : 1 + max(used, 3 * self._truths)] = -1
                self._words[1 : 1 + 3 * self._truths] = plan.truths.ravel()
        for host, device in zip(self._host, self._device, strict=True):
            device.copy_(host, non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def _hold(self, row: int, request: Request) -> None:
        """Have the request's pages in a row of the block table, and the scratch page behind them."""
        holder, held = (request.id, request.admission), self._held[row]
        known = held is not None and held[0] == holder
        done = held[1] if held is not None and known else 0
        count = min(len(request.pages), self._table.shape[1])
        if done < count:  # only new pages: a long context has thousands
            self._table[row, done:count] = request.pages[done:count]
            self._held[row] = (holder, count)
        if not known:
            self._table[row, count:] = self.scratch_page

    def read(self) -> tuple[torch.Tensor, torch.Tensor, AttentionMetadata]:
        """(tokens, positions, metadata) for the model. The context lengths on the host are the bucket's upper bound."""
        given, positions, slots, places, _ = self._device[0][: 5 * self.batch].view(5, self.batch).unbind()
        narrow = self._device[1]
        tokens = torch.where(places < 0, given, self.staged.all[places.clamp(min=0)])
        lengths = narrow[: self.batch]
        metadata = AttentionMetadata(
            query_lengths=(1,) * self.batch,
            context_lengths=(self.context,) * self.batch,
            decodes=self.batch,
            block_table=narrow[self.batch :].view(self.batch, -1),
            lengths=lengths,
            slots=slots,
            logit_rows=torch.arange(self.batch, device=lengths.device),
            max_context=self.context,
        )
        return tokens, positions, metadata

    @property
    def check_words(self) -> torch.Tensor:
        """int64 [DECODE_WORDS] on the device, of the step's CheckPlan."""
        return self._device[0][5 * self.batch :]

    @property
    def first_rows(self) -> torch.Tensor:
        """int64 [B] on the device: the first row of each request of the step, -1 after the last one."""
        return self._device[0][4 * self.batch : 5 * self.batch]


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
        self.topk, self.layers = topk, len(caches) if layers is None else layers
        self.forward = forward
        self.caches = caches
        self.scratch_page = scratch_page
        self.device = device
        self.cache_check = cache_check
        self.batches = batch_buckets(max_rows or max_sequences)
        self.contexts = context_buckets(topk, max_model_len)
        self.staged = StagedTokens(max_sequences, device)
        # Of the step that ran last, in tensors that stay in place until another one is captured.
        self.inputs: DecodeInputs
        self.hidden: torch.Tensor | None = None  # [B, D], if `forward` returns hidden states
        # By bucket of batch size, bucket of context, and whether selections are recorded.
        self._captured: dict[
            tuple[int, int, bool], tuple[DecodeInputs, Callable[[], _Outputs], DecodeRecord | None]
        ] = {}
        self._logits: torch.Tensor | None = None  # fp32 [rows, vocab], of the step that ran last
        # All graphs share one memory pool, because only one runs at a time.
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        # One stream for all warm-up runs: cuBLAS keeps 32 MiB for each stream that it has seen.
        self._warm_up_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def captured(self) -> int:
        """The number of graphs so far."""
        return len(self._captured)

    def run(self, batch: Batch, sink: SelectionSink | None = None, plan: CheckPlan | None = None) -> torch.Tensor:
        """fp32 [B, vocab] logits of a step of decodes, valid until the next step."""
        size = batch.tokens
        longest = max(start + count for start, count in zip(batch.starts, batch.counts, strict=True))
        bucket = (
            self.batches[bisect_left(self.batches, size)],
            self.contexts[bisect_left(self.contexts, longest)],
            sink is not None,
        )
        if bucket not in self._captured:
            inputs = DecodeInputs(*bucket[:2], self.scratch_page, self.staged, self.cache_check is not None)
            needed = sink is not None and bucket[1] > self.topk  # else everything is selected
            record = DecodeRecord(bucket[0], self.layers, self.topk, self.device) if needed else None
            self._captured[bucket] = (inputs, self.capture(partial(self._step, inputs, record)), record)
        self.inputs, replay, record = self._captured[bucket]
        self.inputs.fill(batch, plan)
        logits, self.hidden = replay()
        if record is not None and sink is not None:
            sink.decodes(*record.fetch(sink.rows))
        return logits[:size]

    def _step(self, inputs: DecodeInputs, record: DecodeRecord | None) -> _Outputs:
        """One forward pass. Each layer writes what it selects to the record, which every replay overwrites."""
        tokens, positions, metadata = inputs.read()
        if record is not None:
            metadata = replace(metadata, record=record.device)
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
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = step()

        def replay() -> T:
            graph.replay()
            return outputs

        return replay
