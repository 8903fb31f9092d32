"""What goes into the engine and what comes out: SamplingParams, Request, Completion, Delta. No tensors."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .text.answer import AssistantMessage

FinishReason = Literal["stop", "length", "abort", "error"]

MAX_LOGPROBS = 64  # alternatives a token; a bound on the size of an answer, not of the arithmetic
MAX_STOP_STRINGS = 64
MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How to draw tokens. Names and meaning are vLLM's; ValueError names the field, what came and the limit.

    Order of operations: repetition, frequency and presence penalties on the logits; then temperature, min_p, top_k, top_p.
    """

    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # the smallest set of likeliest tokens whose mass reaches this, after top_k; in (0, 1]
    top_k: int = 0  # the k likeliest, ties at the k-th included; 0 or -1: all
    min_p: float = 0.0  # tokens at least this likely relative to the likeliest, in [0, 1]
    max_tokens: int | None = 256  # None: as many as the context holds
    seed: int | None = None  # None: a fresh one for each request
    stop: tuple[str, ...] = ()  # a string or several; the text ends before the first that appears
    stop_token_ids: tuple[int, ...] = ()  # as the end-of-sentence tokens: kept in token_ids, left out of the text
    ignore_eos: bool = False
    logprobs: int | None = None  # how many alternatives to report beside the chosen token; None: no logprobs
    presence_penalty: float = 0.0  # subtracted from tokens that the output holds
    frequency_penalty: float = 0.0  # subtracted once for each time that the output holds the token
    # Divides positive and multiplies negative logits of tokens in prompt or output; its bounds keep the quotient finite.
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        stop: Iterable[str] = (self.stop,) if isinstance(self.stop, str) else (self.stop or ())
        object.__setattr__(self, "stop", tuple(stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{name} is {value!r}; a finite number is wanted")
        for name in ("top_k", "max_tokens", "seed", "logprobs"):
            value = getattr(self, name)
            optional = name != "top_k"
            if not (optional and value is None) and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"{name} is {value!r}; {'an integer or None' if optional else 'an integer'} is wanted")
        for name, good, limit in (
            ("temperature", self.temperature >= 0, "at least 0 (0 is greedy)"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("top_k", self.top_k >= -1, "at least 1, or 0 or -1 for all tokens"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1"),
            ("seed", self.seed is None or 0 <= self.seed <= MAX_SEED, "between 0 and 2^64 - 1"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS, f"between 0 and {MAX_LOGPROBS}"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "between -2 and 2"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "between -2 and 2"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "between 0.01 and 100"),
        ):
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be {limit}")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise ValueError(f"stop has {len(self.stop)} strings; at most {MAX_STOP_STRINGS} are served")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ValueError(f"stop holds {text!r}; non-empty strings are wanted")
        for token in self.stop_token_ids:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise ValueError(f"stop_token_ids holds {token!r}; token ids, integers from 0, are wanted")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        return self.presence_penalty != 0 or self.frequency_penalty != 0 or self.repetition_penalty != 1


@dataclass(eq=False)
class Request:
    """One prompt on its way through the engine."""

    # Set by Engine.add_request, once.
    id: int  # rises with arrival: the scheduler's order
    prompt: tuple[int, ...]
    params: SamplingParams
    max_tokens: int  # params.max_tokens, clipped to what the context holds
    seed: int  # params.seed, or a fresh one
    inspect: bool = False  # record what DSA selects
    # Tokens so far, the prompt's first. Appended by the engine after each step that samples one.
    tokens: list[int] = field(default_factory=list)
    pending: int = 0  # tokens drawn for it, by steps under way, that are not known here yet
    # The scheduler's. Empty and zero while waiting.
    pages: list[int] = field(default_factory=list)
    # Raised at each admission. Within one admission `pages` only grows, so (id, admission) names its contents: who has copied
    # n pages under the same pair needs only those from n on.
    admission: int = 0
    computed: int = 0  # leading tokens whose cache entries are written, by steps under way at the latest
    cached_pages: int = 0  # leading pages that are offered for reuse
    prefix_id: int = 0  # the pool's name for the contents of those pages
    cached_tokens: int | None = None  # tokens found in reused pages at first admission; None before it

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    @property
    def remaining(self) -> int:
        """Tokens that still have to go through the model before the next one can be sampled."""
        return len(self.tokens) + self.pending - self.computed

    @property
    def output_count(self) -> int:
        return len(self.tokens) - len(self.prompt)

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of one generated token under the raw logits: before penalties, temperature and filters."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens (id, logprob), best first


@dataclass(frozen=True)
class TokenSelection:
    """The selection that led to one generated token."""

    position: int  # of the query: the token before the generated one
    # By layer: int32 [K] context positions, ascending.
    layers: dict[int, np.ndarray] = field(default_factory=dict)
    # By layer: fp32 [K] index scores of those positions, for the layers that had more than index_topk tokens to choose from.
    scores: dict[int, np.ndarray] = field(default_factory=dict)

    def positions(self, layer: int) -> np.ndarray:
        """Context positions that the layer attended to. A layer that recorded nothing had no need to select: it took all."""
        selected = self.layers.get(layer)
        return np.arange(self.position + 1, dtype=np.int32) if selected is None else selected


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # prompt tokens whose cache entries were reused rather than computed


@dataclass(frozen=True)
class Timings:
    """Seconds, from the request's arrival."""

    time_to_first_token: float | None  # None: no token came
    total: float
    tokens_per_second: float | None  # of decode: tokens after the first, over the time they took; None: fewer than two
    selected_fraction: float  # of the context tokens in reach of the generated tokens' queries, the part DSA selected


@dataclass(frozen=True)
class Completion:
    """The answer to one request."""

    text: str  # "" without a tokenizer
    token_ids: list[int]  # generated tokens, a closing end-of-sentence token included
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    logprobs: list[TokenLogprob] | None = None  # one for each token id, if asked for
    stop_reason: str | int | None = None  # the stop string or token id that ended it
    error: str | None = None  # one line, with finish_reason "error"
    selection: list[TokenSelection] | None = None  # one for each token id, with inspect=True
    message: AssistantMessage | None = None  # the parsed answer; set by LLM.chat


@dataclass(frozen=True)
class Delta:
    """What one step added to one request. The last one carries the whole completion."""

    request_id: int
    text: str = ""  # complete characters that no stop string can claim any more
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    selection: TokenSelection | None = None  # with inspect=True
    finish_reason: FinishReason | None = None
    completion: Completion | None = None


class PromptTooLong(ValueError):
    """The prompt leaves no room in the context for one new token."""


def check_token_ids(tokens: Iterable[Any], vocab_size: int, name: str = "prompt") -> tuple[int, ...]:
    """Token ids as a tuple of int; ValueError for an empty list, another type, or an id outside the vocabulary."""
    ids = tuple(tokens)
    if not ids:
        raise ValueError(f"{name} is empty; at least 1 token is wanted")
    for position, token in enumerate(ids):
        if type(token) is not int and (isinstance(token, bool) or not hasattr(token, "__index__")):
            raise ValueError(f"{name} holds {token!r} at position {position}; integer token ids are wanted")
        if not 0 <= token < vocab_size:
            raise ValueError(f"{name} holds token id {token} at position {position}; the vocabulary has {vocab_size}")
    return tuple(int(token) for token in ids)
