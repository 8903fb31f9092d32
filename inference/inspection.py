"""Recordings of answers: which sizes of the model and which texts a report shows."""

import math
from collections.abc import Sequence
from dataclasses import replace
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


def new_recording(
    config: ModelConfig,
    precision: Precision,
    prompt: Sequence[int],
    budget: float = math.inf,
    params: SamplingParams | None = None,
) -> Recording:
    """Make a recording for an answer to this prompt. budget: bytes that it keeps. params: for reports."""
    dtype, latent, index = row_layout(config, precision)
    sizes = (latent * dtype.itemsize, index * dtype.itemsize)
    recording = Recording(prompt, config.num_hidden_layers, config.index_topk, entry_bytes=sizes, budget=budget)
    recording.about = {"precision": precision}
    if params is not None:
        seed = {} if params.seed is None or params.greedy else {"seed": params.seed}
        recording.about |= {"temperature": params.temperature, "top_p": params.top_p} | seed
    return recording


def label(recording: Recording, tokenizer: Tokenizer | None) -> None:
    """Name the tokens of a recording whose answer is complete."""
    if tokenizer is not None:
        special = tokenizer.special_ids
        recording.label(partial(token_texts, tokenizer=tokenizer), special.values(), special.get(USER))


def with_recording(
    config: ModelConfig,
    precision: Precision,
    tokenizer: Tokenizer | None,
    prompt: Sequence[int],
    answer: Completion,
    params: SamplingParams | None = None,
) -> Completion:
    """The completion with what a report shows of its selection, if that was recorded."""
    if not answer.selection:
        return answer
    parts = (config, precision, tokenizer, prompt, answer.token_ids, answer.selection, params)
    return replace(answer, make_recording=partial(_recording_of, *parts))


def _recording_of(
    config: ModelConfig,
    precision: Precision,
    tokenizer: Tokenizer | None,
    prompt: Sequence[int],
    tokens: Sequence[int],
    selections: Sequence[TokenSelection],
    params: SamplingParams | None,
) -> Recording:
    recording = new_recording(config, precision, prompt, params=params)
    for token, selection in zip(tokens, selections, strict=False):
        recording.add(token, selection)
    label(recording, tokenizer)
    return recording


def recorded(
    config: ModelConfig, precision: Precision, tokenizer: Tokenizer | None, request: Request, delta: Delta
) -> Delta:
    """A delta whose completion has a recording, if it has one and its selection was to be recorded."""
    if delta.completion is None or not request.inspect:
        return delta
    completion = with_recording(config, precision, tokenizer, request.prompt, delta.completion, request.params)
    return replace(delta, completion=completion)
