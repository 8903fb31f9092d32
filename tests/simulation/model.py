"""A model of integers. Its logits are a hash of every cache entry that a step reads, so a wrong entry changes the tokens.

The latent of the token at position p is a hash of that token, of p, and of the latents before it, as they were *read*; its index
key is the same number with another sign. So an entry names the whole chain of tokens that it was computed from, and
`latents(tokens)` says what a correct engine must find. From `start` on, a request with a SelectionPolicy reads other tokens, so
that its entries are other numbers. `answer` computes a whole request from its own tokens, without any cache.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from deepseek_v32.inference.params import SamplingParams

EOS = 3
GAMMA = 0x9E3779B97F4A7C15
TEXT = ("a", "b", "c", "")  # of each token
VOCABULARY = len(TEXT)  # so few that prompts and answers often share prefixes


ORDINARY = 1 << 30  # a `start` that no request reaches
DRAFT, WRONG = 11, 12  # parts of hashes. A text's hash would differ between processes, and so would what a seed finds


@lru_cache(maxsize=1 << 18)
def chain(tokens: tuple[int, ...], start: int = ORDINARY) -> tuple[int, int]:
    """(the last token's latent, the digest of all latents)."""
    if not tokens:
        return 0, 0
    digest = chain(tokens[:-1], start)[1]
    return extend(digest, tokens[-1], len(tokens) - 1, start)


def extend(digest: int, token: int, position: int, start: int = ORDINARY) -> tuple[int, int]:
    """The latent of a token after the latents that `digest` stands for, and the digest with it."""
    latent = hash((digest, token, position, position >= start)) & 0x7FFFFFFFFFFFFFFF
    return latent, hash((digest, latent))


@lru_cache(maxsize=1 << 16)
def latents(tokens: tuple[int, ...], start: int = ORDINARY) -> tuple[int, ...]:
    """The latents of a correct cache for these tokens."""
    return (*latents(tokens[:-1], start), chain(tokens, start)[0]) if tokens else ()


@lru_cache(maxsize=1 << 18)
def draft_chain(tokens: tuple[int, ...]) -> tuple[int, int]:
    """(the draft layer's latent of the last token but one, the digest of all of them). The last token is the one that follows."""
    if len(tokens) < 2:
        return 0, 0
    return extend_draft(draft_chain(tokens[:-1])[1], tokens[-1], chain(tokens[:-1])[1], len(tokens) - 2)


def extend_draft(digest: int, following: int, hidden: int, position: int) -> tuple[int, int]:
    """Do the same in the draft layer, for the token at a position, from the one after it and the model's digest at it."""
    latent = hash((digest, following, hidden, position, DRAFT)) & 0x7FFFFFFFFFFFFFFF
    return latent, hash((digest, latent))


def logits(digest: int) -> list[float]:
    """One row, for the token after those that `digest` stands for. The end of the answer is the least likely token."""
    return [(digest >> 10 * token & 1023) / 128 - 3 * (token == EOS) for token in range(VOCABULARY)]


@lru_cache(maxsize=1 << 16)
def answer(prompt: tuple[int, ...], max_tokens: int, params: SamplingParams, start: int = ORDINARY) -> tuple[int, ...]:
    """The tokens that a request must get, whatever else the engine does."""
    tokens, output = prompt, prompt[:0]
    while len(output) < max_tokens:
        token = choose(tokens, output, params, start)
        tokens, output = (*tokens, token), (*output, token)
        text = "".join(TEXT[token] for token in output)
        if token == EOS or token in params.stop_token_ids or any(stop in text for stop in params.stop):
            break
    return output


def choose(tokens: tuple[int, ...], output: tuple[int, ...], params: SamplingParams, start: int) -> int:
    row = logits(chain(tokens, start)[1])
    if params.structured_outputs is not None:
        row[forbidden(output)] = -math.inf
    penalised = [value - params.presence_penalty * (token in output) for token, value in enumerate(row)]
    if params.greedy:
        return penalised.index(max(penalised))
    assert params.seed is not None
    noisy = [
        value / params.temperature + gumbel(params.seed, len(output), token) for token, value in enumerate(penalised)
    ]
    return noisy.index(max(noisy))


def forbidden(output: Sequence[int]) -> int:
    """The token that the simulated grammar does not allow after an output. It depends on all tokens of the output."""
    return (len(output) + sum(output)) % EOS


def gumbel(seed: int, place: int, token: int) -> float:
    """The noise of a token at a place in the output: two rounds of SplitMix64 name (seed, place), a third one the token."""
    key = splitmix(splitmix(seed) + (place + 1) * GAMMA)
    bits = splitmix(key + (token + 1) * GAMMA)
    return -math.log(-math.log1p(-((bits >> 11) + 0.5) * 2.0**-53))


def splitmix(bits: int) -> int:
    """The finalizer of Java's SplittableRandom, for integers of any size."""
    bits %= 1 << 64
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % (1 << 64)
    return bits ^ bits >> 31


def log_probability(tokens: tuple[int, ...], following: int, start: int = ORDINARY) -> float:
    """The log-probability of `following` after `tokens`."""
    row = logits(chain(tokens, start)[1])
    return row[following] - max(row) - math.log(sum(math.exp(value - max(row)) for value in row))
