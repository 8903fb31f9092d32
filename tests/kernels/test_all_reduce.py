"""Sums over ranks through inboxes. Here the ranks are streams of one GPU; tests/inference/test_ranks_gpu.py has several."""

import pytest
import torch

from deepseek_v32.kernels.cuda.all_reduce import CTA_BYTES, Inboxes, all_reduce

pytestmark = pytest.mark.gpu

LARGEST = 1 << 20  # bytes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_get_the_sum_in_the_order_of_ranks(size: int, dtype: torch.dtype) -> None:
    """Sums of changing sizes follow each other without waiting for the host, more than there are places for."""
    boxes = torch.zeros(size, Inboxes.size_of(size, LARGEST), dtype=torch.uint8, device="cuda")
    addresses = torch.tensor([box.data_ptr() for box in boxes], device="cuda")
    calls = torch.zeros(size, LARGEST // CTA_BYTES, dtype=torch.int32, device="cuda")
    ranks = [Inboxes(boxes[rank], addresses, calls[rank], rank) for rank in range(size)]
    generator = torch.Generator("cuda").manual_seed(size)
    counts = [8, 7168, 40_000, 8, 7168, 7168, LARGEST // dtype.itemsize, 16, 7168 * 8, 7168]
    sizes = 2.0 ** torch.arange(-8, 8, device="cuda")
    rounds = [
        (torch.randn(size, count, generator=generator, device="cuda") * sizes.repeat(count // 8)[:count]).to(dtype)
        for count in counts
    ]
    for x in rounds:
        x[:, 3] = -0.0
    streams = [torch.cuda.Stream() for _ in range(size)]
    results: list[list[torch.Tensor]] = []
    torch.cuda.synchronize()
    for rank, stream in zip(ranks, streams, strict=True):
        with torch.cuda.stream(stream):
            results.append([all_reduce(x[rank.rank], rank) for x in rounds])
    torch.cuda.synchronize()
    for number, x in enumerate(rounds):
        expected = x[0].float()
        for part in x[1:]:
            expected = expected + part.float()
        for found in results:
            assert torch.equal(found[number].view(torch.uint8), expected.to(dtype).view(torch.uint8)), counts[number]


def test_what_does_not_fit() -> None:
    own = torch.zeros(Inboxes.size_of(2, LARGEST), dtype=torch.uint8, device="cuda")
    inboxes = Inboxes(own, torch.zeros(2, dtype=torch.int64), torch.zeros(LARGEST // CTA_BYTES, dtype=torch.int32), 0)
    x = torch.zeros(LARGEST // 4 + 4, device="cuda")
    assert inboxes.fits(x[4:]) and inboxes.fits(x[:4]) and inboxes.fits(x[:8].bfloat16())
    for refused in (x, x[:3], x[1:5], x[:8].view(2, 4).T, x[:4].double(), x[:0]):
        assert not inboxes.fits(refused), refused.shape
