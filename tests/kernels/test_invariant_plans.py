"""How the deterministic mode divides work on a GPU, as far as it can be seen without one."""

from typing import Any

import pytest
import torch

from deepseek_v32.kernels.cuda.fp8_gemm import Tile
from deepseek_v32.kernels.invariant.gpu import fp8_gemm as products
from deepseek_v32.kernels.invariant.gpu import linear, routing, sparse_mla
from deepseek_v32.kernels.reference import fp8_gemm as reference
from deepseek_v32.kernels.types import ExpertChoice, Quantized


def test_keys_of_few_heads_alone_are_cut_into_pieces() -> None:
    device = torch.device("cpu")
    assert sparse_mla.plan_decode(3, 33, 2048, device) is None
    plan = sparse_mla.plan_decode(3, 32, 1100, device)
    assert plan is not None and plan.rows == 32
    assert plan.parts[:, :5].tolist() == [[q, 8 * i, q, 8 * i + 8, i] for q in range(3) for i in range(3)]
    assert plan.split_offset.tolist() == [0, 3, 6, 9]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int]]:
    """(tile, parts of K) of each product; products are computed in PyTorch."""
    found: list[tuple[Any, int]] = []

    def multiply_into(
        out: torch.Tensor,
        a: torch.Tensor,
        a_scale: torch.Tensor,
        b: torch.Tensor,
        b_scale: torch.Tensor,
        _: None,
        tile: Any,
        splits: int = 0,
        beside_previous: bool = False,
    ) -> None:
        found.append((tile, splits))
        out.copy_(reference.fp8_gemm(Quantized(a, a_scale), b[0], b_scale[0], torch.float32, False))

    def sum_parts(x: torch.Tensor, out: torch.Tensor) -> None:
        total = x[0]
        for part in x[1:]:
            total = total + part
        out.copy_(total)

    monkeypatch.setattr(products, "multiply_into", multiply_into)
    monkeypatch.setattr(products, "sum_parts", sum_parts)
    monkeypatch.setattr(products, "PARTS_TILES", 2)
    monkeypatch.setattr(products, "PARTS_BYTES", 4 * 3 * 128 * 256)  # 256 rows at a time
    return found


@pytest.mark.parametrize("width", [3 * 128, 7 * 128, 900], ids=["even parts", "uneven parts", "ragged K"])
def test_many_rows_multiply_by_each_part_of_k(width: int, launches: list[tuple[Any, int]]) -> None:
    generator = torch.Generator().manual_seed(width)
    rows, columns, slices = 300, 128, -(-width // 128)
    a = Quantized(torch.randn(rows, width, generator=generator).to(torch.float8_e4m3fn), torch.ones(rows, slices))
    weight = torch.randn(columns, width, generator=generator).to(torch.float8_e4m3fn)
    scale = torch.rand(1, slices, generator=generator)
    out = torch.empty(rows, columns)
    products._dense_into(out, a, weight, scale, 3)
    assert launches == [(Tile(128, 128), 0)] * 6  # three parts, 256 rows and 44
    expected = reference.fp8_gemm(a, weight, scale, torch.float32, False)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)


def test_few_rows_leave_the_parts_of_k_to_the_kernel(launches: list[tuple[Any, int]]) -> None:
    a = Quantized(torch.ones(4, 384).to(torch.float8_e4m3fn), torch.ones(4, 3))
    products._dense_into(torch.empty(4, 128), a, torch.ones(128, 384).to(torch.float8_e4m3fn), torch.ones(1, 3), 3)
    assert launches == [(8, 3)]


@pytest.mark.parametrize("name", ["route", "route_and_group"])
def test_more_experts_than_the_kernels_have_are_refused(name: str) -> None:
    more = (1, 0, 1) if name == "route_and_group" else ()
    with pytest.raises(ValueError, match="experts is 2000; expected at most"):
        getattr(routing, name)(torch.zeros(1, 2000), torch.zeros(2000), ExpertChoice(2, 1, 1, True, 1.0), *more)


@pytest.mark.parametrize(("nope", "rope", "latent"), [(64, 64, 512), (192, 64, 512), (128, 64, 256), (128, 20, 512)])
def test_queries_of_other_dims_than_the_kernels_are_refused(
    nope: int, rope: int, latent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels read the dims to rotate after 128 others."""
    monkeypatch.setattr(linear, "by_heads", lambda *_: None)
    q, angles = torch.zeros(3, 2, nope + rope).bfloat16(), torch.zeros(3, rope // 2)
    message = (
        rf"wk has shape \[2, {nope}, {latent}\]; expected \[H, 128, 512\], aligned queries and .*deterministic mode"
    )
    with pytest.raises(ValueError, match=message):
        linear.absorb_queries(q, angles, angles, torch.zeros(2, nope, latent).bfloat16())
