"""Operations of a step of 64K tokens on a GPU: tensors of more than 2^31 elements, whose last rows are compared.

Without a GPU the same cases run with small tensors, so that only their size is new there.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.cache_write import gather_index_keys, gather_latents, write_index_cache, write_latent_cache
from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.fp32_ops import fp32_linear
from deepseek_v32.kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from deepseek_v32.kernels.hadamard import rotate_quantize
from deepseek_v32.kernels.indexer_logits import indexer_logits
from deepseek_v32.kernels.kv_up_projection import absorb_queries, expand_quantize
from deepseek_v32.kernels.quantize import quantize_blocks, rms_norm_quantize, swiglu_quantize
from deepseek_v32.kernels.registry import Preference
from deepseek_v32.kernels.routing import combine_experts, group_by_expert
from deepseek_v32.kernels.select_topk import select_topk
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from deepseek_v32.kernels.types import Quantized

FP8 = torch.float8_e4m3fn
TAIL = 160  # rows that are compared: enough for the kernels for many rows
HIDDEN, INNER, HEADS, LATENT, ROPE = 7168, 2048, 128, 512, 64
QUERY, QUERIES, PROJECTED = (
    1536,
    24576,
    2112,
)  # dims of the compressed query, of all heads' queries, and of the first projections

Tensors = list[torch.Tensor]
Compared = tuple[Tensors, Tensors]  # results of all rows, and of the last rows by themselves


class Inputs:
    """Random tensors on a device. `rows(width)`: enough rows of this width for more than `limit` elements."""

    def __init__(self, limit: int, device: torch.device, backend: Preference) -> None:
        self.limit, self.device, self.backend = limit, device, backend
        self._generator = torch.Generator(device).manual_seed(0)

    def rows(self, width: int) -> int:
        return self.limit // width + 2 * TAIL

    def normal(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device).normal_(generator=self._generator)

    def codes(self, *shape: int) -> torch.Tensor:
        """Codes whose numbers are finite: the exponent's highest bit is 0."""
        raw = torch.empty(shape, dtype=torch.uint8, device=self.device)
        return raw.random_(0, 256, generator=self._generator).bitwise_and_(0xBF).view(FP8)

    def scales(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, device=self.device, generator=self._generator) + 0.5

    def operand(self, rows: int, width: int, block: int = 1) -> Quantized:
        return Quantized(self.codes(rows, width), self.scales(-(-rows // block), -(-width // 128)))

    def angles(self, tokens: int) -> Tensors:
        angles = self.normal(tokens, ROPE // 2, dtype=torch.float32)
        return [angles.cos(), angles.sin()]

    def integers(self, shape: tuple[int, ...], high: int) -> torch.Tensor:
        return torch.randint(high, shape, device=self.device, generator=self._generator)


def _tail(x: torch.Tensor) -> torch.Tensor:
    return x[-TAIL:].clone()


def _tail_of(x: Quantized) -> Quantized:
    return Quantized(_tail(x.values), _tail(x.scales))


def _swiglu(given: Inputs) -> Compared:
    x = given.normal(given.rows(2 * INNER), 2 * INNER)
    return list(swiglu_quantize(x, backend=given.backend)), list(swiglu_quantize(_tail(x), backend=given.backend))


def _quantize(given: Inputs) -> Compared:
    x = given.normal(given.rows(HIDDEN), HIDDEN)
    return list(quantize_blocks(x, backend=given.backend)), list(quantize_blocks(_tail(x), backend=given.backend))


def _norm(given: Inputs) -> Compared:
    x, residual = (given.normal(given.rows(HIDDEN), HIDDEN) for _ in range(2))
    gain = given.scales(HIDDEN)

    def results(x: torch.Tensor, residual: torch.Tensor) -> Tensors:
        total, rows, quantized = rms_norm_quantize(x, gain, 1e-6, True, residual, backend=given.backend)
        return [total, rows, *quantized]

    return results(x, residual), results(_tail(x), _tail(residual))


def _absorb(given: Inputs) -> Compared:
    tokens = given.rows(HEADS * (128 + ROPE))
    q, wk = given.normal(tokens, HEADS, 128 + ROPE), given.normal(HEADS, 128, LATENT)
    cos, sin = given.angles(tokens)
    few = [_tail(x) for x in (q, cos, sin)]
    return [absorb_queries(q, cos, sin, wk, backend=given.backend)], [absorb_queries(*few, wk, backend=given.backend)]


def _expand(given: Inputs) -> Compared:
    latents, wv = given.normal(given.rows(HEADS * 128), HEADS, LATENT), given.normal(HEADS, 128, LATENT)
    whole = expand_quantize(latents, wv, backend=given.backend)
    return list(whole), list(expand_quantize(_tail(latents), wv, backend=given.backend))


def _rotate(given: Inputs) -> Compared:
    tokens = given.rows(64 * 128)
    q, weights = given.normal(tokens, 64, 128), given.scales(tokens, 64)
    cos, sin = given.angles(tokens)

    def results(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, weights: torch.Tensor) -> Tensors:
        quantized = rotate_quantize(q, cos, sin, False, True, weights, backend=given.backend)
        return [x for x in quantized if isinstance(x, torch.Tensor)]

    return results(q, cos, sin, weights), results(*(_tail(x) for x in (q, cos, sin, weights)))


def _attend(given: Inputs) -> Compared:
    tokens = given.rows(HEADS * LATENT)
    q, kv = given.normal(tokens, HEADS, LATENT + ROPE), given.normal(1000, 1, LATENT + ROPE)
    selected = given.integers((tokens, 1, 64), 1000).int()
    whole = sparse_mla_prefill(q, kv, selected, 0.02, backend=given.backend)
    return list(whole), list(sparse_mla_prefill(_tail(q), kv, _tail(selected), 0.02, backend=given.backend))


def _index_many_queries(given: Inputs) -> Compared:
    return _index(given, given.rows(64 * 128), 200)


def _index_many_scores(given: Inputs) -> Compared:
    return _index(given, 2 * TAIL, given.limit // (2 * TAIL) + 200)


def _index(given: Inputs, tokens: int, keys: int) -> Compared:
    q, k, weights = given.codes(tokens, 64, 128), given.codes(keys, 128), given.scales(tokens, 64)
    starts, k_scale = torch.zeros(tokens, dtype=torch.int32, device=given.device), given.scales(keys)
    ends = torch.full_like(starts, keys)
    whole = indexer_logits(q, k, weights, starts, ends, k_scale, backend=given.backend)
    few = [_tail(x) for x in (q, weights, starts, ends)]
    return [whole], [indexer_logits(few[0], k, *few[1:], k_scale, backend=given.backend)]


def _select(given: Inputs) -> Compared:
    columns = min(given.limit // 2000, 1 << 20)
    scores = given.normal(given.rows(columns), columns, dtype=torch.float32)
    ends = torch.full((len(scores),), columns, dtype=torch.int32, device=given.device)
    whole = select_topk(scores, None, ends, 2048, backend=given.backend)
    return [whole], [select_topk(_tail(scores), None, _tail(ends), 2048, backend=given.backend)]


def _caches(given: Inputs) -> Compared:
    """Slots past 2^31 bytes of both caches, and the same entries in small ones."""
    pages = given.limit // (64 * 132) + 8
    found = []
    kv, keys = given.normal(TAIL, LATENT + ROPE), given.normal(TAIL, 128)
    gain, (cos, sin) = given.scales(LATENT), given.angles(TAIL)
    for count in (pages, 8):
        slots = (count - 4) * 64 + torch.arange(TAIL, device=given.device)
        latents, index = (
            torch.empty(count, 64, 1, width, dtype=torch.uint8, device=given.device) for width in (656, 132)
        )
        write_latent_cache(kv, gain, 1e-6, cos, sin, latents, slots, backend=given.backend)
        write_index_cache(keys, cos, sin, index, slots, backend=given.backend)
        written = gather_index_keys(index, slots, backend=given.backend)
        found.append(
            [
                gather_latents(latents, slots, LATENT, torch.bfloat16, backend=given.backend),
                *(x for x in written if x is not None),
            ]
        )
    return found[0], found[1]


EXACT = [
    _swiglu,
    _quantize,
    _norm,
    _absorb,
    _expand,
    _rotate,
    _attend,
    _index_many_queries,
    _index_many_scores,
    _select,
    _caches,
]


def _wide(x: Quantized, block: int = 1) -> torch.Tensor:
    rows, width = x.values.shape
    scales = x.scales.repeat_interleave(block, 0)[:rows].repeat_interleave(128, 1)[:, :width]
    return x.values.float() * scales


def _product(given: Inputs) -> Compared:
    a, weight = given.operand(given.rows(QUERIES), QUERY), given.operand(QUERIES, QUERY, 128)
    return [fp8_gemm(a, *weight, backend=given.backend)], [_wide(_tail_of(a)) @ _wide(weight, 128).T]


def _product_of_many_rows(given: Inputs) -> Compared:
    a, weight = given.operand(given.rows(HIDDEN), HIDDEN), given.operand(PROJECTED, HIDDEN, 128)
    return [fp8_gemm(a, *weight, backend=given.backend)], [_wide(_tail_of(a)) @ _wide(weight, 128).T]


def _down(given: Inputs) -> Compared:
    return _experts(given, given.rows(HIDDEN), HIDDEN, INNER, shared=False)


def _down_with_shared(given: Inputs) -> Compared:
    return _experts(given, given.rows(HIDDEN), HIDDEN, INNER, shared=True)


def _gate_up(given: Inputs) -> Compared:
    """Rows that are gathered first."""
    rows = given.rows(2 * INNER)
    ids = given.integers((rows,), 3000).int()
    return _experts(given, 3000, 2 * INNER, HIDDEN, shared=True, ids=ids)


def _experts(given: Inputs, count: int, n: int, k: int, shared: bool, ids: torch.Tensor | None = None) -> Compared:
    """Four experts, in two launches."""
    a, dense, own = given.operand(count, k), given.operand(TAIL, k), given.operand(n, k, 128)
    weight, scale = given.codes(4, n, k), given.scales(4, n // 128, k // 128)
    rows = count if ids is None else len(ids)
    offsets = torch.tensor([0, rows // 4, rows // 2, rows - 2 * TAIL, rows], dtype=torch.int32, device=given.device)
    tokens = TAIL if shared else 0
    out = torch.full((tokens + rows, n), math.nan, dtype=torch.bfloat16, device=given.device)
    for table in ([0, -1, 2, -1], [-1, 1, -1, 3]):
        slots = torch.tensor(table, dtype=torch.int32, device=given.device)
        options: dict[str, Any] = {"sorted_token_ids": ids, "slots": slots, "out": out, "backend": given.backend}
        if shared:
            grouped_gemm_with_shared(a, weight, offsets, scale, dense, own, **options)
        else:
            grouped_gemm(a, weight, offsets, scale, **options)
    assert not out.isnan().any()
    last = _tail_of(a) if ids is None else Quantized(a.values[_tail(ids)], a.scales[_tail(ids)])
    return [out], [_wide(last) @ _wide(Quantized(weight[3], scale[3]), 128).T]


def _combine(given: Inputs) -> Compared:
    tokens = given.rows(8 * HIDDEN)
    experts = given.integers((tokens, 8), 16)
    groups = group_by_expert(experts, 16, backend=given.backend)
    rows, shared = given.normal(8 * tokens, HIDDEN), given.normal(tokens, HIDDEN)
    weights = given.scales(tokens, 8) / 8
    whole = combine_experts(rows, groups, weights, shared, backend=given.backend)
    own = rows[_tail(groups.inverse_permutation).long()].float() * _tail(weights)[..., None]
    return [whole], [own.sum(1) + _tail(shared).float()]


def _router(given: Inputs) -> Compared:
    x, weight = given.normal(given.rows(HIDDEN), HIDDEN), given.normal(256, HIDDEN, dtype=torch.float32)
    return [fp32_linear(x, weight, backend=given.backend)], [(_tail(x).double() @ weight.double().T).float()]


CLOSE = [_product, _product_of_many_rows, _down, _down_with_shared, _gate_up, _combine, _router]


def _compare(case: Callable[[Inputs], Compared], given: Inputs) -> None:
    whole, expected = case(given)
    assert len(whole) == len(expected) > 0
    for found, last in zip(whole, expected, strict=True):
        found = found[-TAIL:]
        if case in EXACT:
            assert torch.equal(found.float(), last.float())
            continue
        assert found.isfinite().all()
        assert ((found.float() - last).abs() <= 2.0**-7 * last.abs() + 2.0**-6 * last.abs().max()).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the large tensors are compared")
@pytest.mark.parametrize("case", [*EXACT, *CLOSE], ids=lambda case: case.__name__.strip("_"))
def test_small_tensors(case: Callable[[Inputs], Compared], monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"HIDDEN": 256, "INNER": 128, "HEADS": 2, "QUERY": 128, "QUERIES": 256, "PROJECTED": 256, "TAIL": 20}
    for name, value in small.items():
        monkeypatch.setitem(globals(), name, value)
    _compare(case, Inputs(1 << 16, torch.device("cpu"), ("invariant",)))


@pytest.mark.gpu
@pytest.mark.heavy
@pytest.mark.parametrize("name", ["auto", "invariant"])
@pytest.mark.parametrize("case", [*EXACT, *CLOSE], ids=lambda case: case.__name__.strip("_"))
def test_more_than_two_to_the_31_elements(case: Callable[[Inputs], Compared], name: str) -> None:
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("needs 60 GiB of free GPU memory")
    try:
        _compare(case, Inputs(1 << 31, torch.device("cuda", torch.cuda.current_device()), (name,)))
    finally:
        torch.cuda.empty_cache()
