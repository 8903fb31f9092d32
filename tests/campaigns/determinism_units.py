"""Batch-invariant operations on a Hopper GPU, with the released dimensions: single rows and small batches against many rows.

A unit computes some rows of an operation whose inputs are drawn once: numbers of wide exponents, so that another order of summation
shows. Its rows are compared bit by bit with the same rows of the whole batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from deepseek_v32.kernels.cache_write import (
    gather_index_keys,
    gather_latents,
    index_record_bytes,
    latent_record_bytes,
    write_index_cache,
    write_latent_cache,
)
from deepseek_v32.kernels.fp8_gemm import fp8_gemm, fp8_gemms
from deepseek_v32.kernels.fp32_ops import fp32_linear, layer_norm
from deepseek_v32.kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from deepseek_v32.kernels.hadamard import hadamard_transform, rotate_quantize
from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits
from deepseek_v32.kernels.kv_up_projection import absorb_queries, expand_quantize, expand_values
from deepseek_v32.kernels.linear import linear
from deepseek_v32.kernels.norm_and_cache import norm_and_cache
from deepseek_v32.kernels.quantize import quantize_blocks, rms_norm, rms_norm_quantize, swiglu, swiglu_quantize
from deepseek_v32.kernels.registry import preference_of
from deepseek_v32.kernels.routing import combine_experts, combine_norm_quantize, group_by_expert, route, route_and_group
from deepseek_v32.kernels.select_topk import select_topk, select_topk_slots
from deepseek_v32.kernels.sparse_mla_decode import plan_decode, sparse_mla_decode
from deepseek_v32.kernels.types import Caches, ExpertGroups, Fp32Projection, Norms, Quantized

ROWS = 4096
SIZES = (1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100, 128, 129, 250, 256, 257, 512, 1000, 2048)
# [N, K] of the released model's FP8 weights, its experts' weights, and its dense bf16 weights, the vocabulary's cut to an eighth
PRODUCTS = (
    (1536, 7168),
    (576, 7168),
    (128, 7168),
    (24576, 1536),
    (8192, 1536),
    (7168, 16384),
    (36864, 7168),
    (7168, 18432),
)
EXPERTS = ((4096, 7168), (7168, 2048))
DENSE = ((16160, 7168), (4096, 256), (576, 256))
PAGE, CONTEXT, TOPK = 64, 6144, 2048

Rows = slice
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Unit:
    """`run(rows)` returns tensors with one entry of the first dimension for each of `rows`."""

    name: str
    run: Callable[[Rows], Tensors]
    rows: int = ROWS
    sizes: Sequence[int] = SIZES


class Source:
    """Random inputs on a GPU, all from one seed."""

    def __init__(self, device: torch.device, seed: int = 0, deterministic: bool = True) -> None:
        self.device = device
        self.backend = preference_of("auto", deterministic)
        self._generator = torch.Generator(device).manual_seed(seed)

    def spread(self, *shape: int, spread: float = 1.0) -> torch.Tensor:
        """fp32 numbers of wide exponents."""
        normal = torch.randn(*shape, generator=self._generator, device=self.device)
        return normal * torch.randn(*shape, generator=self._generator, device=self.device).mul_(spread).exp_()

    def bf16(self, *shape: int) -> torch.Tensor:
        return self.spread(*shape).bfloat16()

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=self._generator, device=self.device)

    def codes(self, *shape: int) -> torch.Tensor:
        """e4m3 numbers of all exponents, without NaN."""
        bits = self.integers(254, *shape)
        return (bits + (bits >= 127)).to(torch.uint8).view(torch.float8_e4m3fn)

    def scales(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self._generator, device=self.device).mul_(8).exp2_()

    def weight(self, *shape: int) -> Quantized:
        """[..., N, K]"""
        *more, n, k = shape
        return Quantized(self.codes(*shape), self.scales(*more, -(-n // 128), -(-k // 128)))


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8).view(len(x), -1) if x.numel() else x.new_empty(len(x), 0)


def parts(unit: Unit) -> Iterator[Rows]:
    """Single rows at places all over, and each size at two places."""
    for i in range(24):
        at = unit.rows * i // 24 + i % 7
        yield slice(min(at, unit.rows - 1), min(at, unit.rows - 1) + 1)
    for size in unit.sizes:
        if 1 < size < unit.rows:
            for first in (0, (unit.rows - size) * 5 // 7):
                yield slice(first, first + size)


def differing(unit: Unit) -> tuple[int, int, list[str]]:
    """(rows that differ, rows compared, the batches in which some do)."""
    whole = [bits(each) for each in unit.run(slice(0, unit.rows))]
    wrong = compared = 0
    where = []
    for part in parts(unit):
        found = torch.zeros(part.stop - part.start, dtype=torch.bool, device=whole[0].device)
        for one, all_ in zip((bits(each) for each in unit.run(part)), whole, strict=True):
            found |= (one != all_[part]).any(1)
        count = int(found.sum())
        wrong, compared = wrong + count, compared + len(found)
        if count:
            where.append(f"{count} of {part.start}:{part.stop}")
    return wrong, compared, where


def product_units(source: Source) -> Iterator[Unit]:
    backend = source.backend
    for n, k in PRODUCTS:
        a, weight = Quantized(source.codes(ROWS, k), source.scales(ROWS, -(-k // 128))), source.weight(n, k)
        yield Unit(
            f"fp8_gemm {n} x {k}",
            lambda rows, a=a, w=weight: [  # type: ignore[misc]
                fp8_gemm(Quantized(a.values[rows], a.scales[rows]), w.values, w.scales, torch.bfloat16, backend=backend)
            ],
        )
    a = Quantized(source.codes(ROWS, 7168), source.scales(ROWS, 56))
    weights = [source.weight(n, 7168) for n in (1536, 576, 128)]
    yield Unit(
        "fp8_gemms",
        lambda rows: fp8_gemms(Quantized(a.values[rows], a.scales[rows]), weights, torch.bfloat16, backend=backend),
    )
    for n, k in DENSE:
        for dtype in (torch.float32, torch.bfloat16):
            x, dense = source.bf16(ROWS, k), source.bf16(n, k)
            yield Unit(
                f"linear {n} x {k} {dtype}",
                lambda rows, x=x, w=dense, d=dtype: [linear(x[rows], w, d, backend=backend)],  # type: ignore[misc]
            )
    x = source.bf16(ROWS, 7168)
    for n in (256, 64):
        narrow = source.spread(n, 7168)
        yield Unit(f"fp32_linear {n}", lambda rows, w=narrow: [fp32_linear(x[rows], w, 0.3, backend=backend)])  # type: ignore[misc]


def head_units(source: Source) -> Iterator[Unit]:
    backend, cos, sin = source.backend, source.spread(ROWS, 32), source.spread(ROWS, 32)
    for heads in (128, 64, 16):
        weight = source.bf16(heads, 256, 512)
        wk, wv = weight.split(128, 1)
        count = ROWS // 4
        q, latents = source.bf16(count, heads, 192), source.bf16(count, heads, 512)

        def expand(rows: Rows, latents: torch.Tensor = latents, wv: torch.Tensor = wv) -> Tensors:
            some = latents[rows]
            out = some.new_empty(*some.shape[:2], wv.shape[1])
            expand_values(some, wv, out, backend=backend)
            return [out, *expand_quantize(some, wv, backend=backend)]

        yield Unit(
            f"absorb_queries {heads} heads",
            lambda rows, q=q, wk=wk: [absorb_queries(q[rows], cos[rows], sin[rows], wk, backend=backend)],  # type: ignore[misc]
            count,
        )
        yield Unit(f"expand {heads} heads", expand, count)


def row_units(source: Source) -> Iterator[Unit]:
    backend, x, other = source.backend, source.bf16(ROWS, 7168), source.bf16(ROWS, 7168)
    gain, cos, sin = source.spread(7168), source.spread(ROWS, 32), source.spread(ROWS, 32)

    def norm_and_quantize(rows: Rows) -> Tensors:
        normed = rms_norm_quantize(x[rows], gain, 1e-6, True, other[rows], backend=backend)
        return [normed.total, normed.rows, *normed.quantized]

    yield Unit("rms_norm_quantize", norm_and_quantize)
    yield Unit("rms_norm", lambda rows: [rms_norm(x[rows], gain, 1e-6, backend=backend)])
    yield Unit("quantize_blocks", lambda rows: list(quantize_blocks(x[rows], backend=backend)))
    for width in (2048, 128):
        gate_up = source.bf16(ROWS, 2 * width)
        yield Unit(
            f"swiglu {width}",
            lambda rows, g=gate_up: [swiglu(g[rows], backend=backend), *swiglu_quantize(g[rows], backend=backend)],  # type: ignore[misc]
        )
    narrow, bias = source.bf16(ROWS, 128), source.spread(128)
    yield Unit("layer_norm", lambda rows: [layer_norm(narrow[rows], gain[:128], bias, 1e-6, backend=backend)])
    heads, weights = source.bf16(ROWS, 64, 128), source.spread(ROWS, 64)
    yield Unit("hadamard_transform", lambda rows: [hadamard_transform(heads[rows], 0.1, backend=backend)])

    def rotate(rows: Rows) -> Tensors:
        result = rotate_quantize(
            heads[rows], cos[rows], sin[rows], False, True, weights[rows].contiguous(), backend=backend
        )
        return [each for each in result if each is not None]

    yield Unit("rotate_quantize", rotate)
    for precision in ("fp8", "bf16"):
        yield Unit(f"cache writes {precision}", _cache_writes(source, precision))
    yield Unit("norm_and_cache", _norm_and_cache(source, x))


def _empty_caches(source: Source, precision: str, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    pages = -(-rows // PAGE) + 1
    widths = (latent_record_bytes(512, 64), index_record_bytes(128)) if precision == "fp8" else (576, 128)
    dtype = torch.uint8 if precision == "fp8" else torch.bfloat16
    latent, index = (torch.zeros(pages, PAGE, 1, width, dtype=dtype, device=source.device) for width in widths)
    return latent, index


def _read(latent: torch.Tensor, index: torch.Tensor, slots: torch.Tensor) -> Tensors:
    keys, scales = gather_index_keys(index, slots)
    rows = latent.view(-1, latent.shape[-1])[slots]
    return [rows, keys] if scales is None else [rows, keys, scales]


def _cache_writes(source: Source, precision: str) -> Callable[[Rows], Tensors]:
    kv, keys, gain = source.bf16(ROWS, 576), source.bf16(ROWS, 128), source.spread(512)
    cos, sin, backend = source.spread(ROWS, 32), source.spread(ROWS, 32), source.backend

    def run(rows: Rows) -> Tensors:
        count = rows.stop - rows.start
        latent, index = _empty_caches(source, precision, count)
        slots = torch.arange(count, device=source.device).flip(0) + 1
        write_latent_cache(kv[rows], gain, 1e-6, cos[rows], sin[rows], latent, slots, backend=backend)
        write_index_cache(keys[rows], cos[rows], sin[rows], index, slots, False, backend=backend)
        return _read(latent, index, slots)

    return run


def _norm_and_cache(source: Source, x: torch.Tensor) -> Callable[[Rows], Tensors]:
    query, kv, keys = source.bf16(ROWS, 1536), source.bf16(ROWS, 576), source.bf16(ROWS, 128)
    norms = Norms(source.spread(1536), source.spread(512), source.spread(128), source.spread(128), 1e-6, 1e-6)
    cos, sin, weight = source.spread(ROWS, 32), source.spread(ROWS, 32), source.spread(64, 7168)

    def run(rows: Rows) -> Tensors:
        count = rows.stop - rows.start
        latent, index = _empty_caches(source, "fp8", count)
        slots = torch.arange(count, device=source.device) + 1
        projection, caches = Fp32Projection(x[rows], weight, 0.2), Caches(latent, index, slots)
        operands = (query[rows], kv[rows], keys[rows], norms, cos[rows], sin[rows], caches)
        quantized, weights = norm_and_cache(*operands, projection=projection, backend=source.backend)
        assert weights is not None
        return [*quantized, weights, *_read(latent, index, slots)]

    return run


def expert_units(source: Source, experts: int = 256, held: int = 32) -> Iterator[Unit]:
    """The router knows 256 experts, of which `held` are on this rank."""
    backend, topk = source.backend, 8
    logits, bias = source.spread(ROWS, experts), source.spread(experts) * 0.01
    limits: dict[str, Any] = {"topk": topk, "num_groups": 8, "topk_groups": 4, "normalise": True, "scale": 2.5}
    step = experts // held

    def choose(rows: Rows) -> Tensors:
        return list(route(logits[rows], bias, **limits, backend=backend))

    yield Unit("route", choose)

    def groups_of(rows: Rows) -> tuple[torch.Tensor, ExpertGroups]:
        weights, groups = route_and_group(logits[rows], bias, **limits, count=held, first=0, step=step, backend=backend)
        return weights, groups

    yield Unit("route_and_group", lambda rows: [groups_of(rows)[0]])
    for n, k in EXPERTS:
        x = Quantized(source.codes(ROWS, k), source.scales(ROWS, k // 128))
        weight, shared = source.weight(held, n, k), source.weight(n, k)

        def multiply(rows: Rows, x: Quantized = x, weight: Quantized = weight, shared: Quantized = shared) -> Tensors:
            some = Quantized(x.values[rows], x.scales[rows])
            count = rows.stop - rows.start
            _, groups = groups_of(rows)
            options: dict[str, Any] = {
                "sorted_token_ids": groups.sorted_token_ids,
                "expected_m": -(-count * topk // step),
                "backend": backend,
            }
            both = grouped_gemm_with_shared(
                some, weight.values, groups.offsets, weight.scales, some, shared, torch.bfloat16, **options
            )
            alone = grouped_gemm(some, weight.values, groups.offsets, weight.scales, torch.bfloat16, **options)
            return [both[:count], _by_token(both[count:], groups), _by_token(alone, groups)]

        yield Unit(f"grouped_gemm {n} x {k}", multiply)
    dense, rows_in = source.bf16(held, 256, 256), source.bf16(ROWS, 256)

    def multiply_bf16(rows: Rows) -> Tensors:
        _, groups = groups_of(rows)
        options: dict[str, Any] = {"sorted_token_ids": groups.sorted_token_ids, "expected_m": 1, "backend": backend}
        return [_by_token(grouped_gemm(rows_in[rows], dense, groups.offsets, **options), groups)]

    yield Unit("grouped_gemm bf16", multiply_bf16)
    yield from _sums(source, topk)


def _by_token(rows: torch.Tensor, groups: ExpertGroups) -> torch.Tensor:
    """Sorted rows [T * k, D] -> [T, k, D], zeros for experts of other ranks."""
    place = groups.inverse_permutation.long()
    return torch.where((place < groups.offsets[-1])[..., None], rows[place], 0)


def _sums(source: Source, topk: int) -> Iterator[Unit]:
    """The experts' outputs of a token, added, normed and quantised: by one kernel for few tokens, by two for many."""
    backend, width = source.backend, 7168
    outputs, shared = source.bf16(ROWS // 4, topk, width), source.bf16(ROWS // 4, width)
    residual, gain = source.bf16(ROWS // 4, width), source.spread(width)
    weights = source.spread(ROWS // 4, topk).abs()
    experts = source.integers(16, ROWS // 4, topk)

    def combine(rows: Rows) -> Tensors:
        groups = group_by_expert(experts[rows], 16, backend=backend)
        order = groups.inverse_permutation.long()
        own = torch.empty(order.numel(), width, dtype=torch.bfloat16, device=source.device)
        own[order.flatten()] = outputs[rows].flatten(0, 1)
        operands = (own, groups, weights[rows], shared[rows])
        summed = combine_experts(*operands, backend=backend)
        apart = rms_norm_quantize(residual[rows], gain, 1e-6, True, summed, backend=backend)
        total, normed, operand = combine_norm_quantize(*operands, residual[rows], gain, 1e-6, True, backend=backend)
        return [
            summed,
            *(
                torch.stack((bits(a), bits(b)), 1)
                for a, b in zip((apart.total, apart.rows), (total, normed), strict=True)
            ),
            *(torch.stack((bits(a), bits(b)), 1) for a, b in zip(apart.quantized, operand, strict=True)),
        ]

    yield Unit("combine_experts and norm", combine, ROWS // 4)


def _filled_caches(source: Source, precision: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The caches of a sequence of CONTEXT tokens, and its pages, which lie in any order."""
    latent, index = _empty_caches(source, precision, CONTEXT)
    pages = torch.randperm(CONTEXT // PAGE, device=source.device) + 1
    slots = (pages[:, None] * PAGE + torch.arange(PAGE, device=source.device)).flatten()
    cos, sin = source.spread(CONTEXT, 32).clamp_(-1, 1), source.spread(CONTEXT, 32).clamp_(-1, 1)
    gain = source.spread(512)
    write_latent_cache(source.bf16(CONTEXT, 576), gain, 1e-6, cos, sin, latent, slots)
    write_index_cache(source.bf16(CONTEXT, 128), cos, sin, index, slots, False)
    return latent, index, pages.int()


def selection_units(source: Source) -> Iterator[Unit]:
    """Scores and selection: a row of a prompt against the same row as a decode."""
    backend, count = source.backend, 512
    lengths = (CONTEXT - source.integers(CONTEXT - 100, count)).int()
    for precision, heads in (("fp8", 64), ("fp8", 16), ("bf16", 64), ("bf16", 16)):
        _, index, pages = _filled_caches(source, precision)
        q = source.codes(count, heads, 128) if precision == "fp8" else source.bf16(count, heads, 128)
        weights = source.spread(count, heads)
        slots = (pages[:, None].long() * PAGE + torch.arange(PAGE, device=source.device)).flatten()

        def score(
            rows: Rows,
            index: torch.Tensor = index,
            pages: torch.Tensor = pages,
            q: torch.Tensor = q,
            weights: torch.Tensor = weights,
            slots: torch.Tensor = slots,
        ) -> Tensors:
            own = lengths[rows]
            some = rows.stop - rows.start
            longest = int(own.max())
            if some % 2:  # decodes
                table = pages.expand(some, -1).contiguous()
                logits = paged_indexer_logits(
                    q[rows, None], index, weights[rows, None], table, own, longest, backend=backend
                )
                slots_chosen = select_topk_slots(logits, None, own, TOPK, table, PAGE, backend=backend)
            else:
                keys, scales = gather_index_keys(index, slots[:longest], backend=backend)
                starts = torch.zeros_like(own)
                logits = indexer_logits(q[rows], keys, weights[rows], starts, own, scales, backend=backend)
                chosen = select_topk(logits, starts, own, TOPK, backend=backend)
                slots_chosen = torch.where(chosen < 0, -1, slots[chosen.clamp_min(0).long()].int())
            seen = torch.arange(longest, device=own.device) < own[:, None]
            scores = torch.zeros(some, CONTEXT, device=own.device)
            scores[:, :longest] = torch.where(seen, logits, 0)
            return [scores, slots_chosen]

        yield Unit(f"scores and selection {precision} {heads} heads", score, count, (1, 2, 3, 7, 16, 33, 64, 129, 256))


def attention_units(source: Source) -> Iterator[Unit]:
    """A single query's list, wider than it needs, with its length or without."""
    backend, count = source.backend, 640
    lengths = torch.where(
        source.integers(2, count) == 1, TOPK, 1 + source.integers(TOPK, count)
    ).int()  # half of the lists are full
    for precision in ("fp8", "bf16"):
        latent, _, pages = _filled_caches(source, precision)
        slots = (pages[:, None].long() * PAGE + torch.arange(PAGE, device=source.device)).flatten().int()
        noise = torch.rand(count, CONTEXT, device=source.device)
        chosen = noise.argsort(1)[:, :TOPK].sort(1).values
        inside = torch.arange(TOPK, device=source.device) < lengths[:, None]
        indices = torch.where(inside, slots[chosen], -1)
        for heads in (128, 64, 16):
            q = source.bf16(count, heads, 576)

            def attend(
                rows: Rows, q: torch.Tensor = q, latent: torch.Tensor = latent, indices: torch.Tensor = indices
            ) -> Tensors:
                some, own = rows.stop - rows.start, lengths[rows]
                width = TOPK if some % 2 else -(-int(own.max()) // 128) * 128
                plan = plan_decode(some, 1, q.shape[1], width, q.device, backend=backend) if some % 3 else None
                plan = plan if latent.dtype == torch.uint8 else None
                counted = some > 4 and some % 4 > 0  # with lengths few queries would take prefill's kernel
                out, _ = sparse_mla_decode(
                    q[rows, None],
                    latent,
                    indices[rows, None, :width],
                    0.01,
                    topk_length=own if counted else None,
                    plan=plan,
                    backend=backend,
                )
                return [out[:, 0]]

            yield Unit(f"attention {precision} {heads} heads", attend, count)


def gathered_context_unit(source: Source) -> Iterator[Unit]:
    """Latents read back: the same whatever else is read."""
    latent, _, pages = _filled_caches(source, "fp8")
    slots = (pages[:, None].long() * PAGE + torch.arange(PAGE, device=source.device)).flatten()
    yield Unit(
        "gather_latents",
        lambda rows: [gather_latents(latent, slots[rows], 512, torch.bfloat16, backend=source.backend)],
        CONTEXT,
    )


GROUPS = (row_units, product_units, head_units, expert_units, selection_units, attention_units, gathered_context_unit)
