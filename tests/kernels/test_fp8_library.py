"""Which FP8 products cuBLASLt computes, and what happens if it refuses one."""

from collections.abc import Callable

import pytest
import torch

from deepseek_v32.kernels.cuda import fp8_gemm as implementation
from deepseek_v32.kernels.quantize import Quantized

FP8 = torch.float8_e4m3fn


def library_that(error: Exception) -> Callable[..., torch.Tensor]:
    def refuse(*_: object) -> torch.Tensor:
        raise error

    return refuse


def test_the_own_kernel_computes_what_the_library_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLASLt has no kernel for some shapes, and no way to ask. Its other errors are raised."""
    a = Quantized(torch.empty(4096, 7168, device="meta"), torch.empty(4096, 56, device="meta"))
    operands = a, torch.empty(4096, 7168, device="meta"), torch.empty(32, 56)
    refusal = "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmulAlgoGetHeuristic"
    monkeypatch.setattr(implementation, "multiply", lambda *_: "own")
    monkeypatch.setattr(implementation, "library_multiply", library_that(RuntimeError(refusal)))
    assert implementation.fp8_gemm(*operands, torch.bfloat16) == "own"  # type: ignore[comparison-overlap]
    monkeypatch.setattr(implementation, "library_multiply", library_that(RuntimeError("CUDA error: out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        implementation.fp8_gemm(*operands, torch.bfloat16)


@pytest.mark.parametrize(
    ("rows", "columns", "width", "served"),
    [
        (4096, 4096, 7168, True),
        (4096, 2112, 7168, True),
        (2048, 4096, 7168, False),  # no faster
        (4095, 4096, 7168, False),  # rows of scales are not aligned to 16 bytes
        (4096, 4096, 2304, False),
        (4096, 256, 2048, False),  # refused
        (4096, 32768, 512, False),  # slower
    ],
)
def test_which_products_the_library_computes(rows: int, columns: int, width: int, served: bool) -> None:
    assert implementation.library_serves(rows, columns, width, torch.bfloat16) is served
    assert not implementation.library_serves(rows, columns, width, torch.float32)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("n", "k"), [(2048, 1536), (2064, 2048), (2112, 7168), (2176, 3584), (7168, 2048), (4608, 7168)]
)
@pytest.mark.parametrize("m", [2064, 4096], ids=str)
def test_the_library_supports_those_products(m: int, n: int, k: int) -> None:
    """The smallest sizes and odd multiples of 16: the library gives the products of the own kernel."""
    assert implementation.library_serves(m, n, k, torch.bfloat16)
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = ((torch.randn(rows, k, device="cuda", generator=generator) * 32).to(FP8) for rows in (m, n))
    a_scale, b_scale = (
        torch.rand(rows, k // 128, device="cuda", generator=generator) + 0.5 for rows in (m, -(-n // 128))
    )
    result = implementation.library_multiply(a, a_scale, b, b_scale, torch.bfloat16).float()
    own = implementation.multiply(
        a, a_scale, b[None], b_scale[None], None, torch.float32, implementation.Tile(128, 128)
    )
    assert ((result - own).abs() <= 2.0**-8 * own.abs() + 2.0**-11 * k * 2**11).all()
