"""Many short requests in deterministic mode: with experts in few slots they get the bits that the resident model gives them."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from campaigns.determinism import make_case, run
from deepseek_v32.inference import LLM
from deepseek_v32.model.transformer import Transformer

REQUESTS = 60  # of a case; 1,020 in all
SLICE = {"max_batch_tokens": 160, "max_sequences": 16, "page_count": 9, "reuse_pages": True, "speculative_tokens": 2}


@pytest.fixture(scope="module")
def models() -> Iterator[list[Transformer]]:
    """The resident demo, then with slots for one of its 24 experts, for 10 % and for 50 % of them."""
    with ExitStack() as stack:
        options: list[dict[str, Any]] = [{"offload": "experts", "expert_slots": slots} for slots in (1, 2, 12)]
        made = [
            stack.enter_context(LLM(deterministic=True, page_count=8, speculative_tokens=2, **each))
            for each in ({}, *options)
        ]
        yield [llm.model for llm in made if isinstance(llm.model, Transformer)]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("seed", "fixed"),
    [
        pytest.param(2, SLICE, id="slice"),
        *(pytest.param(seed, {}, marks=pytest.mark.slow, id=f"case {seed}") for seed in range(17)),
    ],
)
def test_answers_under_load(models: list[Transformer], seed: int, fixed: dict[str, Any]) -> None:
    """Chunks, reused prefixes, preemption, drafts and cancelled requests; the slice has all of them. Limits are drawn at random."""
    limits, asked = make_case(seed, models[0].config.vocab_size, REQUESTS, 96)
    limits |= {"threads": 1, **fixed}
    expected, seen = run(models[0], limits, asked, random.Random(seed))
    ends = {each.end for each in expected}
    assert "error" not in ends
    assert not fixed or ("abort" in ends and all(seen[what] for what in ("preempted", "cached", "drafted", "accepted")))
    for model in models[1:]:
        slots = model.expert_slots
        assert slots is not None and slots.most == 24
        read = slots.read
        answers, _ = run(model, limits, asked, random.Random(seed))
        assert answers == expected, f"{slots.count} slots"
        assert slots.read > read
