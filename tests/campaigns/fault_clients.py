"""The clients of a trial: their requests, and their answers as streams of an LLM or through a Service."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.completion import Delta
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.server.service.service import Service

SECONDS = 60.0  # in which a trial must end
FACTS = (
    "The summit is 431 metres high. The bakery opens at 8:15. "
    "The price of the lamp is 42 euros. The wifi password of the bakery is amber-kettle-7. "
)
QUESTIONS = ("How high is the summit?", "When does the bakery open?", "How much is the lamp?")


@dataclass(frozen=True)
class Work:
    """A request that trials repeat, and the answer that it gets on its own."""

    prompt: tuple[int, ...]
    params: SamplingParams
    inspect: bool
    tokens: tuple[int, ...]


@dataclass
class Outcome:
    """The deltas that a client has received of one request."""

    request: Request
    deltas: list[Delta] = field(default_factory=list)

    @property
    def error(self) -> str | None:
        completion = self.deltas[-1].completion if self.deltas else None
        return completion.error if completion else None

    @property
    def ended(self) -> bool:
        return bool(self.deltas) and self.deltas[-1].finish_reason is not None

    def complaint(self, work: Work, cancelled: bool) -> str | None:
        if not self.ended or sum(delta.finish_reason is not None for delta in self.deltas) != 1:
            return "has not ended once"
        completion = self.deltas[-1].completion
        assert completion is not None
        if completion.finish_reason == "abort" and not cancelled:
            return "ended as if cancelled"
        if completion.finish_reason == "length" and len(self.tokens) != len(work.tokens):
            return f"got {len(self.tokens)} tokens; expected {len(work.tokens)}"
        return None

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for delta in self.deltas for token in delta.token_ids)

    def differs(self, work: Work) -> bool:
        """Tell whether the tokens so far differ from those that the request gets on its own."""
        return self.tokens != work.tokens[: len(self.tokens)]


def demo_prompts(llm: LLM) -> list[list[int]]:
    """Conversations that share beginnings; their lengths lie around the ends of pages."""
    chats = []
    for number in range(12):
        question = QUESTIONS[number % len(QUESTIONS)]
        chats.append([{"role": "user", "content": FACTS[: 20 + 14 * number] + question}])
    return [llm.chat_token_ids(chat) for chat in chats]


def read_streams(llm: LLM, outcomes: list[Outcome], cancel: int | None) -> None:
    """Read interleaved streams of an LLM, of which one may be cancelled."""
    streams = [(number, llm._driver.deltas([outcome.request])) for number, outcome in enumerate(outcomes)]
    end = time.monotonic() + SECONDS
    while streams and time.monotonic() < end:
        for each in list(streams):
            number, stream = each
            delta = next(stream, None)
            if delta is None:
                streams.remove(each)
                continue
            outcomes[number].deltas.append(delta)
            if number == cancel and len(outcomes[number].deltas) == 2:
                llm.engine.abort(delta.request_id)


def read_service(
    service: Service, outcomes: list[Outcome], cancel: int | None, score: Request | None
) -> BaseException | None:
    """Read through a Service and an event loop. Returns the exception of scoring a prompt at the same time."""

    async def read(number: int, stream: Any) -> None:
        async for delta in stream:
            outcomes[number].deltas.append(delta)
            if number == cancel and len(outcomes[number].deltas) == 2:
                service.cancel(delta.request_id)

    async def main() -> BaseException | None:
        streams = await service.submit_many([outcome.request for outcome in outcomes])
        reads = [read(number, stream) for number, stream in enumerate(streams)]
        scored = service.score(score) if score else asyncio.sleep(0)
        error = (await asyncio.gather(scored, *reads, return_exceptions=True))[0]
        return error if isinstance(error, BaseException) else None

    try:
        return asyncio.run(asyncio.wait_for(main(), SECONDS))
    except TimeoutError:
        return None  # the outcomes tell
