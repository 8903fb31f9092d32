"""From a batch to logits, and from there to tokens and drafts: the runner of one rank, and the steps that it launches."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast

import torch

from ....model.config import ModelConfig, Precision
from ....model.metadata import LayerCache
from ....model.stages import is_traced
from ....model.transformer import Transformer, is_offloaded
from ...config import MAX_DRAFT_TOKENS, Limits, most_rows
from ..drafting.draft_graph import DraftGraphs
from ..drafting.drafter import Drafter, StepRows
from ..request import Request
from ..sampling.graph_tokens import GreedySample, SamplingGraphs
from ..sampling.noise import DraftNoise
from ..scheduling.batch import Batch
from ..step import Choices, Share, Step
from .cache import SCRATCH_PAGES, allocate
from .decode_graph import Bucket, DecodeGraphs, can_capture
from .eager_step import EagerStep, prepare
from .inputs import Inputs, StagedTokens
from .observer import Model, Plan, Setup, StepObserver, make_observers
from .selection import DecodeRecord, SelectionRecorder


def use_threads(cores: int, batch: Batch) -> None:
    """Use all cores for a step with prompt tokens, which keep them busy, and one fewer for a step with only decodes.

    Idle OpenMP threads spin. On two cores, streaming ran at 67 % of the engine's own speed with two such threads, at 98 % with one;
    a prompt takes 1.6 to 1.9 times as long with one. OpenMP counts for each thread by itself: call in the one that runs the step.
    """
    count = cores if batch.decodes < len(batch.requests) else max(cores - 1, 1)
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


class Runner:
    """Runs batches through the model, over caches that it owns. Steps of decodes go to `graphs`, if given."""

    def __init__(
        self,
        model: Model,
        caches: list[LayerCache],
        device: torch.device | str = "cpu",
        graphs: DecodeGraphs | None = None,
        observers: list[StepObserver] | None = None,
        drafter: Drafter | None = None,
        max_sequences: int = 0,
        scratch_page: int = 0,
        cores: int | None = None,
        data_ranks: int = 1,
    ) -> None:
        """caches: with that of the MTP layer, if there is a drafter. max_sequences and scratch_page, a page that the
        pool does not hand out, are only used for drafts.
        cores: for `use_threads`; by default every step has the process's number of threads. data_ranks: as in Limits."""
        self.model = model
        self.caches = caches
        self.device = torch.device(device)
        self.graphs = graphs
        self.observers = [] if observers is None else observers  # shared with `graphs`
        self.drafter = drafter
        staged = StagedTokens(max_sequences, self.device) if graphs is None else graphs.staged
        self.drafts = staged.drafts
        self.sampled = staged.sampled  # int64 [max_sequences] on the device: the staged tokens come first
        self._cores, self._data_ranks = cores, data_ranks
        self.draft_graphs = None if graphs is None or drafter is None else DraftGraphs(drafter, graphs)
        self.sampling_graphs = None
        if graphs is not None:
            self.sampling_graphs = SamplingGraphs(graphs.batches[-1], self.device, graphs.capture)
        self._scratch_page = scratch_page
        self._record: DecodeRecord | None = None  # of steps without graphs
        self._open: weakref.ref[Step] | None = None  # the step that the next launch ends

    @property
    def supports_async_scheduling(self) -> bool:
        if self.graphs is None or is_offloaded(self.model):  # whose experts the host waits for
            return False
        return not any([each.by_layer for each in self.observers])

    def is_quick(self, batch: Batch) -> bool:
        assert self.graphs is not None
        return self.graphs.is_quick(batch, batch.is_inspected)

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        self.sampled[: len(tokens)] = tokens

    @property
    def max_draft_tokens(self) -> int:
        return 0 if self.drafter is None else MAX_DRAFT_TOKENS

    def errors(self, requests: Sequence[Request]) -> dict[int, str]:
        return {id: error for each in self.observers for id, error in each.errors(requests).items()}

    def free_graphs(self) -> None:
        """Free the CUDA graphs, because a group of ranks waits at its end for collectives in graphs."""
        for graphs in (self.graphs, self.draft_graphs, self.sampling_graphs):
            if graphs is not None:
                graphs.free()

    def plan(self, batch: Batch) -> tuple[Plan, ...]:
        """Return the observers' plans for the step, which rank 0 makes for all ranks."""
        in_graph = self._in_graph(batch)
        return tuple([each.plan(batch, in_graph) for each in self.observers])

    @contextmanager
    def watched_by(self, observer: StepObserver) -> Iterator[None]:
        """Let another observer, which must have no words, watch the steps in the block. Call between two steps."""
        assert not observer.words
        self.observers.append(observer)
        try:
            yield
        finally:
            self.observers.remove(observer)

    @torch.inference_mode()
    def run(
        self,
        batch: Batch,
        recorder: SelectionRecorder | None = None,
        plans: Sequence[Plan] | None = None,
        share: Share | None = None,
    ) -> Step:
        """Like ModelRunner.run. recorder: None: one if it is needed. plans: None: this rank's own. share: see Step."""
        if self._cores is not None:
            use_threads(self._cores, batch)
        before = None if self._open is None else self._open()
        if before is not None:
            before.end()
        if recorder is None and batch.is_inspected:
            recorder = SelectionRecorder(batch)
        if plans is None:
            plans = self.plan(batch)
        step: Step
        in_part = recorder is not None and self._data_ranks > 1  # a graph's record would have only this rank's rows
        if self.graphs is not None and self._in_graph(batch) and not in_part:
            step = GraphStep(self, batch, self.graphs.run(batch, recorder, plans), recorder, share)
        else:
            step = self._run_eagerly(batch, recorder, plans, share)
        if recorder is not None:
            recorder.try_fetch()
        self._open = weakref.ref(step)
        return step

    def _in_graph(self, batch: Batch) -> bool:
        if self.graphs is None or is_traced() or batch.decodes < len(batch.requests) or not all(batch.logit_counts):
            return False
        if not self.graphs.fits(batch):
            return False
        if any(request.policy is not None for request in batch.requests):
            return False
        return all([each.allows_graph(batch) for each in self.observers])

    def _run_eagerly(
        self, batch: Batch, recorder: SelectionRecorder | None, plans: Sequence[Plan], share: Share | None
    ) -> EagerStep:
        """Run a step without a graph."""
        assert not batch.sampled_rows
        record = None if recorder is None else self._decode_record(batch)
        on_selection = recorder if record is None else None
        inputs = prepare(batch, self.drafts, on_selection, self._scratch_page, self._data_ranks)
        if record is not None:
            inputs = inputs._replace(metadata=replace(inputs.metadata, selections=record.device[: batch.tokens]))
        with ExitStack() as watching:
            watched = inputs
            for each, plan in zip(self.observers, plans, strict=True):
                watched = watching.enter_context(each.step(batch, plan, watched))
            logits, hidden = self._forward(batch, watched)
        if record is not None and recorder is not None:
            recorder.decodes(record.fetch(batch.tokens))
        rows = None if hidden is None else StepRows(hidden, inputs.positions, inputs.metadata)
        drafting = (self.drafter, self.observers, self._scratch_page)
        return EagerStep(self, batch, logits, recorder, rows, share, *drafting)

    def _decode_record(self, batch: Batch) -> DecodeRecord | None:
        """Return the record for a decode step's selections; None if the step reports its selections layer by layer."""
        model = self.model
        if not isinstance(model, Transformer) or any([each.by_layer for each in self.observers]) or is_traced():
            return None
        if batch.decodes < len(batch.requests) or self._data_ranks > 1:
            return None
        longest = max(start + count for start, count in zip(batch.starts, batch.counts, strict=True))
        if longest <= model.config.index_topk or any(request.policy is not None for request in batch.requests):
            return None
        rows = 1 << (batch.tokens - 1).bit_length()
        if self._record is None or len(self._record.device) < rows:
            layers, topk = model.config.num_hidden_layers, model.config.index_topk
            self._record = DecodeRecord.separate(rows, layers, topk, self.drafts.device)
        return self._record

    def _forward(self, batch: Batch, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The logits; the hidden states, if the draft layer follows."""
        tokens, positions, metadata, _ = inputs
        if batch.draft_tokens is None or self.drafter is None:
            return self.model.forward(tokens, positions, metadata, self.caches), None
        return self.drafter.model.forward_with_hidden(tokens, positions, metadata, self.caches)


class GraphStep(Step):
    """A step of decodes that a bucket has run, in the bucket's tensors."""

    def __init__(
        self, runner: Runner, batch: Batch, bucket: Bucket, selections: SelectionRecorder | None, share: Share | None
    ) -> None:
        assert bucket.logits is not None
        super().__init__(runner, batch, bucket.logits[: batch.tokens], selections, bucket.greedy, share)
        self._owner, self._bucket = runner, bucket

    def end(self) -> None:
        super().end()
        self._bucket.hidden = None

    @torch.inference_mode()
    def _draft(self, choices: Choices | None) -> None:
        graphs = self._owner.draft_graphs
        assert graphs is not None and self._logits is not None, "a later step has been launched"
        if choices is None and self.takes_likeliest:
            graphs.run_greedily(self.batch, self._bucket)
        else:
            graphs.run(self.batch, self._bucket, *(choices or self.choices()))

    @torch.inference_mode()
    def _likeliest_choices(self) -> Choices:
        inputs, greedy = self._bucket.inputs, self._bucket.greedy
        accepted = greedy.count_accepted(inputs.views.first_rows[: len(self.requests)], inputs.places)
        zeros = torch.zeros_like(accepted)
        return Choices(greedy.tokens[: self.batch.tokens], accepted, DraftNoise(False, zeros.double(), zeros, zeros))

    @torch.inference_mode()
    def _sample_in_graph(self) -> GreedySample:
        graphs, bucket = self._owner.sampling_graphs, self._bucket
        assert graphs is not None and bucket.logits is not None
        return graphs.sample(self.requests, bucket.logits, bucket.inputs, bucket.greedy, not bucket.is_new)


def make_runner(
    model: Model, config: ModelConfig, precision: Precision, limits: Limits, device: torch.device | str, ranks: int = 1
) -> Runner:
    """Allocate the caches, and build this rank's runner over them: with decode graphs where they are possible."""
    device = torch.device(device)
    drafts = limits.speculative_tokens != 0
    caches = allocate(config, precision, limits.page_count + SCRATCH_PAGES, device, drafts)
    scratch_page, drafter = limits.page_count, None
    # capture_first_graphs reads slots of the scratch page that no token has written: what they hold must be finite.
    for cache in caches:
        for entries in (cache.latent, cache.index):
            entries[scratch_page:].view(torch.uint8).zero_()
    if drafts:
        drafter = Drafter(cast(Any, model), caches[-1])
    sizes = (limits.max_sequences, limits.max_model_len, scratch_page, ranks)
    observers = make_observers(limits.observers, Setup(model, caches, config, *sizes))
    cores = torch.get_num_threads() if limits.spare_core and device.type == "cpu" and ranks == 1 else None
    more = (drafter, limits.max_sequences, scratch_page, cores, limits.data_ranks)
    offloaded = is_offloaded(model)
    if not (limits.decode_graphs and can_capture(model)) or (offloaded and drafter is not None):
        return Runner(model, caches, device, None, observers, *more)
    bounds = (scratch_page, limits.max_sequences, limits.max_model_len, config.index_topk)
    forward = model.forward if drafter is None else drafter.model.forward_with_hidden
    rows = most_rows(limits.max_sequences, limits.max_batch_tokens, drafts)
    layers, parts = config.num_hidden_layers, limits.data_ranks
    graphs = DecodeGraphs(forward, caches, *bounds, device, observers, rows, layers, not offloaded, parts)
    return Runner(model, caches, device, graphs, observers, *more)
