"""The router against its formula, token by token in plain Python."""

import math

import pytest
import torch

from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.layers import Compute
from deepseek_v32.model.moe import Router


def route(x: list[float], gate: list[list[float]], bias: list[float], config: ModelConfig) -> dict[int, float]:
    """Expert → weight, as in the specification."""
    scores = [1 / (1 + math.exp(-sum(a * b for a, b in zip(x, row, strict=True)))) for row in gate]
    biased = [score + b for score, b in zip(scores, bias, strict=True)]
    size = len(gate) // config.n_group
    groups = [range(g * size, (g + 1) * size) for g in range(config.n_group)]
    by_score = sorted(groups, key=lambda group: -sum(sorted((biased[e] for e in group), reverse=True)[:2]))
    candidates = [expert for group in by_score[: config.topk_group] for expert in group]
    chosen = sorted(candidates, key=lambda expert: -biased[expert])[: config.num_experts_per_tok]
    total = sum(scores[e] for e in chosen) + 1e-20 if config.norm_topk_prob else 1.0
    return {expert: scores[expert] / total * config.routed_scaling_factor for expert in chosen}


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    ("experts", "groups", "kept", "chosen"),
    [(8, 1, 1, 2), (8, 4, 2, 3), (8, 8, 4, 3), (12, 3, 1, 4), (16, 4, 4, 1)],
    ids=["one group", "released shape", "groups of one expert", "one group kept", "every group kept"],
)
def test_router(experts: int, groups: int, kept: int, chosen: int, normalise: bool) -> None:
    config = ModelConfig(
        hidden_size=10,
        n_routed_experts=experts,
        n_group=groups,
        topk_group=kept,
        num_experts_per_tok=chosen,
        norm_topk_prob=normalise,
    )
    router = Router(config, Compute("exact", ("auto",), torch.device("cpu")))
    generator = torch.Generator().manual_seed(experts + groups)
    router.weight.normal_(generator=generator)
    # Strongly negative biases: experts of a dropped group must rank below all of them.
    router.e_score_correction_bias.normal_(-3, 0.3, generator=generator)
    x = torch.randn(50, 10, generator=generator)
    picked, weights = router.choose(x)
    for row in range(50):
        expected = route(x[row].tolist(), router.weight.tolist(), router.e_score_correction_bias.tolist(), config)
        got = dict(zip(picked[row].tolist(), weights[row].tolist(), strict=True))
        assert got == pytest.approx(expected, rel=1e-5)
