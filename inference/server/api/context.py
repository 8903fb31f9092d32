"""Shared by the endpoints: the service, the model's name, the encoding and checking of prompts, and failures of answers."""

import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from ....kernels.errors import ArgumentError
from ...completion import Completion, TokenLogprob
from ...engine.request import PromptTooLong, Request
from ...params import SamplingParams
from ...text.errors import TooManyTokens
from ...text.longest_token import utf8_length
from ...text.tokenizer import END_THINK, Special, Tokenizer
from ..service.service import Busy, Service
from .errors import ApiError, stopped

Result = TypeVar("Result")

# Characters. Encoding takes about 0.1 s of a core and 30 MB for a text of this length, 3 s and 1 GB for one of 8 MB.
LONG_TEXT = 2**18
MAX_OPEN = 4 * 2**23
CHARACTERS_PER_SECOND = 2**21


class EncodingQueue:
    """Encodes prompts in threads; the tokenizer releases the interpreter's lock meanwhile.

    Long texts are encoded one at a time, so that short ones go past them. All open texts together have at most MAX_OPEN characters.
    """

    def __init__(self) -> None:
        # Requests whose prompts are being encoded. They will take places in the service's queue.
        self.places = 0
        self._open = 0
        self._long = CapacityLimiter(1)
        self._short = CapacityLimiter(8)

    async def run(self, size: int, work: Callable[[], Result], places: int = 0) -> Result:
        """The result of `work`, which encodes a text of `size` characters for `places` requests. Raises Busy, and its errors."""
        if self._open and self._open + size > MAX_OPEN:
            raise Busy(
                f"{self._open} characters of other prompts are being encoded; expected at most {MAX_OPEN} with this one",
                retry_after=math.ceil(self._open / CHARACTERS_PER_SECOND),
            )
        self._open += size
        self.places += places
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._long if size > LONG_TEXT else self._short)
        finally:
            self._open -= size
            self.places -= places


@dataclass(frozen=True)
class ApiContext:
    """One for each application. Methods that encode prompts take a while: `encoding.run` runs them outside the event loop."""

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

    def head(self, prefix: str, kind: str) -> dict[str, Any]:
        """The fields with which an answer, or each chunk of it, begins. prefix: of its id."""
        return {"id": new_id(prefix), "object": kind, "created": int(time.time()), "model": self.model_name}

    def reasoning_tokens(self, completion: Completion) -> int:
        """Tokens of an answer that starts inside of its reasoning, up to the end of that."""
        tokens, end = completion.token_ids, self.tokenizer.special_ids.get(END_THINK)
        return tokens.index(end) + 1 if end in tokens else len(tokens)

    def check_model(self, name: str | None) -> None:
        if name is not None and name not in (self.model_name, *self.aliases):
            names = " or ".join(map(repr, (self.model_name, *self.aliases)))
            raise ApiError(404, f"model is {name[:100]!r}; expected {names[:400]}", "model", "model_not_found")

    def check(self, model: str | None, count: int) -> None:
        """Raise Busy or ApiError, before prompts are encoded, for another model, or if `count` requests would be refused later."""
        self.check_model(model)
        try:
            # Without the second number, all requests of a crowd would be encoded before most of them are refused.
            self.service.check_capacity(count, self.encoding.places)
        except ValueError as error:
            raise ApiError(400, str(error)) from None

    async def make_requests(
        self,
        size: int,
        encode: Callable[[], Sequence[int]],
        params: SamplingParams,
        inspect: bool = False,
        form_field: str = "structured_outputs",
    ) -> list[Request]:
        """The requests of params.n answers to the prompt that `encode` returns. Raises ApiError and Busy.

        The prompt is encoded and checked in one call of `encoding.run`; `size` is that of its text, in characters. inspect: their
        selections are recorded. form_field: the name that errors give to `params.structured_outputs`.
        """

        def make() -> list[Request]:
            tokens = encode()
            try:
                return self.service.requests.each_answer(tokens, params, inspect)
            except PromptTooLong as error:
                raise ApiError(400, str(error), code="context_length_exceeded") from None
            except ArgumentError as error:
                if error.name.partition(".")[0] != "structured_outputs":
                    raise ApiError(400, str(error), error.name) from None
                if form_field != "structured_outputs":  # the client has not said what kind of grammar it becomes
                    error = error.renamed(form_field)
                raise ApiError(400, str(error), form_field) from None

        return await self.encoding.run(size, make, params.n)

    def text_ids(self, text: str, add_bos: bool | None, parse_special: bool | None) -> list[int]:
        """Token ids of a text. Raises ApiError for one that the context cannot hold, before it is encoded if its length tells."""
        self.check_might_fit([text], bool(parse_special))
        bos = [self.tokenizer.bos_id] if add_bos and self.tokenizer.bos_id is not None else []
        try:
            return bos + self.tokenizer.encode(text, bool(parse_special), self.max_model_len)
        except TooManyTokens as error:
            raise self.too_long(f"{error.count} tokens") from None

    def check_might_fit(self, pieces: Sequence[str | Special], parse_special: bool = False) -> None:
        """Raise ApiError for a text whose length tells that the context cannot hold it."""
        least = self.tokenizer.least_tokens(pieces, parse_special)
        if least > self.max_model_len:
            size = sum(utf8_length(piece) for piece in pieces if isinstance(piece, str))
            raise self.too_long(f"{size} bytes, which are at least {least} tokens")

    def too_long(self, length: str) -> ApiError:
        """The error for a prompt of this length, in words."""
        return ApiError(
            400,
            f"prompt has {length}; expected at most {self.max_model_len - 1} tokens: "
            f"this model's maximum context length is {self.max_model_len} tokens, with the answer",
            code="context_length_exceeded",
        )

    async def score(self, tokens: Sequence[int], top: int) -> list[TokenLogprob]:
        """Like Service.score, for the tokens of a prompt. Raises Busy and ApiError."""
        [request] = await self.make_requests(0, lambda: tokens, SamplingParams(max_tokens=1))
        try:
            return await self.service.score(request, top)
        except Busy:
            raise
        except Exception as error:  # which the engine has logged
            raise (_deadline_passed() if isinstance(error, TimeoutError) else _answer_failed()) from None


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


def check_finished(completion: Completion) -> None:
    """Raise ApiError for an answer that was cut short. It does not tell the reason, which the engine has logged."""
    if completion.finish_reason in ("stop", "length"):
        return
    if completion.error_code == "deadline":
        raise _deadline_passed()
    if completion.error_code == "stopped":
        raise stopped()
    raise _answer_failed()


def _deadline_passed() -> ApiError:
    # OpenAI's clients obey it. Another try would take as long.
    headers = {"x-should-retry": "false"}
    return ApiError(504, "the request took longer than this server allows", code="deadline", headers=headers)


def _answer_failed() -> ApiError:
    return ApiError(500, "this answer failed; the server's log says why", code="failed")


def usage(completions: Sequence[Completion], choices: int = 1, reasoning: int | None = None) -> dict[str, Any]:
    """Numbers of tokens. A prompt with several choices counts once. reasoning: the reasoning tokens of all answers."""
    prompts = completions[::choices]
    prompt_tokens = sum(completion.usage.prompt_tokens for completion in prompts)
    completion_tokens = sum(completion.usage.completion_tokens for completion in completions)
    counts = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(completion.usage.cached_tokens for completion in prompts)},
    }
    return counts if reasoning is None else {**counts, "completion_tokens_details": {"reasoning_tokens": reasoning}}
