"""A model of integers. Its logits are a hash of every cache entry that a step reads, so a wrong entry changes the tokens.

The latent of the token at position p is a hash of that token, of p, and of the latents before it, as they were *read*; its index
key is the same number with another sign. So an entry names the whole chain of tokens that it was computed from, and
`latents(tokens)` says what a correct engine must find. `answer` computes a whole request from its own tokens, without any cache.
"""

import math
from functools import lru_cache

import numpy as np

from deepseek_v32.inference.params import SamplingParams

EOS = 3
TEXT = ("a", "b", "c", "")  # of each token
VOCABULARY = len(TEXT)  # so few that prompts and answers often share prefixes


@lru_cache(maxsize=1 << 18)
def chain(tokens: tuple[int, ...]) -> tuple[int, int]:
    """(the last token's latent, the digest of all latents)."""
    if not tokens:
        return 0, 0
    digest = chain(tokens[:-1])[1]
    return extend(digest, tokens[-1], len(tokens) - 1)


def extend(digest: int, token: int, position: int) -> tuple[int, int]:
    """The latent of a token behind the latents that `digest` stands for, and the digest with it."""
    latent = hash((digest, token, position)) & 0x7FFFFFFFFFFFFFFF
    return latent, hash((digest, latent))


@lru_cache(maxsize=1 << 16)
def latents(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """What a correct cache holds for these tokens."""
    return (*latents(tokens[:-1]), chain(tokens)[0]) if tokens else ()


def logits(digest: int) -> list[float]:
    """One row, for the token after those that `digest` stands for. The end of the answer is the least likely token."""
    return [(digest >> 10 * token & 1023) / 128 - 3 * (token == EOS) for token in range(VOCABULARY)]


@lru_cache(maxsize=1 << 16)
def answer(prompt: tuple[int, ...], max_tokens: int, params: SamplingParams) -> tuple[int, ...]:
    """The tokens that a request must get, whatever else the engine does."""
    tokens, output = prompt, prompt[:0]
    while len(output) < max_tokens:
        token = choose(tokens, output, params)
        tokens, output = (*tokens, token), (*output, token)
        text = "".join(TEXT[token] for token in output)
        if token == EOS or token in params.stop_token_ids or any(stop in text for stop in params.stop):
            break
    return output


def choose(tokens: tuple[int, ...], output: tuple[int, ...], params: SamplingParams) -> int:
    row = logits(chain(tokens)[1])
    penalised = [value - params.presence_penalty * (token in output) for token, value in enumerate(row)]
    if params.greedy:
        return penalised.index(max(penalised))
    assert params.seed is not None
    weights = [math.exp((value - max(penalised)) / params.temperature) for value in penalised]
    point = (int(np.random.Philox(key=params.seed, counter=len(output)).random_raw()) >> 11) * 2.0**-53 * sum(weights)
    token = 0
    while point >= weights[token] and token < VOCABULARY - 1:
        point -= weights[token]
        token += 1
    return token


def log_probability(tokens: tuple[int, ...], following: int) -> float:
    """Of `following` after `tokens`."""
    row = logits(chain(tokens)[1])
    return row[following] - max(row) - math.log(sum(math.exp(value - max(row)) for value in row))
