"""Batch-invariant products: a single row has the bits that it has at every place of a batch, by any number of threads."""

from collections.abc import Iterator

import pytest
import torch

from deepseek_v32.kernels.invariant import linear as invariant_linear
from deepseek_v32.kernels.invariant import products
from deepseek_v32.kernels.invariant.linear import linear
from deepseek_v32.kernels.invariant.products import (
    block_sizes,
    head_products,
    packed_rows,
    row_products,
    sum_in_halves,
)
from deepseek_v32.kernels.reference.linear import linear as packed

# (K, N): the demo's projections, experts and head; the released model's router, indexer weights and latents; ragged ones, for which
# MKL was seen to change bits with the number of threads or the operands' alignment.
DEMO = [(256, 128), (256, 576), (128, 3072), (2048, 256), (256, 1024), (128, 256), (256, 4096)]
RELEASED = [(7168, 576), (7168, 256), (1536, 768), (2048, 896)]
RAGGED = [(36, 20), (24, 7), (256, 8), (3, 5)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def spread(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers of wide exponents, so that another order of summation shows."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * torch.randn(*shape, generator=generator).mul(3).exp()


@pytest.mark.parametrize(("width", "outputs"), [*DEMO, *RELEASED, *RAGGED])
def test_a_row_has_the_same_bits_alone_and_in_every_batch(width: int, outputs: int) -> None:
    x, weight = spread(256, width), spread(outputs, width, seed=1)
    single = torch.cat([row_products(row[None], weight) for row in x[:70]])
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for count in (2, 5, 63, 65):
            assert torch.equal(row_products(x[:count], weight), single[:count]), (threads, count)
        many = row_products(x, weight)
        assert torch.equal(many[:70], single)
        for shift in (1, 37):
            assert torch.equal(row_products(x.roll(shift, 0), weight).roll(-shift, 0), many)
    assert torch.equal(row_products(x[1:70], weight), single[1:]), "a view that begins elsewhere in memory"
    exact = x[:70].double() @ weight.double().T
    scale = x[:70].double().abs() @ weight.double().abs().T
    assert ((single - exact).abs() <= 1e-5 * scale).all()


def test_torch_s_own_products_do_change() -> None:
    """So the test above can fail; if this one does, the library may have become invariant by itself."""
    x, weight = spread(64, 256), spread(128, 256, seed=1)
    whole = x @ weight.T
    assert any(not torch.equal(x[:count] @ weight.T, whole[:count]) for count in range(1, 64))


def test_neighbours_cannot_be_seen_even_if_they_are_nan() -> None:
    x, weight = spread(20, 128), spread(256, 128, seed=1)
    expected = row_products(x[7:8], weight)
    x[:7], x[8:] = torch.nan, torch.inf
    assert torch.equal(row_products(x, weight)[7:8], expected)


@pytest.mark.parametrize(("heads", "width", "outputs"), [(16, 128, 512), (16, 512, 128), (3, 24, 20), (128, 128, 64)])
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
def test_products_of_heads(heads: int, width: int, outputs: int, transposed: bool) -> None:
    count = 70 if heads < 128 else 20
    x = spread(count, heads, width)
    weight = (
        spread(heads, outputs, width, seed=1).transpose(1, 2) if transposed else spread(heads, width, outputs, seed=1)
    )
    whole = head_products(x, weight)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for i in range(0, count, 13):
            assert torch.equal(head_products(x[i : i + 1], weight), whole[i : i + 1])
        for part in (2, 5, count - 3):
            assert torch.equal(head_products(x[:part], weight), whole[:part])
    assert torch.allclose(
        whole.double(), torch.einsum("thk,hkn->thn", x.double(), weight.double()), rtol=1e-4, atol=1e-2 * width
    )


def test_no_rows() -> None:
    assert row_products(torch.empty(0, 24), torch.ones(8, 24)).shape == (0, 8)
    assert head_products(torch.empty(0, 2, 24), torch.ones(2, 24, 8)).shape == (0, 2, 8)


@pytest.mark.parametrize(
    ("wrong", "taken"),
    [
        (set(), (64, 16, 4)),
        ({64}, (16, 4)),
        ({16}, (64, 4)),
        ({4}, (64, 16, 8)),
        ({4, 64}, (16, 8)),
        ({4, 8}, (64, 16)),
        ({4, 8, 64}, (16,)),
        ({4, 8, 16}, ()),
        ({4, 8, 16, 64}, ()),
    ],
    ids=lambda sizes: "none" if not sizes else " ".join(map(str, sorted(sizes))),
)
def test_sizes_that_disagree_are_not_taken(
    wrong: set[int], taken: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A BLAS that gives the first row of blocks of these sizes other bits, and all other rows the bits of single rows."""

    def products_of(rows: torch.Tensor, weight: torch.Tensor, size: int) -> torch.Tensor:
        out = torch.stack([(row[:, None] * weight).sum(0) for row in rows])
        if size in wrong:
            out.unflatten(0, (-1, size))[:, 0] *= 1.0001
        return out

    monkeypatch.setattr(products, "_in_blocks", products_of)
    assert block_sizes.__wrapped__(48, 32, True) == taken


@pytest.mark.parametrize("width", [100, 256])
def test_where_no_sizes_agree_the_halves_of_a_sum_are_added(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of long sums with MKL's code for AVX2."""
    x, weight = spread(70, width), spread(20, width, seed=1)
    widths = []

    def sizes_of_short_sums(width: int, outputs: int, row_major: bool) -> tuple[int, ...]:
        widths.append(width)
        return block_sizes(width, outputs, row_major) if width <= 64 else ()

    monkeypatch.setattr(products, "block_sizes", sizes_of_short_sums)
    whole = row_products(x, weight)
    assert widths == ([112, 64, 48] if width == 100 else [256, 128, 64, 64, 128, 64, 64])
    assert all(torch.equal(row_products(x[i : i + 1], weight), whole[i : i + 1]) for i in range(0, 70, 9))
    assert ((whole - x.double() @ weight.double().T).abs() <= 1e-5 * (x.double().abs() @ weight.double().abs().T)).all()
    of_heads = head_products(x[:, None].expand(-1, 3, -1), weight.T.expand(3, -1, -1))
    assert of_heads.shape == (70, 3, 20) and torch.equal(of_heads[:, 2], whole)
    assert torch.equal(head_products(x[:5, None], weight.T[None])[:, 0], whole[:5])
    assert row_products(x[:0], weight).shape == (0, 20)


def test_where_no_sizes_agree_even_for_short_sums_there_are_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "block_sizes", lambda *shape: ())
    with pytest.raises(RuntimeError, match=r"deterministic is True; expected a BLAS .* weight \[16, 32\]"):
        row_products(torch.ones(3, 48), torch.ones(32, 48))


def test_sums_in_halves() -> None:
    x = spread(5, 128)
    expected = torch.stack([sum_in_halves(row, 0) for row in x])
    assert torch.equal(sum_in_halves(x, 1), expected) and torch.equal(sum_in_halves(x.T.contiguous(), 0), expected)
    assert torch.allclose(expected.double(), x.double().sum(1), rtol=1e-4)


@pytest.mark.parametrize(("width", "outputs"), [*DEMO[:3], *RAGGED])
def test_a_parameter_s_products_are_verified(width: int, outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN's products serve parameters if they agree in all batches on this machine; where they do not, blocks of rows do."""
    x, weight = spread(70, width), torch.nn.Parameter(spread(outputs, width, seed=1), requires_grad=False)
    assert packed_rows(width, outputs) == 1024
    whole = linear(x, weight, torch.float32)
    assert all(torch.equal(linear(x[i : i + 1], weight, torch.float32), whole[i : i + 1]) for i in range(0, 70, 9))
    assert torch.equal(whole, packed(x, weight))
    monkeypatch.setattr(invariant_linear, "packed_rows", lambda *shape: 33)
    assert torch.equal(linear(x, weight, torch.float32), whole), "in parts"

    def worse(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = packed(x, weight)
        return out if len(x) < 200 else out * 1.0001

    monkeypatch.setattr(products, "packed_linear", worse)
    assert packed_rows.__wrapped__(width, outputs) == 0
    monkeypatch.setattr(invariant_linear, "packed_rows", lambda *shape: 0)
    assert torch.equal(linear(x, weight, torch.float32), row_products(x, weight))
