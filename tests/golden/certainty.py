"""The certain part of a greedy answer: tokens that are far ahead of all others in every correct arithmetic."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.completion import Completion

from .right_engines import FP8_INDEXER, VARIANTS
from .servers import SIZES

MARGIN = 3.0  # nats between the likeliest token and the next one, in exact precision
STEADY = 2.0  # of all engines' margins, in units of what rounding changes them by: it may change more in other engines
LONGEST = 12  # tokens of an answer that are asked for


@dataclass(frozen=True)
class Judge:
    """An engine, and the context in which it rounds in its way."""

    llm: LLM
    change: Callable[[], AbstractContextManager[None]] = nullcontext
    said: dict[tuple[tuple[int, ...], int], Completion] = field(
        default_factory=dict
    )  # because questions are asked again

    def answer(self, tokens: Sequence[int], most: int) -> Completion:
        """The greedy answer of at most `most` tokens, with the two likeliest tokens of each place."""
        asked = (tuple(tokens), most)
        if asked not in self.said:
            sampling = SamplingParams(temperature=0, max_tokens=most, logprobs=2)
            with self.change():
                [self.said[asked]] = self.llm.generate([list(tokens)], sampling)
        return self.said[asked]


@dataclass(frozen=True)
class Jury:
    """The exact engine, whose answers are the right ones, and others that round."""

    exact: Judge
    rounding: tuple[Judge, ...]

    def answer(self, tokens: Sequence[int], most: int) -> Completion:
        """The right answer."""
        return self.exact.answer(tokens, most)

    def token_ids(self, messages: list[dict[str, Any]], **chat: Any) -> list[int]:
        """The prompt that the chat format makes of a conversation."""
        found: list[int] = self.exact.llm.chat_token_ids(messages, **chat)
        return found

    def count_margins(self, tokens: Sequence[int], most: int = LONGEST, margin: float = MARGIN) -> int:
        """Count the right answer's tokens before the first that is not ahead of the next one by `margin` nats."""
        margins = margins_of(self.answer(tokens, most))
        return next((place for place, gap in enumerate(margins) if gap < margin), len(margins))

    def count_certain(self, tokens: Sequence[int]) -> int:
        """Count the tokens before the first whose margin is below STEADY times its change by rounding."""
        right, count = self.answer(tokens, LONGEST), self.count_margins(tokens)
        for judge in self.rounding:
            if count:
                said = judge.answer(tokens, count)
                count = count_steady(right.token_ids[:count], margins_of(right), said.token_ids, margins_of(said))
        return count


def jury(model: Path) -> Jury:
    """Engines of a checkpoint: the exact one, and two of those whose noise the verdict knows; the others stay held out."""
    rounding = [Judge(LLM(model, device="cpu", precision="fp8", **SIZES))]
    variant = VARIANTS[FP8_INDEXER]
    with variant.change():
        llm = LLM(model, device="cpu", precision="bf16", **SIZES)
    rounding.append(Judge(llm, variant.change))
    return Jury(Judge(LLM(model, device="cpu", precision="exact", **SIZES)), tuple(rounding))


def margins_of(completion: Completion) -> list[float]:
    """The margin of the likeliest token over the next one, in nats, by place."""
    assert completion.logprobs is not None
    return [entry.top[0][1] - entry.top[1][1] for entry in completion.logprobs]


def count_steady(right: Sequence[int], margins: Sequence[float], other: Sequence[int], others: Sequence[float]) -> int:
    """Count the tokens of `right` that another engine gives too, with both margins at least STEADY times their difference."""
    places = zip(right, margins, other, others, strict=False)
    for place, (token, margin, said, rounded) in enumerate(places):
        if token != said or min(margin, rounded) < STEADY * abs(margin - rounded):
            return place
    return min(len(right), len(other))
