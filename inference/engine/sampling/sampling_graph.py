"""Sampling after a step of decodes as CUDA graphs: masks of grammars, temperatures and noise, for all rows at once.

A step whose requests ask for no more (`Request.samples_in_graph`) launches the graph of its forward pass and, once the host has
made the masks, one of these. This writes over the likeliest tokens that the first graph has found, so that the sampled ones take
their way to the next step and to the host. If all that the requests lack is to know that those tokens may come, it is left out.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from ...params import Request
from ...text.grammar import Mask
from ..running.captured_step import CapturedStep
from ..running.decode_graph import DecodeGraphs
from ..running.decode_inputs import DecodeInputs
from .constraints import EVERY, refused_tokens, write_masks, write_needed_masks
from .filters import Row
from .greedy import GreedySample, GreedyTokens
from .noise import DraftNoise
from .sampler import noise_key


class SamplingInputs:
    """What the host gives for the rows of a step, in tensors that stay in place. Rows that it does not need keep earlier values."""

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        # Two copies on the host, used in turn: when a step is sampled ahead, the one before it may still be on its way.
        # int64 [3, rows]: the bits of the temperatures, which are float64; seeds; places in the outputs.
        self._host_numbers = [torch.zeros(3, rows, dtype=torch.int64, pin_memory=on_gpu) for _ in range(2)]
        # int32 [rows, ⌈vocab / 32⌉]: a bit for each token that may come, the lowest first.
        self._host_masks = [torch.zeros(rows, -(-vocab // 32), dtype=torch.int32, pin_memory=on_gpu) for _ in range(2)]
        self._mask_rows = [Mask.rows(masks.numpy().view(np.uint32)) for masks in self._host_masks]
        self._copied = [torch.cuda.Event() if on_gpu else None for _ in range(2)]
        self._turn = 0
        self._numbers = torch.zeros_like(self._host_numbers[0], device=device)
        self.masks = torch.zeros_like(self._host_masks[0], device=device)

    def noise(self, rows: int) -> DraftNoise:
        """That of the first rows, on the device."""
        temperatures, seeds, places = self._numbers[:, :rows]
        return DraftNoise(True, temperatures.view(torch.float64), seeds, places)

    def fill(self, requests: Sequence[Request], masked: bool, likeliest: GreedySample | None) -> bool:
        """Copy what a step needs to the device. Raises what a request's grammar raises.

        likeliest: the step's tokens, if the requests are greedy. False if they may take these, so that nothing is needed.
        """
        self._turn = 1 - self._turn
        copied, count = self._copied[self._turn], len(requests)
        if copied is not None:
            copied.synchronize()
        if masked:
            rows = self._mask_rows[self._turn][:count]
            self._host_masks[self._turn][:count] = EVERY
            if likeliest is None:
                write_masks(requests, rows)
            elif not write_needed_masks(requests, rows, likeliest):
                return False
            self.masks[:count].copy_(self._host_masks[self._turn][:count], non_blocking=True)
        if likeliest is None:
            numbers = self._host_numbers[self._turn]
            values = numbers.numpy()
            values[0, :count].view(np.float64)[:] = [request.params.temperature for request in requests]
            values[1:, :count] = np.array([noise_key(Row(request)) for request in requests], dtype=np.int64).T
            self._numbers.copy_(numbers, non_blocking=True)
        if copied is not None:
            copied.record(torch.cuda.current_stream(self.masks.device))  # this thread's device may be another
        return True


class SamplingGraphs:
    """Samples after steps of `graphs`. On a CPU the same operations run without a graph."""

    def __init__(self, graphs: DecodeGraphs) -> None:
        self._graphs = graphs
        self._inputs: SamplingInputs | None = None
        # By the inputs of the step's bucket, whether a row has a grammar, and whether one is random.
        self._steps: dict[tuple[DecodeInputs, bool, bool], CapturedStep[None]] = {}

    def free(self) -> None:
        """Free all graphs. Steps that come after would capture new ones."""
        self._steps.clear()

    def sample(self, requests: Sequence[Request]) -> GreedySample:
        """The tokens of the latest step of `graphs`, a row for each request, on their way to the host. They are staged, too."""
        graphs, counts = self._graphs, (1,) * len(requests)
        masked = any(request.grammar is not None for request in requests)
        random = any(not request.params.greedy for request in requests)
        if self._inputs is None:
            self._inputs = SamplingInputs(graphs.batches[-1], graphs.logits.shape[1], graphs.device)
        likeliest = None if random else graphs.greedy.sample(requests, counts)
        if not self._inputs.fill(requests, masked, likeliest) and likeliest is not None:
            return likeliest
        key = (graphs.inputs, masked, random)
        if key not in self._steps:
            step = partial(_sample, graphs.logits, self._inputs, graphs.inputs, graphs.greedy, masked, random)
            self._steps[key] = CapturedStep(step, graphs.capture)
        self._steps[key].run(may_capture=not graphs.is_new)
        return graphs.greedy.sample(requests, counts)


def _sample(
    logits: torch.Tensor,
    given: SamplingInputs,
    step: DecodeInputs,
    found: GreedyTokens,
    masked: bool,
    random: bool,
) -> None:
    """Replace the likeliest tokens of a step's rows by those that are sampled from its logits fp32 [rows, vocab]."""
    rows = step.batch
    scores = logits[:rows]
    if masked:
        scores = scores.masked_fill(refused_tokens(given.masks[:rows], logits.shape[1]), -torch.inf)
    tokens = given.noise(rows).choose(scores) if random else scores.argmax(-1)
    found.replace(tokens, step.greedy_place, step.stage)
