"""Experts' gates and ups, SwiGLU and quantisation in one operation: the bits of grouped_gemm followed by swiglu_quantize."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.grouped_gemm import fuses_swiglu, grouped_gemm, grouped_gemm_swiglu
from deepseek_v32.kernels.quantize import quantize_blocks, swiglu_quantize

FP8 = torch.float8_e4m3fn


def offsets_of(counts: list[int]) -> torch.Tensor:
    return torch.tensor(np.cumsum([0, *counts]), dtype=torch.int32)


@pytest.mark.parametrize("ue8m0", [True, False])
def test_swiglu_is_the_product_then_swiglu(ue8m0: bool) -> None:
    counts, inner, k = [3, 0, 40], 192, 200
    generator = torch.Generator().manual_seed(0)
    a = quantize_blocks(torch.randn(sum(counts), k, generator=generator).bfloat16(), ue8m0)
    weight = (torch.randn(3, 2 * inner, k, generator=generator) * 32).to(FP8)
    scale = torch.rand(3, 3, 2, generator=generator) + 0.5
    taken = torch.randperm(sum(counts), generator=generator).int()
    operands = a, weight, offsets_of(counts), scale
    result = grouped_gemm_swiglu(*operands, ue8m0, sorted_token_ids=taken)
    expected = swiglu_quantize(grouped_gemm(*operands, sorted_token_ids=taken), ue8m0)
    assert torch.equal(result.values.view(torch.uint8), expected.values.view(torch.uint8))
    assert torch.equal(result.scales, expected.scales)


GATED_LOADS = {  # rows of each of 32 experts, 33 to 160 on average; I; K
    "uniform": ([64] * 32, 256, 512),
    "uneven": ([0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 400] + [50] * 20, 128, 384),
    "with empty experts": ([0] * 16 + [130, 140] * 8, 384, 128),
    "of the model": ([97, 129, 145, 161] * 8, 2048, 7168),
}


@pytest.mark.gpu
@pytest.mark.parametrize("ue8m0", [True, False])
@pytest.mark.parametrize(("counts", "inner", "k"), GATED_LOADS.values(), ids=GATED_LOADS.keys())
def test_swiglu_in_one_kernel(counts: list[int], inner: int, k: int, ue8m0: bool) -> None:
    """It has the bits of the two kernels, also where values are not finite."""
    generator = torch.Generator("cuda").manual_seed(0)
    weight = torch.empty(32, 2 * inner, k, dtype=FP8, device="cuda")
    for expert in weight:
        expert.copy_(torch.randn(2 * inner, k, device="cuda", generator=generator) * 32)
    scale = torch.rand(32, inner // 64, k // 128, device="cuda", generator=generator) + 0.5
    rows, offsets = sum(counts) + 5, offsets_of(counts).cuda()
    sizes = 10.0 ** torch.randint(-6, 2, (rows, 1), device="cuda", generator=generator)
    x = (torch.randn(rows, k, device="cuda", generator=generator) * sizes).bfloat16()
    x[3, 0], x[rows // 2] = math.inf, 0
    a = quantize_blocks(x, ue8m0)
    expected_m = sum(counts)
    assert fuses_swiglu(a, weight, expected_m, "cuda")
    taken = torch.randperm(rows, device="cuda", generator=generator).int()
    for ids in (None, taken):
        operands = a, weight, offsets, scale
        products = grouped_gemm(*operands, sorted_token_ids=ids, expected_m=expected_m, backend="cuda")
        expected = swiglu_quantize(products, ue8m0, backend="tile")
        preference = ("cuda", "auto")
        result = grouped_gemm_swiglu(*operands, ue8m0, sorted_token_ids=ids, expected_m=expected_m, backend=preference)
        for ours, theirs in zip(result, expected, strict=True):
            bits = [x[: sum(counts)].contiguous().view(torch.uint8) for x in (ours, theirs)]
            assert torch.equal(*bits)
