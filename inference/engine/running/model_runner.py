"""What the engine needs of a runner, and a runner of a model."""

from collections.abc import Sequence
from typing import Protocol

import torch

from ....model.metadata import AttentionMetadata, LayerCache
from ...params import Request
from ...token_selection import SelectionSink
from ..sampling.greedy import FoundTokens, GreedySample
from ..sampling.noise import DraftNoise
from ..scheduling.batch import Batch


class Model(Protocol):
    """What the runner needs of a model: model.transformer.Transformer, or a test's stand-in."""

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor: ...


class ModelRunner(Protocol):
    """What the engine needs of a runner: runner.Runner on one rank, distributed.leading_runner's LeadingRunner on several."""

    @property
    def supports_async_scheduling(self) -> bool:
        """Whether a step of decodes may take its tokens from the device, where the step before has left them.

        The engine may then launch it before it has read them. See Batch.sampled_rows.
        """

    def is_quick(self, batch: Batch) -> bool:
        """Whether a step of decodes would be launched in a moment, so that nobody minds if tokens of earlier steps wait for that.

        Without its graph a launch takes the host longer than the device. Asked only if asynchronous scheduling is supported.
        """

    def run(self, batch: Batch, on_selection: SelectionSink | None = None) -> torch.Tensor:
        """Launch a step: fp32 [N, vocab], the logits of the last ``logit_counts[i]`` new tokens of each entry, in order.

        They are valid until the next step is launched.
        """

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        """Keep the tokens that the latest step has sampled (int64 [N], on the device) for the next step.

        Called only if asynchronous scheduling is supported.
        """

    @property
    def greedy(self) -> FoundTokens | None:
        """The likeliest tokens of the latest step, if its graph has found them. It has also kept them for the next step then."""

    def sample_in_graph(self, requests: Sequence[Request]) -> GreedySample:
        """Sample the latest step, whose graph has found `greedy`, and keep its tokens for the next step.

        requests: one for each of its rows, all with `samples_in_graph`. Does not wait for the device. Raises what a grammar raises.
        """

    def device_fault(self) -> str | None:
        """Why the device can compute nothing any more, as after a kernel's access to a wrong address; None if it can.

        Waits for the device.
        """

    @property
    def max_draft_tokens(self) -> int:
        """The most drafts that `draft` makes for a request; 0 if there is no draft layer. Without one, the rest is not used."""

    @property
    def drafts(self) -> torch.Tensor:
        """int64 [max_sequences, max_draft_tokens] on the device: what the latest `draft` has made. See Batch.draft_rows."""

    def draft(self, batch: Batch, sampled: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise) -> None:
        """Launch the draft layer over the tokens of the step that ran last, and then for the drafts that it is to make.

        sampled: int64 [N], a token for each of its rows of logits. accepted: int64 [M], the number of right drafts of each of its
        sampling requests: its next drafts follow the token sampled in the row after so many. Both are on the device.
        """

    def draft_greedily(self, batch: Batch) -> None:
        """As `draft`, after a step that has sampled the tokens of `greedy`."""
