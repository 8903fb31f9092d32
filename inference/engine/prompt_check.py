"""Whether a model and its limits can serve a prompt. The only place that checks a prompt's length."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...kernels.errors import ArgumentError
from ...model.config import ModelConfig
from ..params import PromptTooLong, SamplingParams
from .limits import Limits


def check_prompt(
    prompt: Sequence[int],
    params: SamplingParams,
    config: ModelConfig,
    limits: Limits,
    has_tokenizer: bool,
    min_new_tokens: int,
) -> tuple[int, ...]:
    """The prompt's token ids. Errors as `Engine.make_request`."""
    tokens = check_token_ids(prompt, config.vocab_size)
    context = limits.max_model_len
    if len(tokens) > context - min_new_tokens:
        raise PromptTooLong(
            "prompt",
            f"{len(tokens)} tokens",
            f"at most {context - min_new_tokens}: the context of {context} holds prompt and answer",
            "has",
        )
    if params.n != 1:
        raise ArgumentError("n", params.n, "1 where one request is one answer")
    if params.stop and not has_tokenizer:
        raise ArgumentError("stop", f"{params.stop!r}", "none: the model has no tokenizer (use stop_token_ids)")
    for token in params.stop_token_ids:
        if token >= config.vocab_size:
            raise ArgumentError(
                "stop_token_ids", token, f"ids of the vocabulary, 0 to {config.vocab_size - 1}", "holds"
            )
    for token in params.logit_bias or ():
        if token >= config.vocab_size:
            raise ArgumentError("logit_bias", token, f"ids of the vocabulary, 0 to {config.vocab_size - 1}", "holds")
    return tokens


def check_token_ids(tokens: Iterable[Any], vocab_size: int) -> tuple[int, ...]:
    """A prompt's token ids as a tuple of int. They may come as integers of any kind, in a list, an array or a tensor.

    ValueError for an empty prompt, for another type (bool is one), and for an id outside the vocabulary.
    """
    ids = tuple(tokens.tolist() if hasattr(tokens, "tolist") else tokens)
    if not ids:
        raise ArgumentError("prompt", "empty", "at least 1 token")
    if set(map(type, ids)) == {int}:
        values = np.array(ids)
        if values.min() >= 0 and values.max() < vocab_size:
            return ids
    for position, token in enumerate(ids):  # to convert other integers, or to name the first fault
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise ArgumentError("prompt", f"{token!r} at position {position}", "an integer token id", "holds")
        if not 0 <= token < vocab_size:
            raise ArgumentError(
                "prompt",
                f"token id {token} at position {position}",
                f"ids of the vocabulary, 0 to {vocab_size - 1}",
                "holds",
            )
    return tuple(int(token) for token in ids)
