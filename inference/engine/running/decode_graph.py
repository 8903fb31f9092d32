"""Decode steps as CUDA graphs: one for each bucket of batch size and context length, captured when needed a second time.

A step of B decodes runs in the smallest bucket that holds it. A step that verifies drafts has a row for each token. Its bucket has
room for the same number of drafts for every request that the bucket could hold. So few graphs serve answers that end one by one
and changing numbers of drafts. Rows past the step's own are padding: one token each, in a scratch page that belongs to no request.
If ranks divide the sequences, each has an equal part of a bucket's rows.
`DecodeInputs` holds what changes from step to step. The kernels read lengths on the device, so a graph stays valid as they grow.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from operator import add

import numpy as np
import torch

from ....kernels.availability import leading_dtype
from ....kernels.registry import choose_implementation
from ....model.expert_slots import LASTING_TOKENS
from ....model.metadata import LayerCache
from ....model.transformer import Transformer
from ..sampling.graph_tokens import GreedyTokens
from ..scheduling.batch import Batch
from .captured_step import CapturedStep, GraphMemory
from .inputs import DecodeInputs, StagedTokens
from .observer import Plan, StepObserver
from .selection import DecodeRecord, DecodeRecords, SelectionRecorder

_Outputs = tuple[torch.Tensor, torch.Tensor | None]  # logits; hidden states, if the model returns them

# The most padding rows of a step: so each has a slot of its own in the scratch page. If ranks divide sequences, two may share one.
_MOST_PADDING = 64
_LEAST_SHARE = 8  # Buckets cover at least this many rows of each rank that divides sequences.
_FIRST_CONTEXT = 4096  # tokens; each further bucket of contexts is four times as long


def can_capture(model: object) -> bool:
    """Tell whether the model's decode steps can be CUDA graphs: no operation of them may make the host wait for the GPU.

    Offloaded experts do, between graphs.
    """
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


@dataclass(eq=False)
class Bucket:
    """A bucket's step, with its inputs and outputs."""

    inputs: DecodeInputs
    record: DecodeRecord | None
    greedy: GreedyTokens
    step: CapturedStep[_Outputs]
    # Outputs of the bucket's latest step. Once captured, these tensors stay in place; all buckets share the logits' memory.
    logits: torch.Tensor | None = None  # fp32 [rows, vocab]
    hidden: torch.Tensor | None = None  # [rows, D], if `forward` returns hidden states
    is_new: bool = True  # the step had no graph before it ran


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
        observers: Sequence[StepObserver] = (),
        max_rows: int | None = None,
        layers: int | None = None,
        padded: bool = True,
        data_ranks: int = 1,
    ) -> None:
        """max_rows: of a step; None: one for each sequence. layers: whose selections can be recorded; None: all.

        padded: False gives each number of rows up to LASTING_TOKENS its own bucket, because padding chooses experts, too.
        data_ranks: ranks that divide the sequences. A step of which one has more than 1.5 times its share may fit no bucket.
        """
        self.topk = topk
        self.forward = forward
        self.caches = caches
        self.scratch_page = scratch_page
        self.device = device
        self.observers = observers
        most = max_rows or max_sequences
        self.data_ranks = data_ranks
        if data_ranks > 1:
            most = min(most, max(_LEAST_SHARE, -(-most * 3 // (2 * data_ranks))))
        self.batches = batch_buckets(most) if padded else list(range(1, min(most, LASTING_TOKENS) + 1))
        self.batches = [data_ranks * size for size in self.batches]
        self.contexts = context_buckets(topk, max_model_len)
        self.staged = StagedTokens(max_sequences, device)
        self._records = DecodeRecords(self.batches[-1], len(caches) if layers is None else layers, topk, device)
        # By bucket of batch size, bucket of context, and whether selections are recorded.
        self._buckets: dict[tuple[int, int, bool], Bucket] = {}
        self._logits: torch.Tensor | None = None  # fp32 [rows of the largest step, vocab], which all buckets share
        self.capture = GraphMemory(device).capture

    @property
    def captured(self) -> int:
        """The number of graphs so far."""
        return sum(each.step.is_captured for each in self._buckets.values())

    def free(self) -> None:
        """Free all graphs. Steps that come after would capture new ones."""
        for bucket in self._buckets.values():
            bucket.step.free()
        self._buckets.clear()

    def run(self, batch: Batch, recorder: SelectionRecorder | None = None, plans: Sequence[Plan] = ()) -> Bucket:
        """Run a step of decodes. The first rows of its logits are the step's own, until any bucket runs again."""
        key = self._bucket(batch, recorder is not None)
        if key not in self._buckets:
            self._buckets[key] = self._make(*key)
        bucket = self._buckets[key]
        record, bucket.is_new = bucket.record, not bucket.step.is_captured
        record_place = 0 if record is None else record.next_place()
        words = [each.before_graph(batch, plan) for each, plan in zip(self.observers, plans, strict=True)]
        bucket.inputs.fill(batch, np.concatenate(words) if words else None, record_place, bucket.greedy.next_place())
        bucket.logits, bucket.hidden = bucket.step.run()
        if record is not None and recorder is not None:
            recorder.decodes(record.at(record_place))
        return bucket

    def fits(self, batch: Batch) -> bool:
        """Tell whether a bucket has room for the step."""
        return self._needed_rows(batch) <= self.batches[-1]

    def is_quick(self, batch: Batch, recorded: bool) -> bool:
        """Tell whether the step's bucket has a graph, or has been given up and will never have one. recorded: with selections."""
        if not self.fits(batch):
            return False
        bucket = self._buckets.get(self._bucket(batch, recorded))
        return bucket is not None and (bucket.step.is_captured or bucket.step.is_given_up)

    def _bucket(self, batch: Batch, recorded: bool) -> tuple[int, int, bool]:
        longest = max(map(add, batch.starts, batch.counts))
        rows = self._rows(len(batch.requests), self._needed_rows(batch), batch.most_drafts)
        context = self.contexts[bisect_left(self.contexts, longest)]
        return rows, context, recorded and context > self.topk  # shorter contexts are selected whole

    def _needed_rows(self, batch: Batch) -> int:
        if self.data_ranks == 1:
            return batch.tokens
        return self.data_ranks * max(Counter([request.cache.rank for request in batch.requests]).values())

    def _rows(self, requests: int, tokens: int, drafts: int) -> int:
        """Return the rows of a step's bucket. drafts: the most that the step verifies or makes for a request."""
        if drafts:
            whole = self.batches[bisect_left(self.batches, requests)] * (1 + drafts)
            rows = self.batches[min(bisect_left(self.batches, whole), len(self.batches) - 1)]
            if tokens <= rows <= tokens + _MOST_PADDING:
                return rows
        return self.batches[bisect_left(self.batches, tokens)]

    def _make(self, size: int, context: int, recorded: bool) -> Bucket:
        words = sum(each.words for each in self.observers)
        inputs = DecodeInputs(size, context, self.scratch_page, self.staged, words, self.data_ranks)
        record = self._records.of(size) if recorded else None
        greedy = GreedyTokens(size, self.staged)
        step = CapturedStep(partial(self._step, inputs, record, greedy), self.capture)
        return Bucket(inputs, record, greedy, step)

    def _step(self, inputs: DecodeInputs, record: DecodeRecord | None, greedy: GreedyTokens) -> _Outputs:
        """Run one forward pass. Each layer writes its selection to the record, which every replay overwrites."""
        given = inputs.read(greedy.given)
        if record is not None:
            given = given._replace(metadata=replace(given.metadata, selections=record.device))
        words = inputs.views.words.split([each.words for each in self.observers]) if self.observers else ()
        with ExitStack() as watching:
            for each, own in zip(self.observers, words, strict=True):
                given = watching.enter_context(each.in_graph(own, given))
            tokens, positions, metadata, _ = given
            outputs = self._outputs(self.forward(tokens, positions, metadata, self.caches))
        greedy.find(outputs[0], inputs.views.token_place, inputs.stage)
        if record is not None:
            record.copy_to_host(inputs.views.record_place)
        return outputs

    def _outputs(self, found: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> _Outputs:
        """Copy the logits to memory that all graphs share: there are many graphs, and 64 rows of the released model are 33 MB."""
        logits, hidden = (found, None) if isinstance(found, torch.Tensor) else found
        if self._logits is None:
            self._logits = logits.new_empty(self.batches[-1], logits.shape[1])
        shared = self._logits[: len(logits)]
        return shared.copy_(logits), hidden
