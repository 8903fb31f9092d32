"""The grouped GEMM against float64: each row with the weight of its expert, one row at a time."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cuda.fp8_gemm import EXPERT_TILE, Tile
from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from deepseek_v32.kernels.routing import group_by_expert
from deepseek_v32.kernels.types import Quantized
from support import e4m3
from support.backends import Backend
from support.small_kernels import multiply

FP8 = torch.float8_e4m3fn

COUNTS = {  # rows of each expert; N; K
    "one row": ([1], 128, 128),
    "empty experts at both ends and between": ([0, 3, 0, 0, 2, 0], 128, 128),
    "all to one": ([0, 0, 9, 0], 64, 256),
    "a tile and one": ([65, 1, 64], 136, 128),
    "ragged dims": ([2, 5], 130, 200),
    "no row": ([0, 0, 0], 128, 128),
}


def expert_of_row(counts: list[int]) -> list[int]:
    return [expert for expert, count in enumerate(counts) for _ in range(count)]


def offsets_of(counts: list[int]) -> torch.Tensor:
    return torch.tensor(np.cumsum([0, *counts]), dtype=torch.int32)


@pytest.mark.parametrize(("counts", "n", "k"), COUNTS.values(), ids=COUNTS.keys())
@pytest.mark.parametrize(
    ("dtype", "out_dtype", "rounding"),
    [
        (torch.float32, None, 2.0**-23),
        (torch.bfloat16, None, 2.0**-8),
        (torch.bfloat16, torch.float32, 2.0**-23),
    ],
    ids=["fp32", "bf16", "bf16 to fp32"],
)
def test_plain(
    backend: Backend, counts: list[int], n: int, k: int, dtype: torch.dtype, out_dtype: torch.dtype, rounding: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(sum(counts), k, generator=generator).to(dtype)
    weight = torch.randn(len(counts), n, k, generator=generator).to(dtype)
    result = backend.run(grouped_gemm, a, weight, offsets_of(counts), out_dtype=out_dtype)
    assert result.shape == (sum(counts), n) and result.dtype == (out_dtype or dtype)
    for row, expert in enumerate(expert_of_row(counts)):
        left, right = a[row].double(), weight[expert].double()
        expected, size = right @ left, right.abs() @ left.abs()
        assert ((result[row].double() - expected).abs() <= rounding * expected.abs() + 2.0**-20 * size).all()


@pytest.mark.parametrize(("counts", "n", "k"), COUNTS.values(), ids=COUNTS.keys())
@pytest.mark.parametrize(
    ("out_dtype", "rounding"), [(None, 2.0**-8), (torch.float32, 2.0**-23)], ids=["bf16 by default", "fp32"]
)
def test_fp8(backend: Backend, counts: list[int], n: int, k: int, out_dtype: torch.dtype, rounding: float) -> None:
    rng = np.random.default_rng(0)
    experts, blocks = len(counts), -(-k // 128)
    a = e4m3.encode(rng.standard_normal((sum(counts), k)) * 32)
    weight = e4m3.encode(rng.standard_normal((experts * n, k)) * 32).reshape(experts, n, k)
    a_scale = (10.0 ** rng.uniform(-2, 2, (sum(counts), blocks))).astype(np.float32)
    w_scale = (10.0 ** rng.uniform(-2, 2, (experts, -(-n // 128), blocks))).astype(np.float32)
    result = backend.run(
        grouped_gemm,
        Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale)),
        e4m3.as_fp8(weight),
        offsets_of(counts),
        torch.from_numpy(w_scale),
        out_dtype,
    )
    assert result.shape == (sum(counts), n) and result.dtype == (out_dtype or torch.bfloat16)
    accumulation = 2.0**-20 if backend.name == "reference" else 2.0**-11  # see test_fp8_gemm.py
    for row, expert in enumerate(expert_of_row(counts)):
        left = e4m3.dequantize(a[row : row + 1], a_scale[row : row + 1])[0]
        right = e4m3.dequantize(weight[expert], w_scale[expert].repeat(128, 0)[:n])
        expected, size = right @ left, np.abs(right) @ np.abs(left)
        error = np.abs(result[row].double().numpy() - expected)
        assert (error <= rounding * np.abs(expected) + accumulation * size).all()


LOADS = {  # rows of each of 32 experts
    "uniform, few": [8] * 32,
    "uniform, many": [128] * 32,
    "all on one": [0] * 17 + [300] + [0] * 14,
    "zero": [0] * 32,
    "uneven": [0, 1, 63, 64, 65, 127, 128, 129] + [3] * 24,
    "odd and many": [97, 129, 145, 161, 191, 192, 193, 500] + [77, 150, 33, 0] * 6,
}


def fp8_experts(count: int, n: int, k: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.empty(count, n, k, dtype=FP8, device="cuda")
    for expert in codes:
        expert.copy_(torch.randn(n, k, device="cuda", generator=generator) * 32)
    return codes, torch.rand(count, n // 128, k // 128, device="cuda", generator=generator) + 0.5


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(4096, 7168), (7168, 2048), (512, 7168)])
def test_experts_of_the_model(n: int, k: int) -> None:
    """One captured graph serves every load, and nothing is read back to the host. Rows past the last expert's are not written."""
    generator = torch.Generator("cuda").manual_seed(0)
    weight, weight_scale = fp8_experts(32, n, k, generator)
    for label, counts in LOADS.items():
        rows = sum(counts) + 5
        codes = (torch.randn(rows, k, device="cuda", generator=generator) * 32).to(FP8)
        a = Quantized(codes, torch.rand(rows, k // 128, device="cuda", generator=generator) + 0.5)
        offsets = torch.zeros(33, dtype=torch.int32, device="cuda")
        grouped_gemm(a, weight, offsets, weight_scale, torch.float32, backend="cuda")  # compiles
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = grouped_gemm(a, weight, offsets, weight_scale, torch.float32, backend="cuda")
        result.fill_(-7.0)
        offsets.copy_(offsets_of(counts))
        graph.replay()
        for expert, (start, end) in enumerate(pairwise(offsets.tolist())):
            left = codes[start:end].float() * a.scales[start:end].repeat_interleave(128, 1)
            right = weight[expert].float() * weight_scale[expert].repeat_interleave(128, 0).repeat_interleave(128, 1)
            error, size = (result[start:end] - left @ right.T).abs(), left.abs() @ right.abs().T
            assert (error <= 2.0**-11 * size).all(), f"{label}, expert {expert}"
        assert result[sum(counts) :].eq(-7).all(), label
        first = result.clone()
        graph.replay()
        assert torch.equal(result, first), f"{label} twice"


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(4096, 128), (2112, 2048)])
def test_claimed_tiles_have_the_bits_of_fixed_ones(n: int, k: int) -> None:
    """Hundreds of tiles of 80 uneven experts, which the pairs of multiprocessors claim in any order."""
    generator = torch.Generator("cuda").manual_seed(0)
    counts = np.random.default_rng(0).integers(0, 200, 80).tolist()
    weight = (torch.randn(80, n, k, device="cuda", generator=generator) * 32).to(FP8)
    weight_scale = torch.rand(80, -(-n // 128), k // 128, device="cuda", generator=generator) + 0.5
    codes = (torch.randn(sum(counts), k, device="cuda", generator=generator) * 32).to(FP8)
    scales = torch.rand(sum(counts), k // 128, device="cuda", generator=generator) + 0.5
    operands, offsets = (Quantized(codes, scales), weight, weight_scale), offsets_of(counts).cuda()
    expected = multiply(*operands, Tile(128, 128), offsets)
    for _ in range(4):
        assert torch.equal(multiply(*operands, EXPERT_TILE, offsets), expected)


SHARES = {  # tokens, top-k, experts of this rank, all experts, N, K: from one token to many; one of eight ranks; ragged K
    "one token": (1, 8, 16, 16, 256, 512),
    "one token, a rank's share": (1, 8, 8, 64, 256, 512),
    "three tokens": (3, 8, 16, 16, 128, 256),
    "sixteen, a rank's share": (16, 8, 8, 64, 136, 200),
    "seventeen": (17, 4, 8, 8, 128, 128),
    "tiles of 64": (64, 8, 16, 16, 128, 128),
    "tiles of 128": (300, 4, 16, 16, 128, 128),
    "tiles of 128, a rank's share": (300, 4, 8, 16, 128, 7168),
}


@pytest.mark.parametrize(("tokens", "topk", "count", "total", "n", "k"), SHARES.values(), ids=SHARES.keys())
def test_rows_are_gathered_and_the_shared_expert_goes_along(
    backend: Backend, tokens: int, topk: int, count: int, total: int, n: int, k: int
) -> None:
    """Against gathered rows. Weights of experts without rows are NaN, and so are rows of other ranks' experts."""
    generator = torch.Generator().manual_seed(tokens)
    experts = torch.rand(tokens, total, generator=generator).argsort(1)[:, :topk].contiguous()
    groups = group_by_expert(experts, count, 0)
    blocks = -(-k // 128)
    x = Quantized(
        (torch.randn(tokens, k, generator=generator) * 32).to(FP8),
        torch.rand(tokens, blocks, generator=generator) + 0.5,
    )
    weight = (torch.randn(count, n, k, generator=generator) * 32).to(FP8)
    weight_scale = torch.rand(count, -(-n // 128), blocks, generator=generator) + 0.5
    for expert in range(count):
        if groups.offsets[expert] == groups.offsets[expert + 1]:
            weight_scale[expert] = math.nan
    dense = Quantized(
        (torch.randn(n, k, generator=generator) * 32).to(FP8),
        torch.rand(-(-n // 128), blocks, generator=generator) + 0.5,
    )
    here = int(groups.offsets[-1])
    expected_m = tokens * topk * count // total
    operands = weight, groups.offsets, weight_scale
    single = backend.run(
        grouped_gemm, x, *operands, torch.float32, sorted_token_ids=groups.sorted_token_ids, expected_m=expected_m
    )
    both = backend.run(
        grouped_gemm_with_shared,
        x,
        *operands,
        x,
        dense,
        torch.float32,
        sorted_token_ids=groups.sorted_token_ids,
        expected_m=expected_m,
    )
    taken = Quantized(x.values[groups.sorted_token_ids], x.scales[groups.sorted_token_ids])
    sorted_rows = backend.run(grouped_gemm_with_shared, taken, *operands, x, dense, torch.float32)
    expected = grouped_gemm(taken, *operands, torch.float32, backend="reference")[:here]
    shared = fp8_gemm(x, *dense, torch.float32, backend="reference")
    bound = 2.0**-11 * k * 2**11  # codes are 25 in magnitude on average, products of scales around one
    for result in (single, both[tokens:], sorted_rows[tokens:]):
        assert result.shape == (tokens * topk, n)
        assert ((result[:here] - expected).abs() <= bound).all()
    for result in (both, sorted_rows):
        assert ((result[:tokens] - shared).abs() <= bound).all()


def test_unused_experts_are_not_read(backend: Backend) -> None:
    weight = torch.full((3, 8, 16), math.nan)
    weight[1] = 1.0
    assert backend.run(grouped_gemm, torch.ones(2, 16), weight, offsets_of([0, 2, 0])).eq(16).all()


def call(a: object = None, **changes: object) -> torch.Tensor:
    given = {"weight": torch.ones(2, 8, 16), "offsets": offsets_of([1, 2])} | changes
    return grouped_gemm(torch.ones(3, 16) if a is None else a, **given)  # type: ignore[arg-type]


ROWS = Quantized(torch.ones(3, 16).to(FP8), torch.ones(3, 1))
EXPERTS = torch.ones(2, 8, 16).to(FP8)
MISUSE = {
    "vector": (lambda: call(torch.ones(16)), r"a has shape \[16\]"),
    "another K": (lambda: call(weight=torch.ones(2, 8, 32)), r"weight has shape \[2, 8, 32\]; expected \[\*, \*, 16\]"),
    "mixed dtypes": (lambda: call(weight=torch.ones(2, 8, 16).bfloat16()), "weight has dtype torch.bfloat16"),
    "int64 offsets": (lambda: call(offsets=offsets_of([1, 2]).long()), "offsets has dtype torch.int64"),
    "one offset missing": (lambda: call(offsets=offsets_of([3])), r"offsets has shape \[2\]; expected \[3\]"),
    "int64 slots": (lambda: call(slots=torch.zeros(2).long()), "slots has dtype torch.int64; expected torch.int32"),
    "a slot missing": (
        lambda: call(slots=torch.zeros(1, dtype=torch.int32)),
        r"slots has shape \[1\]; expected \[2\]",
    ),
    "a slot too many": (
        lambda: call(slots=torch.tensor([0, 2], dtype=torch.int32)),
        "slots holds 2; expected -1 to 1, weight has 2 experts",
    ),
    "short out": (lambda: call(out=torch.ones(2, 8)), r"out has shape \[2, 8\]; expected \[3, 8\]"),
    "bf16 out": (lambda: call(out=torch.ones(3, 8).bfloat16()), "out has dtype torch.bfloat16; expected torch.float32"),
    "out in wider rows": (
        lambda: call(out=torch.ones(3, 9)[:, :8]),
        r"out has strides \(9, 1\); expected a contiguous",
    ),
    "fp16 result": (lambda: call(out_dtype=torch.float16), r"out_dtype is torch\.float16; expected torch\.float32 or"),
    "no weight scale": (lambda: call(ROWS, weight=EXPERTS), "weight_scale is None; expected"),
    "weight scale of one expert": (
        lambda: call(ROWS, weight=EXPERTS, weight_scale=torch.ones(1, 1, 1)),
        r"weight_scale has shape \[1, 1, 1\]; expected \[2, 1, 1\]",
    ),
}


@pytest.mark.parametrize(("misuse", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(misuse: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        misuse()  # type: ignore[operator]
