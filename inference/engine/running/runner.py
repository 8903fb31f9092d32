"""From a batch to logits: input tensors, AttentionMetadata, forward pass."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from ....model.config import ModelConfig, Precision
from ....model.metadata import LayerCache
from ....model.stages import is_traced
from ....model.transformer import Transformer
from ...cache_check.check import CacheCheck, make_check
from ...cache_check.plan import CheckPlan
from ...params import Request
from ...token_selection import SelectionSink
from ..drafting.draft_graph import DraftGraphs
from ..drafting.drafter import Drafter, DraftingModel, StepRows, following_tokens, sampling_rows
from ..fault import device_fault
from ..limits import MAX_DRAFT_TOKENS, Limits, most_rows
from ..sampling.greedy import GreedySample, GreedyTokens
from ..sampling.noise import DraftNoise
from ..sampling.sampling_graph import SamplingGraphs
from ..scheduling.batch import Batch
from .cache import SCRATCH_PAGES, allocate
from .decode_graph import DecodeGraphs, can_capture
from .decode_record import DecodeRecord
from .inputs import Inputs, StagedTokens, prepare
from .model_runner import Model


class Threads:
    """All cores for steps with prompt tokens, which keep all of them busy; one fewer for decodes alone.

    Idle OpenMP threads spin. On two cores, streaming ran at 67 % of the engine's own speed beside two such threads, at 98 % beside
    one; a prompt takes 1.6 to 1.9 times as long with one.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def use(self, batch: Batch) -> None:
        """Call in the thread that is about to run the step: OpenMP counts for each thread by itself."""
        has_prompts = batch.decodes < len(batch.requests)
        count = self.cores if has_prompts else max(self.cores - 1, 1)
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)


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
        drafter: Drafter | None = None,
        max_sequences: int = 0,
        scratch_page: int = 0,
        threads: Threads | None = None,
    ) -> None:
        """caches: with that of the MTP layer, if there is a drafter; max_sequences and scratch_page are only for drafts.
        threads: by default every step has the process's number."""
        self.model = model
        self.caches = caches
        self.device = torch.device(device)
        self.graphs = graphs
        self.cache_check = cache_check
        self.drafter = drafter
        self.scratch_page = scratch_page  # a page that the pool does not hand out
        staged = StagedTokens(max_sequences, self.device) if graphs is None else graphs.staged
        self.drafts = staged.drafts
        self._threads = threads
        self._draft_graphs = None if graphs is None or drafter is None else DraftGraphs(drafter, graphs)
        self._sampling_graphs = None if graphs is None else SamplingGraphs(graphs)
        self._record: DecodeRecord | None = None  # of steps of decodes without graphs
        # The step that ran last, if it ran without a graph and `draft` is to follow it.
        self._latest: StepRows | None = None
        self._greedy: GreedyTokens | None = None

    @property
    def supports_async_scheduling(self) -> bool:
        return self.graphs is not None

    def is_quick(self, batch: Batch) -> bool:
        assert self.graphs is not None
        return self.graphs.is_quick(batch, any([request.inspect for request in batch.requests]))

    @property
    def sampled(self) -> torch.Tensor:
        """int64 [max_sequences] on the device: the staged tokens come first, the rest is left from earlier steps."""
        assert self.graphs is not None
        return self.graphs.staged.sampled

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        self.sampled[: len(tokens)] = tokens

    @property
    def greedy(self) -> GreedyTokens | None:
        return self._greedy

    @torch.inference_mode()
    def sample_in_graph(self, requests: Sequence[Request]) -> GreedySample:
        assert self._sampling_graphs is not None and self._greedy is not None
        return self._sampling_graphs.sample(requests)

    @property
    def max_draft_tokens(self) -> int:
        return 0 if self.drafter is None else MAX_DRAFT_TOKENS

    def device_fault(self) -> str | None:
        return device_fault(self.device)

    def free_graphs(self) -> None:
        """Free the CUDA graphs, whoever still holds this runner: a group of ranks waits at its end for collectives in graphs."""
        if self.graphs is not None:
            self.graphs.free()
        for graphs in (self._draft_graphs, self._sampling_graphs):
            if graphs is not None:
                graphs.free()

    @torch.inference_mode()
    def draft(self, batch: Batch, sampled: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise) -> None:
        step, self._latest = self._latest, None
        if step is None:
            assert self._draft_graphs is not None
            self._draft_graphs.run(batch, sampled, accepted, noise)
            return
        assert self.drafter is not None and batch.draft_tokens is not None
        if batch.draft_entries is not None:
            batch = batch.leading(batch.draft_entries)
            step = step.leading(batch)
        following = self._tensor(following_tokens(batch))
        following[step.metadata.logit_rows] = sampled
        sampling = sampling_rows(batch, self.scratch_page, self.device)
        drafts = self.drafts[: len(accepted), : batch.draft_tokens]
        self.drafter.draft(step, following, sampling, accepted, noise, drafts)

    @torch.inference_mode()
    def draft_greedily(self, batch: Batch) -> None:
        assert self._draft_graphs is not None and self._greedy is not None
        self._draft_graphs.run_greedily(batch)

    @torch.inference_mode()
    def greedy_choices(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, DraftNoise]:
        """The arguments of `draft` for the tokens of `greedy`."""
        assert self.graphs is not None and self._greedy is not None
        inputs, requests = self.graphs.inputs, len(batch.sampling)
        accepted = self._greedy.count_accepted(inputs.first_rows[:requests], inputs.places)
        zeros = torch.zeros_like(accepted)
        return self._greedy.tokens[: batch.tokens], accepted, DraftNoise(False, zeros.double(), zeros, zeros)

    def plan(self, batch: Batch) -> CheckPlan:
        """What the step checks, as rank 0 decides for all ranks."""
        assert self.cache_check is not None
        return self.cache_check.plan(batch, self._in_graph(batch))

    def _in_graph(self, batch: Batch) -> bool:
        if self.graphs is None or is_traced() or batch.decodes < len(batch.requests) or not all(batch.logit_counts):
            return False
        if any(request.policy is not None for request in batch.requests):
            return False
        # With checks, the rows of one request chain their stamps, which a graph of decodes does not.
        return self.cache_check is None or not batch.draft_counts

    @torch.inference_mode()
    def run(
        self, batch: Batch, on_selection: SelectionSink | None = None, plan: CheckPlan | None = None
    ) -> torch.Tensor:
        if self._threads is not None:
            self._threads.use(batch)
        check, self._latest, self._greedy = self.cache_check, None, None
        if check is not None:
            plan = plan or self.plan(batch)
            check.check_reused(batch, plan)
        if self.graphs is not None and self._in_graph(batch):
            logits = self.graphs.run(batch, on_selection, plan)
            self._greedy = self.graphs.greedy
            return logits
        assert not batch.sampled_rows
        record = None if on_selection is None else self._decode_record(batch)
        inputs = self.prepare(batch, on_selection if record is None else None)
        if record is not None:
            inputs = inputs._replace(metadata=replace(inputs.metadata, selections=record.device[: batch.tokens]))
        uploaded = None if check is None or plan is None else check.upload(plan)
        logits = self._forward(batch, inputs)
        if check is not None and uploaded is not None:
            check.end(inputs.table, uploaded)
        if record is not None and on_selection is not None:
            on_selection.decodes(record.fetch(batch.tokens))
        return logits

    def _decode_record(self, batch: Batch) -> DecodeRecord | None:
        """Where the selectors write what a step of decodes selects; None if the step reports its selections layer by layer."""
        model = self.model
        if not isinstance(model, Transformer) or is_traced() or batch.decodes < len(batch.requests):
            return None
        longest = max(start + count for start, count in zip(batch.starts, batch.counts, strict=True))
        if longest <= model.config.index_topk or any(request.policy is not None for request in batch.requests):
            return None
        rows = 1 << (batch.tokens - 1).bit_length()
        if self._record is None or len(self._record.device) < rows:
            self._record = DecodeRecord.alone(
                rows, model.config.num_hidden_layers, model.config.index_topk, self.device
            )
        return self._record

    def _forward(self, batch: Batch, inputs: Inputs) -> torch.Tensor:
        """The logits; the hidden states are kept if `draft` is to follow."""
        tokens, positions, metadata, _ = inputs
        if batch.draft_tokens is None or self.drafter is None:
            return self.model.forward(tokens, positions, metadata, self.caches)
        logits, hidden = self.drafter.model.forward_with_hidden(tokens, positions, metadata, self.caches)
        self._latest = StepRows(hidden, positions, replace(metadata, stamps=()))
        return logits

    def prepare(self, batch: Batch, on_selection: SelectionSink | None = None) -> Inputs:
        """The model's arguments. With checks of the caches, they have the stamps of the new tokens."""
        inputs = prepare(batch, self.device, self.drafts, on_selection)
        if self.cache_check is None:
            return inputs
        tokens, positions, metadata, table = inputs
        stamps = self.cache_check.begin(tokens, positions, metadata.slots, table, batch.counts)
        return inputs._replace(metadata=replace(metadata, stamps=stamps))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def make_runner(
    model: Model, config: ModelConfig, precision: Precision, limits: Limits, device: torch.device | str, ranks: int = 1
) -> Runner:
    """Allocate the caches, and build this rank's runner over them: with decode graphs where they are possible."""
    device = torch.device(device)
    drafts = limits.speculative_tokens != 0
    caches = allocate(config, precision, limits.page_count + SCRATCH_PAGES, device, drafts)
    scratch_page, check, drafter = limits.page_count, None, None
    # capture_first_graphs reads slots of the scratch page that no token has written: what they hold must be finite.
    for cache in caches:
        for entries in (cache.latent, cache.index):
            entries[scratch_page:].view(torch.uint8).zero_()
    if drafts:
        drafter = Drafter(cast(DraftingModel, model), caches[-1])
    if limits.check_cache:
        check, caches = make_check(
            model, caches, config, limits.max_sequences, limits.max_model_len, scratch_page, ranks
        )
    threads = Threads(torch.get_num_threads()) if limits.spare_core and device.type == "cpu" and ranks == 1 else None
    more = (drafter, limits.max_sequences, scratch_page, threads)
    if not (limits.decode_graphs and can_capture(model)):
        return Runner(model, caches, device, None, check, *more)
    sizes = (scratch_page, limits.max_sequences, limits.max_model_len, config.index_topk)
    forward = model.forward if drafter is None else drafter.model.forward_with_hidden
    rows = most_rows(limits.max_sequences, limits.max_batch_tokens, drafts)
    graphs = DecodeGraphs(forward, caches, *sizes, device, check, rows, config.num_hidden_layers)
    return Runner(model, caches, device, graphs, check, *more)
