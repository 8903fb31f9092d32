"""Whether a model and its limits can serve a prompt. The only place that checks a prompt's length."""

from collections.abc import Sequence
from typing import Any

from ...model.config import ModelConfig
from ..params import PromptTooLong, SamplingParams, check_token_ids
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
            f"prompt has {len(tokens)} tokens; expected at most {context - min_new_tokens}: "
            f"the context of {context} holds prompt and answer"
        )
    if params.stop and not has_tokenizer:
        raise ValueError(f"stop is {params.stop!r}; expected none: the model has no tokenizer (use stop_token_ids)")
    for token in params.stop_token_ids:
        if token >= config.vocab_size:
            raise ValueError(
                f"stop_token_ids holds {token}; expected ids of the vocabulary, 0 to {config.vocab_size - 1}"
            )
    for token in params.logit_bias or ():
        if token >= config.vocab_size:
            raise ValueError(f"logit_bias holds {token}; expected ids of the vocabulary, 0 to {config.vocab_size - 1}")
    return tokens


def is_one(prompts: Any) -> bool:
    """Whether this is one prompt: a text, or integers in a list, an array or a tensor."""
    if isinstance(prompts, str):
        return True
    first = prompts[0] if len(prompts) else ()
    dimensions = getattr(first, "ndim", int(isinstance(first, str | Sequence)))
    return dimensions == 0
