"""How to sample an answer. No tensors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..kernels.errors import ArgumentError
from .text.grammar import StructuredOutputsParams

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
    logprobs: int | None = None  # how many alternatives to report in addition to the sampled token; None: no logprobs
    presence_penalty: float = 0.0  # subtracted from the logits of tokens that occur in the output
    frequency_penalty: float = 0.0  # subtracted once for each occurrence in the output
    # Divides the positive logits of tokens that occur in prompt or output and multiplies the negative ones.
    repetition_penalty: float = 1.0
    # Tokens that come before an end-of-sentence token, one of stop_token_ids or a stop string may end the answer.
    min_tokens: int = 0
    logit_bias: Mapping[int, float] | None = None  # by token id: added to its logit; -100 to 100
    structured_outputs: StructuredOutputsParams | None = None  # the form that the text must have
    # Where the text begins. Of an answer to a conversation, stop strings end only the content: neither its reasoning nor its calls.
    # LLM.chat and the server set it.
    begins_in: Literal["text", "content", "reasoning"] = "text"
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
            ("min_tokens", 0 <= self.min_tokens <= (self.max_tokens or math.inf), "at least 0 and at most max_tokens"),
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
        biases = {} if self.logit_bias is None else self.logit_bias
        if not isinstance(biases, Mapping) or len(biases) > MAX_LOGIT_BIAS:
            expected = f"at most {MAX_LOGIT_BIAS} token ids with a number each"
            raise ArgumentError("logit_bias", f"{biases!r:.100}", expected)
        for name, ids in (("stop_token_ids", self.stop_token_ids), ("logit_bias", biases)):
            for token in ids:
                if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                    raise ArgumentError(name, f"{token!r}", "token ids, which are integers from 0", "holds")
        for token, bias in biases.items():
            if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
                found = f"{bias!r} for token {token}"
                raise ArgumentError("logit_bias", found, "a number between -100 and 100", "holds")
        if self.begins_in not in (places := ("text", "content", "reasoning")):
            raise ArgumentError("begins_in", f"{self.begins_in!r:.100}", f"one of {', '.join(places)}")
        if not isinstance(self.structured_outputs, StructuredOutputsParams | None):
            raise ArgumentError("structured_outputs", f"{self.structured_outputs!r:.100}", "StructuredOutputsParams")

    def for_answer(self, thinking: bool) -> "SamplingParams":
        """The same for an answer to a conversation. thinking: it starts inside of its reasoning, which has no form and no stops."""
        changed: dict[str, Any] = {}
        if self.stop:
            changed["begins_in"] = "reasoning" if thinking else "content"
        if self.structured_outputs is not None and self.structured_outputs.after_thinking != thinking:
            changed["structured_outputs"] = replace(self.structured_outputs, after_thinking=thinking)
        return replace(self, **changed) if changed else self

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def filters(self) -> bool:
        """Tell whether some tokens are excluded by their probability."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def penalised(self) -> bool:
        return self.presence_penalty != 0 or self.frequency_penalty != 0 or self.repetition_penalty != 1
