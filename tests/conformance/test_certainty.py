"""Golden answers are certain: questions whose answers rounding could change are left out."""

from types import SimpleNamespace

import pytest

from deepseek_v32.inference.completion import TokenLogprob
from golden.certainty import MARGIN, Judge, Jury, margins_of


class Engine:
    """Answers with given tokens, each ahead of token 0 by its margin."""

    def __init__(self, tokens, margins):
        self.tokens, self.margins, self.asked = tokens, margins, []

    def generate(self, prompts, sampling):
        self.asked.append(sampling.max_tokens)
        count = min(sampling.max_tokens, len(self.tokens))
        logprobs = [
            TokenLogprob(token, -0.1, ((token, -0.1), (0, -0.1 - margin)))
            for token, margin in zip(self.tokens[:count], self.margins, strict=False)
        ]
        return [SimpleNamespace(token_ids=self.tokens[:count], logprobs=logprobs)]


def jury_of(exact, *rounding) -> Jury:
    return Jury(Judge(Engine(*exact)), tuple(Judge(Engine(*each)) for each in rounding))


RIGHT = ([5, 6, 7, 8], [9.0, 8.0, 4.1, 9.0])


@pytest.mark.parametrize(
    "rounding, count",
    [
        ([], 4),
        ([RIGHT], 4),
        ([([5, 6, 7, 8], [9.5, 7.0, 3.0, 9.0])], 4),  # 3.0 is more than twice 1.1
        ([([5, 6, 7, 8], [9.0, 8.0, 2.0, 9.0])], 2),  # 2.0 is less than twice 2.1
        ([([5, 6, 7, 8], [9.0, 8.0, 30.0, 9.0])], 2),  # as unsteady, although it is surer
        ([([5, 9, 7, 8], [9.0, 8.0, 4.1, 9.0])], 1),  # another token
        ([([5, 6], [9.0, 8.0])], 2),  # an answer that ends
        ([RIGHT, ([5, 6, 7, 8], [2.0, 8.0, 4.1, 9.0])], 0),
    ],
)
def test_a_token_is_certain_if_every_engine_is_ahead_by_more_than_rounding_changes(rounding, count):
    assert jury_of(RIGHT, *rounding).count_certain([1, 2, 3]) == count


def test_a_token_is_certain_only_if_the_exact_engine_is_ahead_by_the_margin():
    unsure = ([5, 6, 7], [9.0, MARGIN - 0.01, 9.0])
    jury = jury_of(unsure, unsure)
    assert jury.count_certain([1, 2, 3]) == jury.count_margins([1, 2, 3]) == 1
    assert jury.count_margins([1, 2, 3], margin=0.5) == 3


def test_engines_that_round_are_asked_once_and_for_no_more_than_is_certain_without_them():
    jury = jury_of(([5, 6, 7], [9.0, 8.0, 0.5]), ([5, 6, 7], [9.0, 8.0, 0.5]))
    assert jury.count_certain([1, 2, 3]) == jury.count_certain([1, 2, 3]) == 2
    engine = jury.rounding[0].llm
    assert engine.asked == [2]
    assert margins_of(jury.answer([1], 2)) == pytest.approx([9.0, 8.0])
