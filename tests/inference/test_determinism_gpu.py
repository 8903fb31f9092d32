"""The deterministic mode on a Hopper GPU: single requests, requests under load, and mistakes that show only there.

scripts/check_determinism.py compares more requests; test_determinism_ranks_gpu.py has several GPUs.
"""

from collections.abc import Iterator

import pytest
import torch

from campaigns.determinism import run_case
from campaigns.determinism_models import random_layers
from campaigns.determinism_mutants import Mutant, gpu_mutants
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.config import Precision
from deepseek_v32.model.transformer import Transformer

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_the_same_bits_on_a_gpu(precision: Precision) -> None:
    """The demo under load, with decode graphs where the precision has them, and without the mode."""
    model = load_model(DEMO, precision, device="cuda", mtp=True, deterministic=True)
    total, wrong = run_case(model, 1, count=16, longest=512)
    assert not wrong and total["rows"] > 16
    plain = load_model(DEMO, precision, device="cuda", mtp=True)
    assert any(run_case(plain, seed, count=16, longest=512)[1] for seed in range(6))


@pytest.mark.parametrize("name", ["body by row count", "pieces by batch", "padding leaks"])
def test_mistakes_are_caught_in_the_demo(name: str) -> None:
    model = load_model(DEMO, "fp8", device="cuda", mtp=True, deterministic=True)
    with gpu_mutants()[name].applied():
        assert any(run_case(model, seed, count=16, longest=512)[1] for seed in range(3))


@pytest.fixture(scope="module")
def wide() -> Iterator[Transformer]:
    """Two layers of the released widths: sums of up to 144 blocks of K, 128 heads, 8 of 32 experts; scales that round sums."""
    yield random_layers(2, "fp8", torch.device("cuda"), experts=32, vocabulary=8192, any_scales=True)
    torch.cuda.empty_cache()


def differ(model: Transformer, cases: int) -> bool:
    return any(run_case(model, seed, count=16, longest=3000)[1] for seed in range(cases))


def test_wide_layers_have_the_same_bits(wide: Transformer) -> None:
    assert not differ(wide, 3)


@pytest.mark.parametrize(
    "name",
    [
        "body by row count",
        "K split by row count",
        "padding leaks",
        "merged in any order",
        "fp32 products by row count",
        "pieces from the prefix",
    ],
)
def test_mistakes_are_caught_in_wide_layers(name: str, wide: Transformer) -> None:
    """Mistakes that the demo hides are caught: its sums have two blocks of K, and its scales are powers of two.

    Mistakes in divided lists are caught with the demo, which has few heads.
    """
    mutant: Mutant = gpu_mutants()[name]
    with mutant.applied():
        assert differ(wide, 12)
