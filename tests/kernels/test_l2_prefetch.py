"""Weights that kernels bring into L2 for later ones: how much of them, and that no result changes."""

import pytest
import torch

from deepseek_v32.kernels.cuda.l2_prefetch import MOST_BYTES, rows_ahead
from deepseek_v32.kernels.fp32_ops import fp32_linear
from deepseek_v32.kernels.kv_up_projection import absorb_queries


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (MOST_BYTES // 1024, 1024), (7168, 16384), (24576, 1536)])
def test_a_part_within_the_bound(rows: int, columns: int) -> None:
    weight = torch.empty(rows, columns, dtype=torch.uint8)
    ahead, every = rows_ahead(weight)
    assert ahead is not None and ahead.data_ptr() == weight.data_ptr() and ahead.nbytes == weight.nbytes
    assert weight.nbytes <= every * MOST_BYTES and (every == 1 or weight.nbytes > (every - 1) * MOST_BYTES)


def test_rows_that_cannot_be_brought() -> None:
    """A bulk prefetch takes multiples of 16 bytes from 16-byte boundaries."""
    weight = torch.empty(8, 64, dtype=torch.uint8)
    for refused in (None, weight[:, 1:], weight[:, :40], weight[:0], torch.empty(8, 24, dtype=torch.uint8)):
        assert rows_ahead(refused) == (None, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 8, 16, 64])
@pytest.mark.parametrize("shape", [(1, 16), (7, 1536), (96, 1536), (7168, 16384)], ids=str)
def test_results_do_not_depend_on_it(tokens: int, shape: tuple[int, int]) -> None:
    """Of weights of any size, one piece or many, whether the number of rows is even or not."""
    generator = torch.Generator("cuda").manual_seed(tokens)
    upcoming = torch.zeros(shape, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    x = torch.randn(tokens, 7168, generator=generator, device="cuda").bfloat16()
    weight = torch.randn(256, 7168, generator=generator, device="cuda")
    q = torch.randn(tokens, 128, 192, generator=generator, device="cuda").bfloat16()
    wk = torch.randn(128, 128, 512, generator=generator, device="cuda").bfloat16()
    angles = torch.randn(tokens, 32, generator=generator, device="cuda")
    for backend in ("cuda", ("invariant",)):
        plain, ahead = (fp32_linear(x, weight, 0.3, each, backend=backend) for each in (None, upcoming))
        assert torch.equal(plain, ahead)
        plain, ahead = (
            absorb_queries(q, angles.cos(), angles.sin(), wk, each, backend=backend) for each in (None, upcoming)
        )
        assert torch.equal(plain, ahead)
