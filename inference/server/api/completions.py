"""POST /v1/completions."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from ...completion import Completion, Delta, Timings, TokenLogprob, Usage
from ...params import MAX_LOGPROBS
from ..service.streams import AsyncStream
from .context import ApiContext, check_finished, usage
from .errors import DONE, ApiError, declared
from .events import Chunks, EventStream, collect, merged, whole
from .fields import (
    MAX_CHOICES,
    MAX_PROMPTS,
    MAX_TOKENS,
    Integer,
    Prompt,
    SamplingFields,
    Text,
    form_field,
    sampling_params,
)
from .guard import BoundedRoute
from .logprobs import TextLogprobsBuilder, prompt_logprobs, selections, selections_of
from .responses import EVENTS, TextCompletion


class CompletionRequest(SamplingFields):
    prompt: (
        Text
        | Prompt
        | Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[Prompt], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPTS)]
    ) = Field(description="a text or a list of token ids, or a list of either")
    max_tokens: Integer | None = Field(16, ge=0, le=MAX_TOKENS, description="0 only with echo")
    logprobs: Integer | None = Field(None, ge=0, le=MAX_LOGPROBS)
    echo: bool | None = False
    best_of: Integer | None = Field(None, ge=1, le=MAX_CHOICES, description="n or nothing")
    suffix: Annotated[str, Field(max_length=0)] | None = Field(None, description="not served")
    add_special_tokens: bool | None = Field(False, description="put the beginning-of-sentence token before a text")
    parse_special_tokens: bool | None = Field(False, description="encode control tokens that a text spells as such")

    def prompts(self) -> list[str] | list[list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]  # type: ignore[list-item]
        return self.prompt  # type: ignore[return-value]


@dataclass(frozen=True)
class _Prompt:
    tokens: list[int]
    text: str  # the text to echo; "" without echo
    scores: list[TokenLogprob] | None  # of the tokens after the first, with both echo and logprobs
    logprobs: list[Any] | None = None  # with prompt_logprobs


def completions_router(context: ApiContext) -> APIRouter:
    router = APIRouter(tags=["OpenAI"], route_class=BoundedRoute)

    @router.post(
        "/v1/completions",
        response_model=None,
        responses={200: {"model": TextCompletion, "content": EVENTS}, **declared(404, 504)},
    )
    async def create_completion(body: CompletionRequest, request: Request) -> Response:
        """Continue a text."""
        if body.stream:
            return EventStream(_stream(context, body, *await _begin(context, body)))
        return await whole(request, answer_completion(context, body))

    return router


async def answer_completion(context: ApiContext, body: CompletionRequest) -> dict[str, Any]:
    """The whole answer in OpenAI's shape. Raises ApiError and Busy."""
    prompts, streams = await _begin(context, body)
    completions = await collect(streams) if streams else [_empty_completion(prompt) for prompt in prompts]
    choices = []
    for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        choice = _Choice(context, body, index, prompt)
        echo, answer = choice.echo(), choice.piece(completion.text, completion.logprobs or [], completion)
        if echo is not None:
            answer["text"] = echo["text"] + answer["text"]
            if answer["logprobs"] is not None:
                answer["logprobs"] = {
                    name: echo["logprobs"][name] + values for name, values in answer["logprobs"].items()
                }
        if body.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt.logprobs
        if body.return_selections:
            answer["selections"] = selections(completion.selection or ())
        choices.append(answer)
    return {**context.head("cmpl-", "text_completion"), "choices": choices, "usage": usage(completions, body.n or 1)}


async def _begin(context: ApiContext, body: CompletionRequest) -> tuple[list[_Prompt], list[AsyncStream]]:
    """(one prompt per choice, one stream per choice); no streams with max_tokens 0. All refusals of a request happen here."""
    n = body.n or 1
    context.check(body.model, len(body.prompts()) * n)
    if body.best_of not in (None, n):
        raise ApiError(
            400, f"best_of is {body.best_of}; expected {n}, which is n: no other answers are made", "best_of"
        )
    max_tokens = body.max_tokens
    if max_tokens is None or "max_tokens" not in body.model_fields_set:
        max_tokens = min(16, context.service.requests.max_new_tokens or 16)
    if max_tokens == 0 and not body.echo:
        raise ApiError(400, "max_tokens is 0; expected at least 1, or echo", "max_tokens")
    params = sampling_params(body, max(max_tokens, 1), body.logprobs, context.service.requests.default_params)
    prompts, requests = [], []
    for source in body.prompts():
        specials = body.add_special_tokens, body.parse_special_tokens
        encode = partial(context.text_ids, source, *specials) if isinstance(source, str) else partial(list, source)
        made = await context.make_requests(len(source), encode, params, bool(body.return_selections), form_field(body))
        prompts.append(await _prompt(context, body, list(made[0].prompt)))
        requests += made
    streams = await context.service.submit_many(requests) if max_tokens else []
    return [prompt for prompt in prompts for _ in range(n)], streams


