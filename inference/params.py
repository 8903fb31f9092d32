"""What goes into the engine: SamplingParams and Request. No tensors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..kernels.errors import ArgumentError
from ..model.selection_policy import SelectionPolicy
from .text.grammar import Grammar, StructuredOutputsParams

MAX_LOGPROBS = 64  # alternatives per token; bounds the size of an answer, the arithmetic would allow more
MAX_STOP_STRINGS = 64
MAX_SEED = 2**64 - 1
MAX_ANSWERS = 128  # to one prompt
MAX_LOGIT_BIAS = 300  # tokens, as in OpenAI's API


@dataclass(frozen=True)
class SamplingParams:
    """How to sample tokens. Names and meanings are vLLM's. ValueError names the field, its value and the limit.

    Order of operations: logit_bias, min_tokens and structured_outputs on the logits; repetition, frequency and presence penalties;
    then temperature, min_p, top_k, top_p.
    """

    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # keep the smallest set of likeliest tokens whose mass reaches this, after top_k; in (0, 1]
    top_k: int = 0  # keep the k likeliest tokens, and all that tie with the k-th; 0 or -1: keep all
    min_p: float = 0.0  # keep tokens at least this likely relative to the likeliest; in [0, 1]
    max_tokens: int | None = 256  # None: as many as the context can hold
    seed: int | None = None  # None: a random one for each request
    stop: Sequence[str] = ()  # one string or several, kept as a tuple; the text ends before the first that appears
    stop_token_ids: Sequence[int] = ()  # treated like end-of-sentence tokens: kept in token_ids, left out of the text
    ignore_eos: bool = False
    logprobs: int | None = None  # how many alternatives to report beside the sampled token; None: no logprobs
    presence_penalty: float = 0.0  # subtracted from the logits of tokens that occur in the output
    frequency_penalty: float = 0.0  # subtracted once for each occurrence in the output
    # Divides the positive logits of tokens that occur in prompt or output and multiplies the negative ones. Its bounds keep the
    # results finite.
    repetition_penalty: float = 1.0
    # Tokens that come before an end-of-sentence token, one of stop_token_ids or a stop string may end the answer.
    min_tokens: int = 0
    logit_bias: Mapping[int, float] | None = None  # by token id: added to its logit; -100 to 100
    structured_outputs: StructuredOutputsParams | None = None  # what the text must look like
    n: int = 1  # answers to a prompt, each a request of its own; with a seed they have seed, seed + 1, …

    def __post_init__(self) -> None:
        for name in ("stop", "stop_token_ids"):
            if not isinstance(getattr(self, name), Iterable | None):
                raise ArgumentError(name, f"{getattr(self, name)!r:.100}", "a list")
        if not isinstance(self.ignore_eos, bool):
            raise ArgumentError("ignore_eos", f"{self.ignore_eos!r:.100}", "True or False")
        stop: Iterable[str] = (self.stop,) if isinstance(self.stop, str) else (self.stop or ())
        object.__setattr__(self, "stop", tuple(stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ArgumentError(name, f"{value!r}", "a finite number")
        for name in ("top_k", "max_tokens", "seed", "logprobs", "min_tokens", "n"):
            value = getattr(self, name)
            optional = name not in ("top_k", "min_tokens", "n")
            if not (optional and value is None) and (isinstance(value, bool) or not isinstance(value, int)):
                raise ArgumentError(name, f"{value!r}", f"an integer{(' or None' if optional else '')}")
        for name, good, limit in (
            ("temperature", self.temperature >= 0, "at least 0 (0 is greedy)"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("top_k", self.top_k >= -1, "at least 1, or 0 or -1 for all tokens"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1"),
            (
                "min_tokens",
                self.min_tokens >= 0 and (self.max_tokens is None or self.min_tokens <= self.max_tokens),
                "at least 0 and at most max_tokens",
            ),
            ("seed", self.seed is None or 0 <= self.seed <= MAX_SEED, "between 0 and 2^64 - 1"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS, f"between 0 and {MAX_LOGPROBS}"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "between -2 and 2"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "between -2 and 2"),
            ("n", 1 <= self.n <= MAX_ANSWERS, f"between 1 and {MAX_ANSWERS}"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "between 0.01 and 100"),
        ):
            if not good:
                raise ArgumentError(name, f"{getattr(self, name)!r}", limit)
        if len(self.stop) > MAX_STOP_STRINGS:
            raise ArgumentError("stop", f"{len(self.stop)} strings", f"at most {MAX_STOP_STRINGS}", "has")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ArgumentError("stop", f"{text!r}", "non-empty strings", "holds")
        for token in self.stop_token_ids:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise ArgumentError("stop_token_ids", f"{token!r}", "token ids, which are integers from 0", "holds")

        self._check_logit_bias()
        if not isinstance(self.structured_outputs, StructuredOutputsParams | None):
            raise ArgumentError("structured_outputs", f"{self.structured_outputs!r:.100}", "StructuredOutputsParams")

    def for_answer(self, thinking: bool) -> "SamplingParams":
        """The same for an answer that starts inside of its reasoning, if `thinking`: structured_outputs begin after it."""
        if self.structured_outputs is None or self.structured_outputs.after_thinking == thinking:
            return self
        return replace(self, structured_outputs=replace(self.structured_outputs, after_thinking=thinking))

    def for_each(self) -> list["SamplingParams"]:
        """Those of the n answers to a prompt, each with n = 1 and a seed of its own."""
        if self.n == 1:
            return [self]
        seeds = [None if self.seed is None else (self.seed + i) & MAX_SEED for i in range(self.n)]
        return [replace(self, n=1, seed=seed) for seed in seeds]

    def _check_logit_bias(self) -> None:
        if self.logit_bias is None:
            return
        if not isinstance(self.logit_bias, Mapping) or len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise ArgumentError(
                "logit_bias", f"{self.logit_bias!r:.100}", f"at most {MAX_LOGIT_BIAS} token ids with a number each"
            )
        for token, bias in self.logit_bias.items():
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise ArgumentError("logit_bias", f"{token!r}", "token ids, which are integers from 0", "holds")
            if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
                raise ArgumentError(
                    "logit_bias", f"{bias!r} for token {token}", "a number between -100 and 100", "holds"
                )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def filters(self) -> bool:
        """Whether some tokens are excluded by their probability."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def penalised(self) -> bool:
        return self.presence_penalty != 0 or self.frequency_penalty != 0 or self.repetition_penalty != 1


