"""fp32 products on a GPU: in fp64, so that a row hardly depends on the others; and bf16 ones, which stay as they are."""

from collections.abc import Callable

import pytest
import torch

from deepseek_v32.kernels.reference import dense_mla, grouped_gemm, indexer_logits, kv_up_projection, quantize
from deepseek_v32.kernels.reference.linear import linear
from deepseek_v32.kernels.reference.sparse_mla_prefill import sparse_attention
from deepseek_v32.kernels.reference.wide import widened
from deepseek_v32.kernels.types import GroupedRows, IndexerOperands

ROWS, WIDTH = 200, 512


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).cuda()


def _attention(x: torch.Tensor) -> torch.Tensor:
    indices = torch.arange(300, device=x.device).expand(len(x), -1)
    return sparse_attention(x.unflatten(1, (4, -1)), random(300, 128, seed=2), indices, 0.1, 64, None, None)[0]


def _experts(x: torch.Tensor) -> torch.Tensor:
    offsets = torch.tensor([0, len(x)], dtype=torch.int32)
    weight = random(1, 96, WIDTH, seed=3)
    out = torch.empty(len(x), 96, device=x.device)
    grouped_gemm.grouped_gemm(GroupedRows(x, weight, offsets, None, None, len(x), out))
    return out


def _values(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(x), 4, 64, device=x.device)
    kv_up_projection.expand_values(x.unflatten(1, (4, -1)), random(4, 64, 128, seed=4), out)
    return out


def _queries(x: torch.Tensor) -> torch.Tensor:
    tables = torch.ones(len(x), 16, device=x.device), torch.zeros(len(x), 16, device=x.device)
    return kv_up_projection.absorb_queries(x.unflatten(1, (4, -1)), *tables, random(4, 96, 64, seed=5))


def _scores(x: torch.Tensor) -> torch.Tensor:
    starts, ends = (torch.full((len(x),), each, dtype=torch.int32, device=x.device) for each in (0, 300))
    weights = torch.ones(len(x), 4, device=x.device)
    given = IndexerOperands(x.unflatten(1, (4, -1)), random(300, 128, seed=6), weights, starts, ends, None)
    return indexer_logits.indexer_logits(given)


def _prompt(x: torch.Tensor) -> torch.Tensor:
    keys = random(300, 4, 128, seed=7)
    mask = torch.ones(len(x), 300, dtype=torch.bool, device=x.device)
    return dense_mla.mha_prefill(x.unflatten(1, (4, -1)), keys, keys, 0.1, mask)


PRODUCTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear": lambda x: linear(x, random(384, WIDTH, seed=1)),
    "rms_norm": lambda x: quantize.rms_norm(x, random(WIDTH, seed=8), 1e-6),
    "attention": _attention,
    "experts": _experts,
    "values": _values,
    "queries": _queries,
    "scores": _scores,
    "prompt": _prompt,
}


def test_only_fp32_on_a_gpu_is_widened() -> None:
    for x in (torch.ones(2), torch.ones(2, dtype=torch.bfloat16), torch.ones(2, device="meta")):
        assert widened(x)[0] is x


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_row_hardly_depends_on_the_others(name: str) -> None:
    """Of elements in batches of other sizes, one in 10,000 may have another last bit."""
    x, product = random(ROWS, WIDTH, seed=0), PRODUCTS[name]
    whole = product(x)
    assert whole.dtype == torch.float32
    for count in (1, 3, 17, 64):
        part = product(x[:count])
        assert (part != whole[:count]).float().mean() <= 1e-4, count
        torch.testing.assert_close(part, whole[:count], rtol=1e-6, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_linear_is_rounded_once() -> None:
    x, weight = random(ROWS, WIDTH, seed=0), random(384, WIDTH, seed=1)
    assert torch.equal(linear(x, weight), (x.double() @ weight.double().T).float())