async def _prompt(context: ApiContext, body: CompletionRequest, tokens: list[int]) -> _Prompt:
    asked = None if body.prompt_logprobs is None else await prompt_logprobs(context, tokens, body.prompt_logprobs)
    if not body.echo:
        return _Prompt(tokens, "", None, asked)
    scores = None if body.logprobs is None else await context.score(tokens, body.logprobs)
    text = await context.encoding.run(len(tokens), partial(context.tokenizer.decode, tokens))
    return _Prompt(tokens, text, scores, asked)


async def _stream(
    context: ApiContext, body: CompletionRequest, prompts: list[_Prompt], streams: list[AsyncStream]
) -> AsyncGenerator[bytes, None]:
    prompt_tokens = sum(len(prompt.tokens) for prompt in prompts[:: body.n or 1])
    chunks = Chunks(context.head("cmpl-", "text_completion"), body.stream_options, prompt_tokens)
    choices = [_Choice(context, body, index, prompt) for index, prompt in enumerate(prompts)]
    texts = [chunks.text(choice.piece) for choice in choices]
    completions = [_empty_completion(prompt) for prompt in prompts]
    for choice, completion in zip(choices, completions, strict=True):
        if (echo := choice.echo()) is not None:
            yield chunks.choice(echo)
        if not streams:
            yield chunks.choice(choice.piece("", (), completion))
    async for index, deltas in merged(streams):
        chunks.count(deltas)
        piece = choices[index].push(deltas)
        if isinstance(piece, str):
            yield texts[index](piece)
        elif piece is not None:
            yield chunks.choice(piece)
        completions[index] = deltas[-1].completion or completions[index]
    if chunks.with_usage:
        yield chunks.usage(usage(completions, body.n or 1))
    yield DONE


class _Choice:
    """The chunks of one choice, or the whole choice."""

    def __init__(self, context: ApiContext, body: CompletionRequest, index: int, prompt: _Prompt) -> None:
        self._index = index
        self._prompt = prompt if body.echo else None
        self._with_selections = bool(body.return_selections)
        tokenizer = context.service.llm.tokenizer
        self._logprobs = TextLogprobsBuilder(tokenizer) if body.logprobs is not None else None

    def echo(self) -> dict[str, Any] | None:
        """The chunk that repeats the prompt; None without echo."""
        if self._prompt is None:
            return None
        piece = self.piece(self._prompt.text)
        if self._logprobs is not None:
            piece["logprobs"] = self._logprobs.prompt(self._prompt.tokens, self._prompt.scores or [])
        return piece

    def push(self, deltas: list[Delta]) -> dict[str, Any] | str | None:
        """The next chunk for these deltas: only its text if it holds nothing else, None if there is nothing to send yet.

        Raises ApiError if the answer failed.
        """
        last = deltas[-1].completion
        if last is not None:
            check_finished(last)
        text = "".join([delta.text for delta in deltas])
        if last is None and self._logprobs is None and not self._with_selections:
            return text or None
        piece = self.piece(text, [entry for delta in deltas for entry in delta.logprobs], last)
        return {**piece, "selections": selections_of(deltas)} if self._with_selections else piece

    def piece(self, text: str, entries: Sequence[TokenLogprob] = (), last: Completion | None = None) -> dict[str, Any]:
        return {
            "index": self._index,
            "text": text,
            "logprobs": self._logprobs.block(entries) if self._logprobs is not None else None,
            "finish_reason": last.finish_reason if last else None,
            "stop_reason": last.stop_reason if last else None,
        }


def _empty_completion(prompt: _Prompt) -> Completion:
    """The answer with max_tokens 0."""
    usage = Usage(len(prompt.tokens), 0, 0)
    return Completion("", [], "length", usage, Timings(None, 0.0, None, 1.0))
