"""Kernels of a captured step that start before the previous kernel has ended use nothing that is not yet written.

Before the kernel under test comes one that lets it start at once, sleeps, and then writes an operand. Whoever does not wait
computes with the operand's old bytes, which differ in every round.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.build import load_source
from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.fp32_ops import fp32_linear
from deepseek_v32.kernels.grouped_gemm import grouped_gemm_with_shared
from deepseek_v32.kernels.indexer_logits import paged_indexer_logits
from deepseek_v32.kernels.quantize_weight import quantize_weight
from deepseek_v32.kernels.routing import group_by_expert
from deepseek_v32.kernels.select_topk import select_topk_slots
from deepseek_v32.kernels.types import Quantized

DELAY = 60_000  # nanoseconds, longer than any kernel here takes
PAGE, TOPK, HEADS, EXPERTS, WIDTH, CHOSEN = 64, 512, 64, 31, 1536, 8
SOURCE = Path(__file__).parent / "slow_copy" / "launch.cu"

Results = tuple[torch.Tensor, ...]


class Bytes:
    """A buffer of several operands, which a slow copy writes as a whole."""

    def __init__(self, *operands: torch.Tensor) -> None:
        pieces = [operand.contiguous().view(-1).view(torch.uint8) for operand in operands]
        assert all(len(piece) % 16 == 0 for piece in pieces)
        self.all = torch.cat(pieces)
        self._like = operands

    def views(self) -> list[torch.Tensor]:
        pieces = self.all.split([operand.numel() * operand.element_size() for operand in self._like])
        return [piece.view(like.dtype).view(like.shape) for piece, like in zip(pieces, self._like, strict=True)]


@cache
def library() -> Any:
    return load_source(SOURCE)


def slow_copy(to: torch.Tensor, source: torch.Tensor) -> None:
    library().slow_copy(to.view(-1).view(torch.uint8), source.view(-1).view(torch.uint8), DELAY)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def e4m3(*shape: int) -> torch.Tensor:
    return random(*shape).to(torch.float8_e4m3fn)


def check(
    make: Callable[[], Bytes], run: Callable[..., Results], captured: Callable[..., Results] | None = None
) -> None:
    """`run` of operands that are still being written, in a graph, gives the bits of `run` of finished operands, outside of one.

    captured: what the graph runs, if that is not `run`.
    """
    source, target = make(), make()
    run(*target.views())  # builds the libraries
    slow_copy(target.all, source.all)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        slow_copy(target.all, source.all)
        results = (captured or run)(*target.views())
    for _ in range(4):
        source.all.copy_(make().all)
        target.all.copy_(make().all)
        expected = run(*source.views())
        old = run(*target.views())
        torch.cuda.synchronize()
        for pair in zip(expected, old, strict=True):
            assert not torch.equal(*pair)  # so that old bytes cannot go unnoticed
        graph.replay()
        torch.cuda.synchronize()
        for number, pair in enumerate(zip(results, expected, strict=True)):
            assert torch.equal(*pair), f"result {number}"


@pytest.mark.gpu
@pytest.mark.parametrize("late", ["queries", "weights"])
@pytest.mark.parametrize("batch, context", [(1, 4096), (1, 131072), (3, 8192), (40, 4096)], ids=str)
def test_scores(batch: int, context: int, late: str) -> None:
    pages = context // PAGE
    cache = torch.randint(0, 0x38, (batch * pages, PAGE * 132), dtype=torch.uint8, device="cuda")
    cache.view(torch.float32)[:, PAGE * 32 :] = 0.01
    cache = cache.view(batch * pages, PAGE, 1, 132)
    table = torch.arange(batch * pages, dtype=torch.int32, device="cuda").view(batch, pages)
    lengths = torch.full((batch,), context, dtype=torch.int32, device="cuda")
    queries, weights = e4m3(batch, 1, HEADS, 128), random(batch, 1, HEADS)

    def run(operand: torch.Tensor) -> Results:
        q, w = (operand, weights) if late == "queries" else (queries, operand)
        return (paged_indexer_logits(q, cache, w, table, lengths, context),)

    check(lambda: Bytes(e4m3(*queries.shape) if late == "queries" else random(*weights.shape)), run)


@pytest.mark.gpu
@pytest.mark.parametrize("rows, columns", [(1, 4096), (1, 32768), (1, 131072), (3, 16384), (70, 4096)], ids=str)
def test_selection(rows: int, columns: int) -> None:
    table = torch.arange(rows * columns // PAGE, dtype=torch.int32, device="cuda").view(rows, -1)
    lengths = torch.full((rows,), columns, dtype=torch.int32, device="cuda")
    check(
        lambda: Bytes(random(rows, columns)),
        lambda logits: (select_topk_slots(logits, None, lengths, TOPK, table, PAGE),),
    )


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 3, 16, 64], ids=str)
def test_products(tokens: int) -> None:
    weight, gate, scales = (
        quantize_weight(random(2048, WIDTH)),
        random(EXPERTS, WIDTH),
        torch.ones(tokens, 12, device="cuda"),
    )

    def run(values: torch.Tensor, x: torch.Tensor) -> Results:
        return fp8_gemm(Quantized(values, scales), *weight), fp32_linear(x, gate)

    check(lambda: Bytes(e4m3(tokens, WIDTH), random(tokens, WIDTH).bfloat16()), run)


def tokens_and_others(tokens: int) -> Bytes:
    """Rows in FP8, rows in bf16, and other rows in FP8."""
    return Bytes(e4m3(tokens, WIDTH), random(tokens, WIDTH).bfloat16(), e4m3(tokens, WIDTH))


@pytest.mark.gpu
@pytest.mark.parametrize("first", ["fp8", "fp32"])
@pytest.mark.parametrize("tokens", [1, 3, 16, 64], ids=str)
def test_a_product_beside_the_previous_kernel(tokens: int, first: str) -> None:
    """Its rows are complete, because the first product lets the kernel between both start only after it has waited for them.

    The kernel between them ends later, and what it writes is complete for the kernel after them. A product that did not wait before
    it writes would pass, because nothing reads its result's memory meanwhile: test_compiled.py looks for that wait.
    """
    narrow, wide, last = (quantize_weight(random(columns, WIDTH)) for columns in (2048, 24576, 1024))
    gate, scales = random(EXPERTS, WIDTH), torch.ones(tokens, WIDTH // 128, device="cuda")
    copied = e4m3(tokens, WIDTH)

    def first_product(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return fp8_gemm(Quantized(values, scales), *narrow) if first == "fp8" else fp32_linear(x, gate)

    def run(values: torch.Tensor, x: torch.Tensor, others: torch.Tensor) -> Results:
        products = fp8_gemm(Quantized(values, scales), *wide), fp8_gemm(Quantized(others, scales), *last)
        return first_product(values, x), *products

    def captured(values: torch.Tensor, x: torch.Tensor, others: torch.Tensor) -> Results:
        before = first_product(values, x)
        slow_copy(copied, others)
        early = fp8_gemm(Quantized(values, scales), *wide, beside_previous=True)
        return before, early, fp8_gemm(Quantized(copied, scales), *last)

    check(lambda: tokens_and_others(tokens), run, captured)


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 3, 16], ids=str)
def test_experts_beside_the_previous_kernel(tokens: int) -> None:
    """The shared expert's product runs with the kernel that writes the groups; the routed experts' products wait for them."""
    gate, scales = random(EXPERTS, WIDTH), torch.ones(tokens, WIDTH // 128, device="cuda")
    parts = [quantize_weight(random(512, WIDTH)) for _ in range(EXPERTS)]
    weights = torch.stack([part.values.view(torch.uint8) for part in parts]).view(torch.float8_e4m3fn)
    weight_scales, shared = torch.stack([part.scales for part in parts]), quantize_weight(random(512, WIDTH))

    def make() -> Bytes:
        groups = group_by_expert(random(tokens, EXPERTS).topk(CHOSEN, 1).indices, EXPERTS)
        return Bytes(e4m3(tokens, WIDTH), random(tokens, WIDTH).bfloat16(), groups.sorted_token_ids, groups.offsets)

    copied = make()

    def experts(values: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        rows, expected = Quantized(values, scales), tokens * CHOSEN
        arguments = weights, offsets, weight_scales, rows, shared
        return grouped_gemm_with_shared(
            rows, *arguments, sorted_token_ids=ids, expected_m=expected, beside_previous=True
        )

    def run(values: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor) -> Results:
        return fp32_linear(x, gate), experts(values, ids, offsets)

    def captured(values: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor) -> Results:
        logits = fp32_linear(x, gate)
        _, _, copied_ids, copied_offsets = copied.views()
        for to, source in ((copied_offsets, offsets), (copied_ids, ids)):
            slow_copy(to, source)
        return logits, experts(values, copied_ids, copied_offsets)

    check(make, run, captured)
