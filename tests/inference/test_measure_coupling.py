"""The probabilities with which two rules accept a draft, against draws."""

import torch

from bench.coupling import coupling, rejection
from deepseek_v32.inference.engine.sampling.noise import gumbel

DRAWS = 40_000


def test_tokens_with_the_same_noise_agree_as_often_as_computed() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(9, dtype=torch.float64, generator=generator).mul(2).log_softmax(-1) for _ in range(2))
    noise = gumbel(torch.arange(DRAWS), torch.zeros(DRAWS, dtype=torch.int64), 9)
    chosen, drafted = (noise + p).argmax(-1), (noise + q).argmax(-1)
    assert abs((chosen == drafted).double().mean().item() - coupling(p, q)) < 4 * 0.5 / DRAWS**0.5
    # Rejection: the draft is kept with probability min(1, p / q).
    kept = torch.rand(DRAWS, dtype=torch.float64, generator=generator) < (p - q)[drafted].exp()
    assert abs(kept.double().mean().item() - rejection(p, q)) < 4 * 0.5 / DRAWS**0.5
    assert coupling(p, q) < rejection(p, q) and abs(coupling(p, p) - 1) < 1e-12
