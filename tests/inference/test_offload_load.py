"""Many short requests in deterministic mode: with experts in few slots they get the bits that the resident model gives them."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from campaigns.determinism import make_case, run
from deepseek_v32.inference import LLM
from deepseek_v32.model.transformer import Transformer

REQUESTS = 60  # of a case


@pytest.fixture(scope="module")
def models() -> Iterator[list[Transformer]]:
    """The resident demo, then with slots for one expert, 10 % and 50 % of them."""
    with ExitStack() as stack:
        resident = stack.enter_context(LLM(deterministic=True, page_count=8))
        most = resident.config.n_routed_experts * (resident.config.num_hidden_layers - resident.config.first_k_dense_replace + 1)
        loaded = [resident] + [
            stack.enter_context(LLM(deterministic=True, page_count=8, offload="experts", expert_slots=slots))
            for slots in (1, most // 10, most // 2)
        ]
        yield [each.model for each in loaded if isinstance(each.model, Transformer)]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "seeds",
    [range(6, 7), *(pytest.param(range(first, first + 1), marks=pytest.mark.slow) for first in range(17))],
    ids=lambda seeds: str(seeds[0]),
)
def test_answers_under_load(models: list[Transformer], seeds: range) -> None:
    """Chunks, reused prefixes, preemption, drafts and cancelled requests. A case's limits are drawn at random."""
    seen = Counter[str]()
    for seed in seeds:
        limits, asked = make_case(seed, models[0].config.vocab_size, REQUESTS, 96)
        limits["threads"] = 1
        expected, found = run(models[0], limits, asked, random.Random(seed))
        assert not [each for each in expected if each.end == "error"]
        seen += found + Counter(each.end for each in expected)
        for model in models[1:]:
            slots = model.expert_slots
            assert slots is not None
            read = slots.read
            answers, _ = run(model, limits, asked, random.Random(seed))
            assert answers == expected, f"seed {seed}, {slots.count} of {slots.most} experts"
            assert slots.read > read
    print(dict(seen))
