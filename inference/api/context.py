"""What every endpoint needs: the service, the model's name, and how text becomes token ids."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from ..params import MAX_SEED, Completion, PromptTooLong, Request, SamplingParams, TokenLogprob
from ..service.engine_thread import STOPPED, TIMED_OUT
from ..service.service import Busy, Service
from ..service.streams import AsyncStream
from ..text.dsml import call_start
from ..text.errors import MessageError
from ..text.messages import encode_messages
from ..text.tokenizer import Special, Tokenizer
from .errors import ApiError
from .protocol import ChatMessage, Conversation, NamedTool, Sampling


@dataclass(frozen=True)
class ApiContext:
    service: Service
    model_name: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def tokenizer(self) -> Tokenizer:
        if self.service.llm.tokenizer is None:
            raise ApiError(400, "this model has no tokenizer: only token ids can be served")
        return self.service.llm.tokenizer

    @property
    def max_model_len(self) -> int:
        return self.service.llm.limits.max_model_len

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.model_name:
            raise ApiError(
                404, f"the model {name[:100]!r} does not exist; {self.model_name!r} does", "model", "model_not_found"
            )

    def check_room(self, count: int) -> None:
        """Refuses before the prompt is read what would be refused afterwards. Busy and ApiError."""
        try:
            self.service.check_room(count)
        except ValueError as error:
            raise ApiError(400, str(error)) from None

    async def make_requests(
        self, encode: Callable[[], Sequence[int]], params: SamplingParams, n: int = 1
    ) -> list[Request]:
        """Encode one prompt and check it, in one call in another thread, because a long prompt takes a while. Raises ApiError.

        Returns n requests; a given seed differs from one to the next.
        """

        def make() -> list[Request]:
            return self.check_requests(encode(), params, n)

        return await run_in_threadpool(make)

    def check_requests(self, tokens: Sequence[int], params: SamplingParams, n: int) -> list[Request]:
        """n requests for one prompt. Not in an event loop's thread: a long prompt takes a while."""
        seeds = [None if params.seed is None else (params.seed + i) & MAX_SEED for i in range(n)]
        try:
            return [self.service.make_request(tokens, replace(params, seed=seed)) for seed in seeds]
        except PromptTooLong as error:
            raise ApiError(400, str(error), code="context_length_exceeded") from None
        except ValueError as error:
            raise ApiError(400, str(error)) from None

    def conversation_ids(self, conversation: Conversation) -> list[int]:
        """The prompt of a conversation, with what the answer must begin with. Not in an event loop's thread."""
        tokens = self.message_ids(conversation.messages, conversation.plain_tools(), conversation.thinking)
        return tokens + self.tokenizer.encode_pieces(self.answer_start(conversation))

    def answer_start(self, conversation: Conversation) -> list[str | Special]:
        """What the answer begins with, whatever the model thinks of it: nothing, or a call that tool_choice wants. ApiError."""
        choice = conversation.tool_choice
        if choice is None or choice in ("auto", "none"):
            return []
        name = choice.function.name if isinstance(choice, NamedTool) else None
        names = [tool.function.name for tool in conversation.tools or ()]
        if not names or (name is not None and name not in names):
            wanted = "a function" if name is None else repr(name)
            raise ApiError(
                400, f"tool_choice wants {wanted}; tools has {', '.join(names) or 'none'}"[:500], "tool_choice"
            )
        if conversation.thinking:
            raise ApiError(
                400, "tool_choice: an answer that begins with a call leaves no room for thinking", "tool_choice"
            )
        if self.service.llm.chat_format != "v3.2":
            raise ApiError(400, "tool_choice: this model's chat format knows only auto and none", "tool_choice")
        return call_start(name)

    def message_ids(
        self, messages: Sequence[ChatMessage], tools: list[dict[str, Any]] | None, thinking: bool
    ) -> list[int]:
        """ApiError for what the chat format cannot express. Not in an event loop's thread."""
        plain = [message.model_dump(exclude_none=True) for message in messages]
        try:
            return encode_messages(plain, self.tokenizer, thinking, tools, self.service.llm.chat_format)
        except MessageError as error:
            raise ApiError(400, str(error), "messages") from None

    def text_ids(self, text: str, add_bos: bool | None, parse_special: bool | None) -> list[int]:
        """The token ids of a text. Not in an event loop's thread."""
        encode = self.tokenizer.encode_prompt if add_bos else self.tokenizer.encode
        return encode(text, bool(parse_special))

    async def submit(self, requests: Sequence[Request]) -> list[AsyncStream]:
        """As Service.submit_many, with ApiError for more requests than the server can hold."""
        try:
            return await self.service.submit_many(requests)
        except ValueError as error:
            raise ApiError(400, str(error)) from None

    async def score(self, request: Request, top: int) -> list[TokenLogprob]:
        """As Service.score, its failures as ApiError."""
        try:
            return await self.service.score(request, top)
        except TimeoutError:
            raise _too_slow() from None
        except Busy:
            raise
        except Exception:
            raise _failed() from None  # the log has it


def sampling_params(request: Sampling, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    """What a request asks for; null fields take SamplingParams's defaults. ApiError for what only shows in combination."""
    # fmt: off
    names = ("temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos",
             "presence_penalty", "frequency_penalty", "repetition_penalty")
    # fmt: on
    given = {name: value for name in names if (value := getattr(request, name)) is not None}
    seed = None if request.seed is None else request.seed & MAX_SEED
    try:
        return SamplingParams(**given, seed=seed, max_tokens=max_tokens, logprobs=logprobs)
    except ValueError as error:
        raise ApiError(400, str(error)) from None


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(12)}"


def check_finished(completion: Completion) -> None:
    """ApiError for an answer that did not come to its end. The reason stays in the log, where the engine has written it."""
    if completion.finish_reason in ("stop", "length"):
        return
    if completion.error == TIMED_OUT:
        raise _too_slow()
    if completion.error == STOPPED:
        raise ApiError(503, STOPPED, code="stopped", headers={"Retry-After": "30"})
    raise _failed()


def _too_slow() -> ApiError:
    headers = {"x-should-retry": "false"}  # OpenAI's clients heed it: once more would take as long
    return ApiError(504, "the request took longer than this server allows", code="deadline", headers=headers)


def _failed() -> ApiError:
    return ApiError(500, "this answer failed; the server's log says why", code="failed")


def usage(completions: Sequence[Completion], choices: int = 1) -> dict[str, Any]:
    """Numbers of tokens; a prompt that has several choices counts once."""
    prompts = completions[::choices]
    prompt_tokens = sum(completion.usage.prompt_tokens for completion in prompts)
    completion_tokens = sum(completion.usage.completion_tokens for completion in completions)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(completion.usage.cached_tokens for completion in prompts)},
    }
