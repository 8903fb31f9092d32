"""Parameters out of range: ValueError with the name, the value and the limit."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.engine.request_maker import check_token_ids
from deepseek_v32.kernels.errors import ArgumentError

BAD: list[tuple[str, Any, str]] = [
    ("temperature", -0.1, "at least 0"),
    ("temperature", math.nan, "finite"),
    ("temperature", "1", "number"),
    ("top_p", 0.0, "above 0"),
    ("top_p", 1.1, "at most 1"),
    ("top_k", -2, "at least 1"),
    ("top_k", 1.5, "integer"),
    ("min_p", -0.01, "between 0 and 1"),
    ("min_p", 1.01, "between 0 and 1"),
    ("max_tokens", 0, "at least 1"),
    ("max_tokens", True, "integer"),
    ("seed", -1, "between 0"),
    ("seed", 2**64, "2\\^64"),
    ("logprobs", -1, "between 0"),
    ("logprobs", 65, "64"),
    ("presence_penalty", 2.1, "between -2 and 2"),
    ("frequency_penalty", -2.1, "between -2 and 2"),
    ("repetition_penalty", 0.0, "between 0.01"),
    ("repetition_penalty", 1e-40, "between 0.01"),  # a logit divided by it is infinite, and no token can be sampled
    ("repetition_penalty", math.inf, "finite"),
    ("stop", "", "non-empty"),
    ("stop", 3, "expected a list"),
    ("stop_token_ids", 3, "expected a list"),
    ("ignore_eos", 1, "expected True or False"),
    ("stop", ["a", 1], "strings"),
    ("stop_token_ids", [-1], "from 0"),
    ("stop_token_ids", ["a"], "integers"),
]


@pytest.mark.parametrize("name,value,limit", BAD, ids=[f"{name}={value!r}" for name, value, _ in BAD])
def test_a_value_out_of_range_is_named_with_its_limit(name: str, value: Any, limit: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}.*{limit}") as caught:
        SamplingParams(**{name: value})
    assert "\n" not in str(caught.value)


def test_one_stop_string_may_come_bare() -> None:
    assert SamplingParams(stop="end").stop == ("end",)
    assert SamplingParams(stop=None).stop == ()  # as vLLM's clients send it
    assert SamplingParams(stop=["a", "b"], stop_token_ids=[3]) == SamplingParams(stop=("a", "b"), stop_token_ids=(3,))


@pytest.mark.parametrize(
    "tokens,message",
    [
        ([], "empty"),
        ([1, 9], "token id 9 at position 1; expected ids of the vocabulary, 0 to 8"),
        ([-1], "token id -1"),
        ([1.0], "1.0 at position 0; expected an integer"),
        ([True], "integer"),
        ([2, True], "True at position 1"),
        ([2**70], "token id 1180591620717411303424"),
        ([5, -1, "a"], "token id -1 at position 1"),
        (np.array([0.5]), "0.5 at position 0"),
        (np.array([True]), "True at position 0"),
        (torch.tensor([1.0]), "1.0 at position 0"),
        (np.array([[1, 2]]), r"\[1, 2\] at position 0"),
    ],
)
def test_token_ids_outside_the_vocabulary_are_refused(tokens: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_token_ids(tokens, 9)


def test_token_ids_of_other_integer_types_become_int() -> None:
    whole = [np.array([1, 2]), torch.tensor([1, 2]), [np.int32(1), torch.tensor(2)], (1, 2), iter([1, np.uint8(2)])]
    for tokens in whole:
        found = check_token_ids(tokens, 9)
        assert found == (1, 2) and [type(token) for token in found] == [int, int]


def test_an_argument_error_keeps_its_parts_under_another_name() -> None:
    with pytest.raises(ArgumentError) as caught:
        SamplingParams(stop=["x"] * 65)
    error = caught.value
    assert (error.name, str(error)) == ("stop", "stop has 65 strings; expected at most 64")
    renamed = error.renamed("--stop")
    assert (renamed.name, str(renamed)) == ("--stop", "--stop has 65 strings; expected at most 64")
