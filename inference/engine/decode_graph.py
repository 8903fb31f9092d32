"""Decode steps as CUDA graphs: one for each bucket of batch size and context length, captured when first needed.

A step of B decodes runs in the smallest bucket that holds it. Rows past B are padding: one token each, in a scratch page that
belongs to no request. What changes from step to step (tokens, positions, slots, lengths, block table) is first copied into
tensors of the graph. The kernels read lengths on the device, so the graph stays valid while they grow. Tokens that the previous
step has sampled are read from the device, where it staged them, so the host does not wait for them.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from ...kernels.registry import choose_implementation, leading_dtype
from ...model.metadata import PAGE_SIZE, AttentionMetadata, LayerCache, Selection, SelectionCallback
from ...model.transformer import Transformer
from .cache_check import DECODE_WORDS, CacheCheck, CheckPlan
from .scheduler import Batch

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
    """The inputs of a step of at most `batch` decodes with contexts of at most `context` tokens, in tensors that stay in place.

    `sampled`: int64 [max_sequences], the tokens that the previous step has sampled. `checked`: with the words of a cache check.
    """

    def __init__(
        self, batch: int, context: int, scratch_page: int, sampled: torch.Tensor, checked: bool = False
    ) -> None:
        self.batch, self.context, self.scratch_page, self.sampled = batch, context, scratch_page, sampled
        device, pages = sampled.device, -(-context // PAGE_SIZE)
        # The host's copies are pinned so that copying does not wait. int64 [4, B]: tokens, positions, slots, rows of `sampled`
        # (-1: the token is the given one); then the words of a check. int32: lengths [B], block table [B, P].
        on_gpu = device.type == "cuda"
        host_wide = torch.zeros(4 * batch + (DECODE_WORDS if checked else 0), dtype=torch.int64, pin_memory=on_gpu)
        host_narrow = torch.empty(batch * (1 + pages), dtype=torch.int32, pin_memory=on_gpu)
        self._host = (host_wide, host_narrow)
        self._device = (torch.empty_like(host_wide, device=device), torch.empty_like(host_narrow, device=device))
        self._copied = torch.cuda.Event() if on_gpu else None
        self._wide = host_wide[: 4 * batch].view(4, batch).numpy()
        self._words = host_wide[4 * batch :].numpy()
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
        self._used = max(used, len(batch.requests))  # the rows that the next step has to pad if this one fails here
        for row, (request, start) in enumerate(zip(batch.requests, batch.starts, strict=True)):
            holder, held = (request.id, request.admission), self._held[row]
            done = held[1] if held is not None and held[0] == holder else 0
            count = start // PAGE_SIZE + 1
            if done < count:  # only new pages: a long context has thousands
                self._table[row, done:count] = request.pages[done:count]
                self._held[row] = (holder, count)
            slot = request.pages[count - 1] * PAGE_SIZE + start % PAGE_SIZE
            self._wide[1:3, row] = start, slot
            if batch.sampled_rows:
                self._wide[0, row], self._wide[3, row] = 0, batch.sampled_rows[row]
            else:
                self._wide[0, row], self._wide[3, row] = request.tokens[start], -1
            self._lengths[row] = start + 1
        for row in range(len(batch.requests), used):
            self._wide[:, row] = 0, 0, self.scratch_page * PAGE_SIZE + row % PAGE_SIZE, -1
            self._lengths[row] = 1
            self._table[row, 0] = self.scratch_page
            self._held[row] = None
        self._used = len(batch.requests)
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

    def read(self) -> tuple[torch.Tensor, torch.Tensor, AttentionMetadata]:
        """(tokens, positions, metadata) for the model. The context lengths on the host are the bucket's upper bound."""
        given, positions, slots, rows = self._device[0][: 4 * self.batch].view(4, self.batch).unbind()
        narrow = self._device[1]
        tokens = torch.where(rows < 0, given, self.sampled[rows.clamp(min=0)])
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
        return self._device[0][4 * self.batch :]


