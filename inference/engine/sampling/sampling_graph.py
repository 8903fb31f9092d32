"""Sampling in a CUDA graph of its own, after the graph of a step.

A step whose requests ask for masks of grammars, temperatures and noise, and no more (`Request.samples_in_graph`), launches it once
the host has made the masks, unless the likeliest tokens may come. It writes over them.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from ...text.grammar import Mask
from ..request import Request
from ..running.captured_step import CapturedStep
from ..running.inputs import DecodeInputs
from .constraints import EVERY, refused_tokens, write_masks, write_needed_masks
from .filters import Row
from .graph_tokens import GreedySample, GreedyTokens
from .noise import DraftNoise
from .sampler import noise_key


class SamplingInputs:
    """Masks, temperatures and seeds of a step's rows, in tensors that stay in place. Unused rows keep earlier values."""

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
        temperatures, seeds, places = self._numbers[:, :rows]
        return DraftNoise(True, temperatures.view(torch.float64), seeds, places)

    def fill(self, requests: Sequence[Request], masked: bool, likeliest: GreedySample | None) -> bool:
        """Copy a step's values to the device; or return False, if the requests may take the `likeliest` tokens, given if all are
        greedy. Raises what a request's grammar raises."""
        self._turn = 1 - self._turn
        copied, count = self._copied[self._turn], len(requests)
        if copied is not None:
            copied.synchronize()
        if masked:
            rows = self._mask_rows[self._turn][:count]
            self._host_masks[self._turn][:count] = EVERY
            if likeliest is None:
                write_masks(requests, rows)
            elif not write_needed_masks(requests, rows, likeliest.arrived_tokens):
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
    """Samples after steps of decode graphs. On a CPU the same operations run without a graph."""

    def __init__(
        self, rows: int, device: torch.device, capture: Callable[[Callable[[], None]], Callable[[], None]]
    ) -> None:
        """rows: of the largest step. capture: see CapturedStep."""
        self._rows, self._device, self._capture = rows, device, capture
        self._given: SamplingInputs | None = None
        # By the inputs of the step's bucket, whether a row has a grammar, and whether one is random.
        self._steps: dict[tuple[DecodeInputs, bool, bool], CapturedStep[None]] = {}

    def free(self) -> None:
        for step in self._steps.values():
            step.free()
        self._steps.clear()

    def sample(
        self,
        requests: Sequence[Request],
        logits: torch.Tensor,
        inputs: DecodeInputs,
        found: GreedyTokens,
        may_capture: bool,
    ) -> GreedySample:
        """The tokens of a step, a row for each request, on their way to the host. They are staged, too.

        logits: fp32 [rows of the bucket, vocab], in place. inputs, found: the bucket's. may_capture: see CapturedStep.run.
        """
        counts = (1,) * len(requests)
        masked = any(request.grammar is not None for request in requests)
        random = any(not request.params.greedy for request in requests)
        if self._given is None:
            self._given = SamplingInputs(self._rows, logits.shape[1], self._device)
        likeliest = None if random else found.sample(requests, counts)
        if not self._given.fill(requests, masked, likeliest) and likeliest is not None:
            return likeliest
        key = (inputs, masked, random)
        if key not in self._steps:
            step = partial(_choose, logits, self._given, inputs, found, masked, random)
            self._steps[key] = CapturedStep(step, self._capture)
        self._steps[key].run(may_capture)
        return found.sample(requests, counts)


def _choose(
    logits: torch.Tensor, given: SamplingInputs, step: DecodeInputs, found: GreedyTokens, masked: bool, random: bool
) -> None:
    """Replace the likeliest tokens of a step's rows by tokens sampled from its logits fp32 [rows, vocab]."""
    rows, scores = step.batch, logits
    if masked:
        scores = scores.masked_fill(refused_tokens(given.masks[:rows], logits.shape[1]), -torch.inf)
    tokens = given.noise(rows).choose(scores) if random else scores.argmax(-1)
    found.replace(tokens, step.views.token_place, step.stage)
