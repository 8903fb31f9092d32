"""Recordings of answers: which sizes of the model, which settings and which texts a report shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..model.config import ModelConfig, Precision
from .completion import Completion, Delta
from .engine.request import Request
from .engine.running.cache import row_layout
from .params import SamplingParams
from .recording import Recording
from .text.detokenizer import token_texts
from .text.tokenizer import USER, Tokenizer
from .token_selection import TokenSelection


@dataclass(frozen=True)
class Recorder:
    """Makes the recordings of one model's answers."""

    config: ModelConfig
    precision: Precision
    tokenizer: Tokenizer | None
    checkpoint: str  # LLM.checkpoint

    def begin(self, prompt: Sequence[int], params: SamplingParams, budget: float = math.inf) -> Recording:
        """Make a recording for an answer to this prompt. budget: bytes that it keeps."""
        dtype, latent, index = row_layout(self.config, self.precision)
        sizes = (latent * dtype.itemsize, index * dtype.itemsize)
        layers, topk = self.config.num_hidden_layers, self.config.index_topk
        recording = Recording(prompt, layers, topk, entry_bytes=sizes, budget=budget)
        model = {"model": self.checkpoint} if self.checkpoint else {}
        settings = {"precision": self.precision, "temperature": params.temperature, "top_p": params.top_p}
        seed = {} if params.seed is None or params.greedy else {"seed": params.seed}
        recording.about = model | settings | seed
        return recording

    def label(self, recording: Recording) -> None:
        """Name the tokens of a recording whose answer is complete."""
        if self.tokenizer is not None:
            special, name = self.tokenizer.special_ids, partial(token_texts, tokenizer=self.tokenizer)
            recording.label(name, special.values(), special.get(USER))

    def with_recording(self, prompt: Sequence[int], answer: Completion, params: SamplingParams) -> Completion:
        """The completion with what a report shows of its selection, if that was recorded."""
        if not (selections := answer.selection):
            return answer
        tokens = list(zip(answer.token_ids, selections, strict=False))
        return replace(answer, make_recording=partial(self._make, prompt, params, tokens))

    def _make(
        self, prompt: Sequence[int], params: SamplingParams, tokens: Sequence[tuple[int, TokenSelection]]
    ) -> Recording:
        recording = self.begin(prompt, params)
        for token, selection in tokens:
            recording.add(token, selection)
        self.label(recording)
        return recording

    def recorded(self, request: Request, delta: Delta) -> Delta:
        """A delta whose completion has a recording, if it has one and its selection was to be recorded."""
        if delta.completion is None or not request.inspect:
            return delta
        return replace(delta, completion=self.with_recording(request.prompt, delta.completion, request.params))
