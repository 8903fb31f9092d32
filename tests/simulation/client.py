"""A client of the simulated service: it reads a stream and knows what must come out of it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from deepseek_v32.inference.completion import Completion, Delta
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.inference.server.service.streams import AsyncStream
from deepseek_v32.inference.text.grammar import StructuredOutputsParams
from simulation.model import EOS, ORDINARY, answer


@lru_cache
def sampling(kind: str, max_tokens: int, text: bool) -> SamplingParams:
    """Kinds of requests: "greedy", "penalty" and "grammar" (which need earlier tokens on the host), "random", "stop" (at a token
    or text)."""
    options: dict[str, Any] = {}
    if kind == "penalty":
        options["presence_penalty"] = 2.0
    if kind == "grammar":
        options["structured_outputs"] = StructuredOutputsParams(regex="SimulatedGrammar")
    if kind == "stop":
        options |= {"stop": ["ab"]} if text else {"stop_token_ids": [1]}
    return SamplingParams(temperature=float(kind == "random"), seed=7, max_tokens=max_tokens, **options)


class Client:
    """Reads one stream.

    ahead: the clients whose requests were open when this one's was queued. patience: turns in which the oldest request advances.
    """

    def __init__(
        self,
        stream: Any,
        prompt: tuple[int, ...],
        max_tokens: int,
        params: SamplingParams,
        ahead: Sequence["Client"],
        patience: int,
        start: int = ORDINARY,
    ) -> None:
        self.stream, self.prompt, self.max_tokens, self.params = stream, prompt, max_tokens, params
        self.start = start  # of its SelectionPolicy
        self.cancelled = self.gone = False
        self.left = False  # through the service, which then has its place again
        self.work = len(prompt) + max_tokens
        self.deltas: list[Delta] = []
        # One that was ended may leave a step that advances no request.
        self._longest = patience * (self.work + sum(other.work for other in ahead))
        self._bound = self._longest + len(ahead) + 1
        self._turns = 0

    @property
    def completion(self) -> Completion | None:
        return self.deltas[-1].completion if self.deltas else None

    @property
    def error(self) -> str | None:
        return self.completion.error if self.completion else None

    def count_turn(self, scored: int) -> None:
        """A turn is over and the request is open; `scored` prompts took pages from it, at worst all."""
        self._turns += 1
        self._bound += scored * self._longest
        assert self._turns <= self._bound, f"a request has waited for {self._turns} turns"

    def read(self) -> None:
        """Take what has arrived, without waiting."""
        for delta in self._take():
            assert self.completion is None, "a request ended twice"
            self.deltas.append(delta)

    def _take(self) -> list[Delta]:
        if self.gone:
            return []
        if not isinstance(self.stream, AsyncStream):
            queue = self.stream._inbox
            return [queue.get() if self.completion else next(self.stream) for _ in range(queue.qsize())]
        if not self.stream._inbox._deltas:
            return []
        try:
            self.stream.take().send(None)  # which does not wait, because there are some
        except StopIteration as result:
            return result.value
        raise AssertionError("the stream waits although deltas have arrived")

    def check(self) -> str:
        """Compare with the answer that the request's own tokens determine. Returns the finish reason."""
        whole = self.completion
        assert whole is not None
        expected = answer(self.prompt, self.max_tokens, self.params, self.start)
        tokens = tuple(whole.token_ids)
        assert tokens == tuple(token for delta in self.deltas for token in delta.token_ids), "deltas lack tokens"
        assert whole.text == "".join(delta.text for delta in self.deltas), "deltas lack text"
        assert whole.usage.completion_tokens == len(tokens) and whole.usage.prompt_tokens == len(self.prompt)
        if whole.finish_reason in ("stop", "length"):
            assert tokens == expected, f"{self.prompt} got {tokens}; expected {expected}"
            ended = tokens[-1] == EOS or tokens[-1] in self.params.stop_token_ids or whole.stop_reason is not None
            assert ended == (whole.finish_reason == "stop")
        else:
            assert tokens == expected[: len(tokens)], f"{self.prompt} got {tokens}, which does not begin {expected}"
        return whole.finish_reason
