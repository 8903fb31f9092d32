"""Sums over ranks through inboxes. Here the ranks are streams of one GPU; tests/inference/test_ranks_gpu.py has several."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.cuda.all_reduce import CTA_BYTES, Inboxes, all_reduce, all_reduce_norm
from deepseek_v32.kernels.quantize import rms_norm_quantize
from deepseek_v32.kernels.types import Normed

pytestmark = pytest.mark.gpu

LARGEST = 1 << 20  # bytes


def make_ranks(size: int) -> list[Inboxes]:
    boxes = torch.zeros(size, Inboxes.size_of(size, LARGEST), dtype=torch.uint8, device="cuda")
    addresses = torch.tensor([box.data_ptr() for box in boxes], device="cuda")
    calls = torch.zeros(size, LARGEST // CTA_BYTES, dtype=torch.int32, device="cuda")
    return [Inboxes(boxes[rank], addresses, calls[rank], rank) for rank in range(size)]


def by_all(ranks: list[Inboxes], run: Callable[[Inboxes], Any]) -> list[Any]:
    """What `run` returns for each rank, on a stream of its own."""
    results = []
    torch.cuda.synchronize()
    for rank in ranks:
        with torch.cuda.stream(torch.cuda.Stream()):
            results.append(run(rank))
    torch.cuda.synchronize()
    return results


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_get_the_sum_in_the_order_of_ranks(size: int, dtype: torch.dtype) -> None:
    """Sums of changing sizes follow each other without waiting for the host, more than there are places for."""
    generator = torch.Generator("cuda").manual_seed(size)
    counts = [8, 7168, 40_000, 8, 7168, 7168, LARGEST // dtype.itemsize, 16, 7168 * 8, 7168]
    sizes = 2.0 ** torch.arange(-8, 8, device="cuda")
    rounds = [
        (torch.randn(size, count, generator=generator, device="cuda") * sizes.repeat(count // 8)[:count]).to(dtype)
        for count in counts
    ]
    for x in rounds:
        x[:, 3] = -0.0
    results = by_all(make_ranks(size), lambda rank: [all_reduce(x[rank.rank], rank) for x in rounds])
    for number, x in enumerate(rounds):
        expected = x[0].float()
        for part in x[1:]:
            expected = expected + part.float()
        for found in results:
            assert torch.equal(found[number].view(torch.uint8), expected.to(dtype).view(torch.uint8)), counts[number]


@pytest.mark.parametrize("ue8m0", [True, False], ids=["ue8m0", "plain scale"])
@pytest.mark.parametrize("size", [2, 3])
def test_the_norm_has_the_bits_of_two_launches(size: int, ue8m0: bool) -> None:
    """Steps of changing sizes follow each other. The residual stream is a part of a wider tensor."""
    generator = torch.Generator("cuda").manual_seed(size)
    parts = [
        torch.randn(size, count, 7168, generator=generator, device="cuda").bfloat16() for count in (1, 64, 3, 1, 8)
    ]
    residual = (torch.randn(64, 8192, generator=generator, device="cuda") * 5).bfloat16()[:, :7168]
    gain = torch.rand(7168, generator=generator, device="cuda") + 0.5

    def norms(rank: Inboxes) -> list[Normed]:
        return [all_reduce_norm(x[rank.rank], rank, residual[: x.shape[1]], gain, 1e-6, ue8m0) for x in parts]

    results, sums = (
        by_all(make_ranks(size), run) for run in (norms, lambda rank: [all_reduce(x[rank.rank], rank) for x in parts])
    )
    for number, x in enumerate(sums[0]):
        expected = rms_norm_quantize(residual[: len(x)], gain, 1e-6, ue8m0, x)
        for found in results:
            normed = found[number]
            assert torch.equal(normed.total, expected.total) and torch.equal(normed.rows, expected.rows)
            assert torch.equal(normed.quantized.values.view(torch.uint8), expected.quantized.values.view(torch.uint8))
            assert torch.equal(normed.quantized.scales, expected.quantized.scales)


SINGLE = """
import torch
from deepseek_v32.kernels.cuda import all_reduce as sums

boxes = torch.zeros(2, sums.Inboxes.size_of(2, 4096), dtype=torch.uint8, device="cuda")
addresses = torch.tensor([box.data_ptr() for box in boxes], device="cuda")
inboxes = sums.Inboxes(boxes[0], addresses, torch.zeros(1, dtype=torch.int32, device="cuda"), 0)
sums.LONGEST_WAIT = 0.5
sums.all_reduce(torch.ones(8, device="cuda"), inboxes)
print("waits", flush=True)
torch.cuda.synchronize()
"""


def test_a_rank_that_waits_for_too_long_fails() -> None:
    """In a process of its own, because no kernel can run after the error."""
    ended = subprocess.run([sys.executable, "-P", "-c", SINGLE], capture_output=True, text=True, timeout=120)
    assert ended.stdout.splitlines() == ["waits"]
    assert ended.returncode != 0 and "CUDA error" in ended.stderr


def test_what_does_not_fit() -> None:
    own = torch.zeros(Inboxes.size_of(2, LARGEST), dtype=torch.uint8, device="cuda")
    inboxes = Inboxes(own, torch.zeros(2, dtype=torch.int64), torch.zeros(LARGEST // CTA_BYTES, dtype=torch.int32), 0)
    x = torch.zeros(LARGEST // 4 + 4, device="cuda")
    assert inboxes.fits(x[4:]) and inboxes.fits(x[:4]) and inboxes.fits(x[:8].bfloat16())
    for refused in (x, x[:3], x[1:5], x[:8].view(2, 4).T, x[:4].double(), x[:0]):
        assert not inboxes.fits(refused), refused.shape
