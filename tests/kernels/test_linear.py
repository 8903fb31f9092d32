"""Products with unquantised weights on a CPU: against float64, and whether a row's bits depend on anything but the row."""

import gc

import pytest
import torch

from deepseek_v32.kernels.reference import linear as module
from deepseek_v32.kernels.reference.linear import linear

# (N, K): of the demo, of the released model (a slice), and with odd sizes.
SHAPES = [(3072, 128), (256, 2048), (576, 7168), (1, 5), (130, 33)]
ROWS = 128


def weight_of(rows: int, columns: int) -> torch.nn.Parameter:
    generator = torch.Generator().manual_seed(rows)
    return torch.nn.Parameter(torch.randn(rows, columns, generator=generator), requires_grad=False)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(shape: tuple[int, int]) -> None:
    x, weight = torch.randn(9, shape[1]), weight_of(*shape)
    right = x.double() @ weight.double().T
    bound = 2 * torch.finfo(torch.float32).eps * shape[1] ** 0.5 * (x.double().abs() @ weight.double().abs().T)
    assert ((linear(x, weight).double() - right).abs() <= bound).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_rows_bits_do_not_depend_on_the_others(shape: tuple[int, int], threads: int) -> None:
    before = torch.get_num_threads()
    x, weight = torch.randn(ROWS, shape[1]), weight_of(*shape)
    whole = linear(x, weight)
    try:
        torch.set_num_threads(threads)
        for count in (1, 2, 3, 4, 5, 8, 16, 31, 64, 100):
            for first in sorted({0, 1, ROWS // 3, ROWS - count}):
                rows = slice(first, first + count)
                assert torch.equal(linear(x[rows], weight), whole[rows]), (first, count)
        single = torch.stack([linear(row[None], weight)[0] for row in x[:32]])
        assert torch.equal(single, whole[:32])
        assert torch.equal(linear(x.T.contiguous().T, weight), whole), "another memory layout"
    finally:
        torch.set_num_threads(before)


def test_without_room_for_the_layout_the_bits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(7, 256), weight_of(300, 256)
    with_layout = linear(x, weight)
    monkeypatch.setattr(module, "_layouts", module._Layouts())
    monkeypatch.setattr(module, "LAYOUT_BYTES", weight.nbytes - 1)
    assert torch.equal(linear(x, weight), with_layout)
    assert not module._layouts._copies


def test_a_changed_weight_is_laid_out_anew() -> None:
    x, weight = torch.ones(2, 64), weight_of(8, 64)
    before = linear(x, weight)
    weight.zero_()
    assert not linear(x, weight).any() and before.any()
    with torch.inference_mode():
        weight.fill_(1)
        assert (linear(x, weight) == 64).all()
    weight.data = torch.full((8, 64), 2.0)
    assert (linear(x, weight) == 128).all()


def test_layouts_are_freed_with_their_weights() -> None:
    weight = weight_of(64, 64)
    linear(torch.ones(1, 64), weight)
    gc.collect()  # what other tests have left
    count = len(module._layouts._copies)
    del weight
    gc.collect()
    assert len(module._layouts._copies) == count - 1


def test_no_rows_and_other_dtypes() -> None:
    weight = weight_of(4, 8)
    assert linear(torch.empty(0, 8), weight).shape == (0, 4)
    assert linear(torch.ones(3, 8, dtype=torch.bfloat16), weight.bfloat16()).dtype == torch.bfloat16
