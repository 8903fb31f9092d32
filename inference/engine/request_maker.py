"""Makes checked requests from the arguments of an LLM's, a service's or an engine's callers."""

import itertools
import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...kernels.errors import ArgumentError, check_flags
from ...model.config import ModelConfig
from ...model.selection_policy import SelectionPolicy
from ..chat import Tools
from ..config import Limits
from ..params import MAX_SEED, SamplingParams
from ..prompts import Conversation, Prompt, each_params, each_prompt, is_conversation, prompt_content
from ..text.grammar import GrammarCompiler
from ..text.messages import ChatFormat, encode_messages
from ..text.tokenizer import Tokenizer
from .request import PromptTooLong, Request


class RequestMaker:
    """Makes requests, without queueing them, in any thread. ValueError names an argument of the wrong type, or out of range."""

    def __init__(
        self,
        config: ModelConfig,
        limits: Limits,
        tokenizer: Tokenizer | None = None,
        chat_format: ChatFormat | None = None,
        default_params: SamplingParams | None = None,
        max_new_tokens: int | None = None,
    ) -> None:
        """default_params: of prompts that come without. max_new_tokens: the checkpoint's, for callers with another default."""
        self.max_new_tokens = max_new_tokens
        self.default_params = default_params or SamplingParams()
        # An answer ends at the end-of-sentence tokens of both the tokenizer and the configuration.
        self.eos_ids = frozenset(config.eos_token_ids) | frozenset(tokenizer.eos_ids if tokenizer else ())
        self.ids = itertools.count()
        self.grammars = GrammarCompiler(tokenizer, config.vocab_size, sorted(self.eos_ids))
        self._config, self._limits, self._tokenizer = config, limits, tokenizer
        self._chat_format = chat_format

    def make(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> list[Request]:
        """The requests of one prompt or several, in their order; params.n for each."""
        return self._make([self.token_ids(prompt) for prompt in each_prompt(prompts)], params, inspect, policy)

    def make_chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> list[Request]:
        check_flags(thinking=thinking)
        many: Sequence[Conversation] = [messages] if is_conversation(messages) else messages  # type: ignore[assignment]
        prompts = [self.chat_token_ids(conversation, thinking, tools) for conversation in many]
        each = each_params(params, self.default_params, len(many))
        return self._make(prompts, [own.for_answer(thinking) for own in each], inspect, policy)

    def make_one(self, prompt: Prompt, params: SamplingParams | None, inspect: bool, policy: Any) -> Request:
        """The request of one prompt with one answer, for a stream."""
        [request] = self._make([self.token_ids(prompt)], self._one(params), inspect, policy)
        return request

    def make_one_chat(
        self,
        messages: Conversation,
        params: SamplingParams | None,
        thinking: bool,
        tools: Tools | None,
        inspect: bool,
        policy: SelectionPolicy | None,
    ) -> Request:
        if not is_conversation(messages):
            raise ArgumentError("messages", f"a list of {len(messages)} conversations", "one")
        [request] = self.make_chat(messages, self._one(params), thinking, tools, inspect, policy)
        return request

    def each_answer(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> list[Request]:
        """The requests of params.n answers to a prompt of token ids. A given seed differs from one to the next."""
        each = [params]
        if params.n > 1:
            seeds = [None if params.seed is None else (params.seed + i) & MAX_SEED for i in range(params.n)]
            each = [replace(params, n=1, seed=seed) for seed in seeds]
        return [self.from_tokens(prompt, own, inspect, policy=policy) for own in each]

    def from_tokens(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        inspect: bool | int = False,
        min_new_tokens: int = 1,
        policy: SelectionPolicy | None = None,
    ) -> Request:
        """The request of one answer to a prompt of token ids, without defaults. Errors as `make`; PromptTooLong for the context.

        inspect: record the selections of all tokens, or of that many. min_new_tokens: how many tokens must fit after the prompt; 0
        for a prompt of which only logits are computed. policy: what its queries attend to instead of the model's own selection.
        """
        params = params or SamplingParams()
        tokens = self._check(prompt, params, min_new_tokens)
        remaining = self._limits.max_model_len - len(tokens)
        max_tokens = remaining if params.max_tokens is None else min(params.max_tokens, remaining)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        if policy is not None:
            if self._limits.data_ranks > 1:
                raise ArgumentError("policy", "given", "None where attention='data' divides sequences among ranks")
            policy.check(self._config.index_topk, len(tokens))
        end_ids = tuple(self.eos_ids.union(params.stop_token_ids)) if params.min_tokens else ()
        grammar = self.grammars.compile(params.structured_outputs) if params.structured_outputs else None
        most = math.inf if inspect is True else inspect
        return Request(next(self.ids), tokens, params, max_tokens, seed, most, policy, end_ids, grammar)

    def token_ids(self, prompt: Prompt) -> Sequence[int]:
        """A prompt's token ids; a text has the bos token before it."""
        content = prompt_content("prompt", prompt)
        if not isinstance(content, str):
            return content
        if not content:
            raise ArgumentError("prompt", "empty", "at least 1 character")
        return self._need_tokenizer("a text prompt").encode_prompt(content)

    def chat_token_ids(self, messages: Conversation, thinking: bool = False, tools: Tools | None = None) -> list[int]:
        return encode_messages(messages, self._need_tokenizer("a conversation"), thinking, tools, self._chat_format)

    def _make(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        inspect: bool,
        policy: SelectionPolicy | None,
    ) -> list[Request]:
        check_flags(inspect=inspect)
        if not isinstance(policy, SelectionPolicy | None):
            raise ArgumentError("policy", f"{policy!r:.100}", "a SelectionPolicy or None")
        chosen = each_params(params, self.default_params, len(prompts))
        return [
            request
            for prompt, own in zip(prompts, chosen, strict=True)
            for request in self.each_answer(prompt, own, inspect, policy)
        ]

    def _one(self, params: SamplingParams | None) -> SamplingParams:
        [params] = each_params(params, self.default_params, 1)
        if params.n != 1:
            raise ArgumentError("n", params.n, "1 for one answer; a list of prompts or conversations may have more")
        return params

    def _need_tokenizer(self, what: str) -> Tokenizer:
        if self._tokenizer is None:
            raise ValueError(f"{what} needs a tokenizer, but the checkpoint has none; expected token ids")
        return self._tokenizer

    def _check(self, prompt: Sequence[int], params: SamplingParams, min_new_tokens: int) -> tuple[int, ...]:
        """The prompt's token ids, if model and limits can serve them with these parameters."""
        tokens = check_token_ids(prompt, self._config.vocab_size)
        context = self._limits.max_model_len
        if len(tokens) > context - min_new_tokens:
            why = f"this model's maximum context length is {context} tokens, with the answer"
            raise PromptTooLong("prompt", f"{len(tokens)} tokens", f"at most {context - min_new_tokens}: {why}", "has")
        if params.n != 1:
            raise ArgumentError("n", params.n, "1 where one request is one answer")
        if params.stop and self._tokenizer is None:
            raise ArgumentError("stop", f"{params.stop!r}", "none: the model has no tokenizer (use stop_token_ids)")
        last = self._config.vocab_size - 1
        for name, ids in (("stop_token_ids", params.stop_token_ids), ("logit_bias", params.logit_bias or ())):
            for token in ids:
                if token > last:
                    raise ArgumentError(name, token, f"ids of the vocabulary, 0 to {last}", "holds")
        return tokens


def check_token_ids(tokens: Iterable[Any], vocab_size: int) -> tuple[int, ...]:
    """A prompt's token ids as a tuple of int: integers of any kind, in a list, an array or a tensor. ValueError for all else."""
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
            found = f"token id {token} at position {position}"
            raise ArgumentError("prompt", found, f"ids of the vocabulary, 0 to {vocab_size - 1}", "holds")
    return tuple(int(token) for token in ids)
