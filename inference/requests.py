"""From what callers give to `LLM` to the engine's requests."""

from collections.abc import Sequence
from typing import Any

from ..kernels.errors import ArgumentError, check_flags
from ..model.selection_policy import SelectionPolicy
from .chat import Tools
from .engine.engine import Engine
from .params import Request, SamplingParams
from .prompts import Conversation, Prompt, each_params, each_prompt, is_conversation, one_prompt
from .text.messages import ChatFormat, encode_messages
from .text.tokenizer import Tokenizer


class RequestMaker:
    """Makes requests, without queueing them. Any thread may call its methods at any time; a request may be used once.

    ValueError names an argument of the wrong type, or the value that is out of range. One parameter may stand for all prompts.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer | None, chat_format: ChatFormat, default_params: SamplingParams
    ) -> None:
        self.default_params = default_params  # of requests that come without
        self._engine = engine
        self._tokenizer = tokenizer
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
        """The requests of one conversation or several."""
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
        """The request of one conversation with one answer."""
        if not is_conversation(messages):
            raise ArgumentError("messages", f"a list of {len(messages)} conversations", "one")
        [request] = self.make_chat(messages, self._one(params), thinking, tools, inspect, policy)
        return request

    def token_ids(self, prompt: Prompt) -> Sequence[int]:
        """A prompt's token ids; a text has the bos token before it."""
        content = one_prompt(prompt)
        if not isinstance(content, str):
            return content
        if not content:
            raise ArgumentError("prompt", "empty", "at least 1 character")
        return self._need_tokenizer("a text prompt").encode_prompt(content)

    def chat_token_ids(self, messages: Conversation, thinking: bool = False, tools: Tools | None = None) -> list[int]:
        """The prompt of a conversation."""
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
        return [
            self._engine.make_request(prompt, own, inspect, policy=policy)
            for prompt, chosen in zip(prompts, each_params(params, self.default_params, len(prompts)), strict=True)
            for own in chosen.for_each()
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
