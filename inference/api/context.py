"""What every endpoint needs: the service, the model's name, and how text becomes token ids."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from ..params import MAX_SEED, Completion, SamplingParams, TokenLogprob
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

    async def encode_conversation(self, conversation: Conversation) -> list[int]:
        tokens = await self.encode_messages(conversation.messages, conversation.plain_tools(), conversation.thinking)
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

    async def encode_messages(
        self, messages: Sequence[ChatMessage], tools: list[dict[str, Any]] | None, thinking: bool
    ) -> list[int]:
        """In another thread: a long text takes a while. ApiError for what the chat format cannot say."""
        plain = [message.model_dump(exclude_none=True) for message in messages]
        try:
            return await run_in_threadpool(
                encode_messages, plain, self.tokenizer, thinking, tools, self.service.llm.chat_format
            )
        except MessageError as error:
            raise ApiError(400, str(error), "messages") from None

    async def encode_text(self, text: str, add_bos: bool | None, parse_special: bool | None) -> list[int]:
        encode = self.tokenizer.encode_prompt if add_bos else self.tokenizer.encode
        return await run_in_threadpool(encode, text, *([True] if parse_special else []))

    async def submit(self, prompts: Sequence[Sequence[int]], params: SamplingParams, n: int = 1) -> list[AsyncStream]:
        """n answers to each prompt, those to the first prompt first. A given seed differs from choice to choice."""
        for prompt in prompts:
            self.check_prompt(prompt)
        seeds = [None if params.seed is None else (params.seed + i) & MAX_SEED for i in range(n)]
        try:
            return await self.service.submit_many(
                [(prompt, replace(params, seed=seed)) for prompt in prompts for seed in seeds]
            )
        except ValueError as error:
            raise ApiError(400, str(error)) from None

    async def score(self, tokens: Sequence[int], top: int) -> list[TokenLogprob]:
        """As Service.score, its failures as ApiError."""
        try:
            return await self.service.score(tokens, top)
        except ValueError as error:
            raise ApiError(400, str(error)) from None
        except TimeoutError:
            raise _too_slow() from None
        except Busy:
            raise
        except Exception:
            raise _failed() from None  # the log has it

    def check_prompt(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= self.max_model_len:
            message = (
                f"the prompt has {len(tokens)} tokens; the context of {self.max_model_len} must hold it and an answer"
            )
            raise ApiError(400, message, code="context_length_exceeded")


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