@dataclass(eq=False)
class Request:
    """One prompt on its way through the engine."""

    # Set once, by RequestMaker.
    id: int  # rises with the order of arrival
    prompt: tuple[int, ...]
    params: SamplingParams
    max_tokens: int  # params.max_tokens, or fewer if the context holds fewer
    seed: int  # params.seed, or a random one
    inspect: bool = False  # record what DSA selects
    policy: SelectionPolicy | None = None  # an experiment with what DSA selects
    end_ids: tuple[int, ...] = ()  # the tokens that may not come among the first params.min_tokens ones
    grammar: Grammar | None = None  # params.structured_outputs, compiled
    takes_likeliest: bool = field(init=False)  # each token is the likeliest by the model's logits, and no more is asked
    samples_in_graph: bool = field(init=False)  # a grammar, temperature and noise choose them, and no more is asked
    # Starts as the prompt. RequestState.push appends each sampled token once it has arrived on the host.
    tokens: list[int] = field(default_factory=list)
    # The fields below are set by the scheduler; they are empty or zero while the request waits for admission, unless a comment
    # says otherwise.
    pending: int = 0  # tokens that steps in flight sample for this request, and that `tokens` therefore lacks
    pages: list[int] = field(default_factory=list)
    # Raised at each admission, also while waiting. During one admission `pages` is only appended to, so a copy of its first n
    # entries stays right as long as (id, admission) is the same.
    admission: int = 0
    computed: int = 0  # leading tokens whose cache entries are written, or will be by the steps in flight
    # Leading tokens whose entries in the draft layer's caches are written; it may stay behind `computed`.
    drafted: int = 0
    cached_pages: int = 0  # leading pages that other requests can reuse
    prefix_id: int = 0  # PagePool's name for the contents of those pages
    cached_tokens: int | None = None  # tokens found in reused pages at the first admission; None before it
    # See prompt_order.py. Leading tokens that were found in the cache when the request began to wait; 0 once it runs.
    reusable: int = 0
    skipped: int = 0  # steps in a row that computed nothing of its prompt

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)
        params = self.params
        plain = params.logprobs is None and not (params.penalised or params.logit_bias)
        free, early = self.grammar is None and not params.structured_outputs, params.min_tokens > 0
        self.takes_likeliest = plain and params.greedy and free and not early
        self.samples_in_graph = plain and not (params.filters and not params.greedy) and not (early and free)

    @property
    def remaining(self) -> int:
        """Tokens that still have to go through the model before the next one can be sampled."""
        return len(self.tokens) + self.pending - self.computed

    @property
    def shareable(self) -> int:
        """How many leading tokens have the cache entries of an ordinary request: all, or those before an experiment begins."""
        return len(self.tokens) if self.policy is None else min(self.policy.start, len(self.tokens))

    @property
    def output_count(self) -> int:
        return len(self.tokens) - len(self.prompt)

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]


class PromptTooLong(ArgumentError):
    """The context cannot hold the prompt and what is to be generated."""