class DecodeGraphs:
    """Runs steps of decodes as CUDA graphs of the model's `forward`. On a CPU it calls `forward` with the same inputs instead.

    `scratch_page` is a page of `caches` that the pool does not hand out. Contexts of up to `topk` tokens need no selection.
    """

    def __init__(
        self,
        forward: Callable[..., torch.Tensor],
        caches: list[LayerCache],
        scratch_page: int,
        max_sequences: int,
        max_model_len: int,
        topk: int,
        device: torch.device,
        cache_check: CacheCheck | None = None,
    ) -> None:
        self.forward = forward
        self.caches = caches
        self.scratch_page = scratch_page
        self.device = device
        self.cache_check = cache_check
        self.batches = batch_buckets(max_sequences)
        self.contexts = context_buckets(topk, max_model_len)
        self.sampled = torch.zeros(max_sequences, dtype=torch.int64, device=device)
        # By bucket of batch size, bucket of context, and whether selections are recorded.
        self._captured: dict[
            tuple[int, int, bool], tuple[DecodeInputs, Callable[[], torch.Tensor], dict[int, Selection]]
        ] = {}
        # All graphs share one memory pool, because only one runs at a time.
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        # One stream for all warm-up runs: cuBLAS keeps 32 MiB for each stream that it has seen.
        self._warm_up_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def captured(self) -> int:
        """The number of graphs so far."""
        return len(self._captured)

    def run(
        self, batch: Batch, on_selection: SelectionCallback | None = None, plan: CheckPlan | None = None
    ) -> torch.Tensor:
        """fp32 [B, vocab] logits of a step of decodes, valid until the next step."""
        size, longest = len(batch.requests), max(batch.starts) + 1
        bucket = (
            self.batches[bisect_left(self.batches, size)],
            self.contexts[bisect_left(self.contexts, longest)],
            on_selection is not None,
        )
        if bucket not in self._captured:
            inputs = DecodeInputs(*bucket[:2], self.scratch_page, self.sampled, self.cache_check is not None)
            selections: dict[int, Selection] = {}
            step = partial(self._step, inputs, selections if on_selection is not None else None)
            self._captured[bucket] = (inputs, step if self._pool is None else self._capture(step), selections)
        inputs, replay, selections = self._captured[bucket]
        inputs.fill(batch, plan)
        logits = replay()[:size]
        if on_selection is not None:
            rows = torch.arange(size)
            for layer, (positions, scores) in selections.items():
                on_selection(layer, rows, Selection(positions[:size], None if scores is None else scores[:size]))
        return logits

    def _step(self, inputs: DecodeInputs, selections: dict[int, Selection] | None) -> torch.Tensor:
        """One forward pass. Each layer's selection goes to `selections`, in tensors that every replay overwrites."""
        tokens, positions, metadata = inputs.read()
        if selections is not None:
            metadata = replace(metadata, on_selection=lambda layer, _, selection: selections.update({layer: selection}))
        if self.cache_check is None:
            return self.forward(tokens, positions, metadata, self.caches)
        stamps = self.cache_check.begin(tokens, positions, metadata.slots, metadata.block_table, metadata.query_lengths)
        metadata = replace(metadata, stamps=stamps)
        logits = self.forward(tokens, positions, metadata, self.caches)
        self.cache_check.end_decodes(metadata, inputs.check_words)
        return logits

    def _capture(self, step: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        side, current = self._warm_up_stream, torch.cuda.current_stream(self.device)
        assert side is not None
        side.wait_stream(current)
        with torch.cuda.stream(side):  # compiles kernels and sets up libraries, which a capture does not allow
            step()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may call CUDA during the capture, as NCCL's watchdog thread does.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            logits = step()

        def replay() -> torch.Tensor:
            graph.replay()
            return logits

        return replay
