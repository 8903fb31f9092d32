"""Log-probabilities of a prompt's tokens, in vLLM's shape."""

from collections.abc import Sequence
from typing import Any

from ...params import SamplingParams
from .context import ApiContext
from .errors import ApiError
from .fields import SamplingFields
from .logprobs import LOWEST, token_text


def refuse_in_stream(body: SamplingFields) -> None:
    """Raise ApiError for prompt_logprobs in a stream, whose chunks have no place for them."""
    if body.prompt_logprobs is not None:
        raise ApiError(400, f"prompt_logprobs is {body.prompt_logprobs}; expected null with stream", "prompt_logprobs")


async def prompt_logprobs(context: ApiContext, body: SamplingFields, prompt: Sequence[int]) -> list[Any] | None:
    """For each token of a prompt, by token id: its log-probability and those of the likeliest ones; null for the first token.

    None unless the request asks for them. Raises ApiError and Busy.
    """
    if body.prompt_logprobs is None:
        return None
    [request] = await context.make_requests(0, lambda: prompt, SamplingParams(max_tokens=1))
    entries: list[Any] = [None]
    for score in await context.score(request, body.prompt_logprobs):
        ranks = {token: rank for rank, (token, _) in enumerate(score.top, 1)}
        values = {**dict(score.top), score.token_id: score.logprob}
        entries.append(
            {
                str(token): {
                    "logprob": max(value, LOWEST),
                    "rank": ranks.get(token),
                    "decoded_token": token_text(context.tokenizer, token),
                }
                for token, value in values.items()
            }
        )
    return entries
