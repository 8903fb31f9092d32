"""Shared by the endpoints: the service, the model's name, the encoding and checking of prompts, and failures of answers."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....kernels.errors import ArgumentError
from ...completion import Completion, TokenLogprob
from ...params import MAX_SEED, PromptTooLong, Request, SamplingParams
from ...text.errors import MessageError, TooManyTokens
from ...text.messages import conversation_pieces
from ...text.tokenizer import Special, Tokenizer, utf8_length
from ..service.admission import Busy
from ..service.entry import STOPPED
from ..service.service import Service
from ..service.streams import AsyncStream
from .encoding import EncodingQueue
from .errors import ApiError
from .protocol import ChatMessage, ConversationFields


@dataclass(frozen=True)
class ApiContext:
    """One for each application. Methods that encode prompts take a while: `encoding.run` runs them beside the event loop."""

    service: Service
    model_name: str
    aliases: Sequence[str] = ()  # other names under which clients may ask for the model
    encoding: EncodingQueue = field(default_factory=EncodingQueue)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def tokenizer(self) -> Tokenizer:
        if self.service.llm.tokenizer is None:
            raise ApiError(400, "the model has no tokenizer; expected a prompt of token ids")
        return self.service.llm.tokenizer

    @property
    def max_model_len(self) -> int:
        return self.service.llm.limits.max_model_len

    def check_model(self, name: str | None) -> None:
        if name is not None and name not in (self.model_name, *self.aliases):
            names = " or ".join(map(repr, (self.model_name, *self.aliases)))
            raise ApiError(404, f"model is {name[:100]!r}; expected {names[:400]}", "model", "model_not_found")

    def check_capacity(self, count: int) -> None:
        """Raise Busy or ApiError, before the prompts are encoded, if `count` requests would be refused afterwards."""
        try:
            self.service.check_capacity(count)
        except ValueError as error:
            raise ApiError(400, str(error)) from None
        # Without this, all requests of a crowd would be encoded before most of them are refused.
        if self.encoding.places and self.service.stats().places + self.encoding.places + count > self.service.capacity:
            raise Busy(f"the queue is full: {self.service.capacity} requests are running, waiting or being encoded", 1)

    async def make_requests(
        self,
        size: int,
        encode: Callable[[], Sequence[int]],
        params: SamplingParams,
        n: int = 1,
        inspect: bool = False,
        form_field: str = "structured_outputs",
    ) -> list[Request]:
        """n requests for the prompt that `encode` returns; a given seed differs from one to the next. Raises ApiError and Busy.

        The prompt is encoded and checked in one call of `encoding.run`; `size` is that of its text, in characters. inspect: their
        selections are recorded. form_field: the name that errors give to `params.structured_outputs`.
        """
        seeds = [None if params.seed is None else (params.seed + i) & MAX_SEED for i in range(n)]

        def make() -> list[Request]:
            tokens = encode()
            try:
                return [self.service.make_request(tokens, replace(params, seed=seed), inspect) for seed in seeds]
            except PromptTooLong as error:
                raise ApiError(400, str(error), code="context_length_exceeded") from None
            except ArgumentError as error:
                if error.name.partition(".")[0] != "structured_outputs":
                    raise ApiError(400, str(error)) from None
                if form_field != "structured_outputs":  # the client has not said what kind of grammar it becomes
                    error = error.renamed(form_field)
                raise ApiError(400, str(error), form_field) from None

        return await self.encoding.run(size, make, n)

    def conversation_ids(self, conversation: ConversationFields, schema: Mapping[str, Any] | None = None) -> list[int]:
        """Token ids of a conversation's prompt; schema: of the JSON that is wanted. Raises ApiError."""
        tools = conversation.plain_tools()
        adds, field = conversation.add_generation_prompt, "add_generation_prompt"
        if adds is False and not conversation.continues:
            raise ApiError(400, f"{field} is false; expected true: an answer without it is none of the model's", field)
        if adds and conversation.continue_final_message:
            raise ApiError(400, f"{field} is true; expected false with continue_final_message", field)
        return self.message_ids(
            conversation.messages, tools, conversation.thinking, continues=conversation.continues, schema=schema
        )

    def message_ids(
        self,
        messages: Sequence[ChatMessage],
        tools: list[dict[str, Any]] | None,
        thinking: bool,
        *,
        continues: bool = False,
        schema: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation's prompt. Raises ApiError for messages that the chat format cannot express."""
        plain = [message.model_dump(exclude_none=True) for message in messages]
        chat_format = self.service.llm.chat_format
        if (
            schema is not None and chat_format == "v3.2"
        ):  # the format has a place for it, which is part of the system message
            if plain[0]["role"] != "system":
                plain.insert(0, {"role": "system", "content": ""})
            plain[0]["response_format"] = schema
        try:
            pieces = conversation_pieces(plain, self.tokenizer, thinking, tools, chat_format, continues)
        except MessageError as error:
            raise ApiError(400, str(error), "messages") from None
        self._check_might_fit(pieces)
        try:
            return self.tokenizer.encode_pieces(pieces, self.max_model_len)
        except TooManyTokens as error:
            raise self._too_long(f"at least {error.count} tokens") from None

    def text_ids(self, text: str, add_bos: bool | None, parse_special: bool | None) -> list[int]:
        """Token ids of a text. Raises ApiError for one that the context cannot hold, before it is encoded if its length tells."""
        self._check_might_fit([text], bool(parse_special))
        bos = [self.tokenizer.bos_id] if add_bos and self.tokenizer.bos_id is not None else []
        try:
            return bos + self.tokenizer.encode(text, bool(parse_special), self.max_model_len)
        except TooManyTokens as error:
            raise self._too_long(f"{error.count} tokens") from None

    def _check_might_fit(self, pieces: Sequence[str | Special], parse_special: bool = False) -> None:
        least = self.tokenizer.least_tokens(pieces, parse_special)
        if least > self.max_model_len:
            size = sum(utf8_length(piece) for piece in pieces if isinstance(piece, str))
            raise self._too_long(f"{size} bytes, which are at least {least} tokens")

    def _too_long(self, length: str) -> ApiError:
        return ApiError(
            400,
            f"prompt has {length}; expected at most {self.max_model_len - 1} tokens: "
            f"the context of {self.max_model_len} holds prompt and answer",
            code="context_length_exceeded",
        )

    async def submit(self, requests: Sequence[Request]) -> list[AsyncStream]:
        """As Service.submit_many, with ApiError for more requests than the server can hold."""
        try:
            return await self.service.submit_many(requests)
        except ValueError as error:
            raise ApiError(400, str(error)) from None

    async def score(self, request: Request, top: int) -> list[TokenLogprob]:
        """As Service.score, but failures are ApiErrors."""
        try:
            return await self.service.score(request, top)
        except TimeoutError:
            raise _deadline_passed() from None
        except Busy:
            raise
        except Exception:
            # The engine has logged the reason.
            raise _answer_failed() from None


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(12)}"


def check_finished(completion: Completion) -> None:
    """Raise ApiError for an answer that was cut short. It does not tell the reason, which the engine has logged."""
    if completion.finish_reason in ("stop", "length"):
        return
    if completion.error_code == "deadline":
        raise _deadline_passed()
    if completion.error_code == "stopped":
        raise ApiError(503, STOPPED, code="stopped", headers={"Retry-After": "30"})
    raise _answer_failed()


def _deadline_passed() -> ApiError:
    # OpenAI's clients obey it. Another try would take as long.
    headers = {"x-should-retry": "false"}
    return ApiError(504, "the request took longer than this server allows", code="deadline", headers=headers)


def _answer_failed() -> ApiError:
    return ApiError(500, "this answer failed; the server's log says why", code="failed")


def usage(completions: Sequence[Completion], choices: int = 1) -> dict[str, Any]:
    """Numbers of tokens. A prompt with several choices counts once."""
    prompts = completions[::choices]
    prompt_tokens = sum(completion.usage.prompt_tokens for completion in prompts)
    completion_tokens = sum(completion.usage.completion_tokens for completion in completions)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(completion.usage.cached_tokens for completion in prompts)},
    }
