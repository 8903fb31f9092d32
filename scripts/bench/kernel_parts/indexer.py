"""Lightning indexer scores in FP8, 64 heads: prefill at the end of a context, bound by MMAs, and paged decode, bound by memory."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits
from deepseek_v32.kernels.indexer_topk import indexer_topk

from .harness import Case

HEADS, WIDTH, PAGE, TOPK = 64, 128, 64, 2048
RECORD = WIDTH + 4
FLOPS = 2 * HEADS * WIDTH  # of a query and a key
FP8 = torch.float8_e4m3fn


def _fp8(*shape: int, device: torch.device) -> torch.Tensor:
    """Values like the quantiser's: the largest of 128 is 448."""
    return (torch.randn(*shape, device=device) * 160).clamp_(-448, 448).to(FP8)


def _prefill(queries: int, context: int, device: torch.device, topk: int | None = None) -> Callable[[int], object]:
    """Return a run of the scores of a chunk at the end of a context or, with `topk`, of scores and selection, as in the model."""
    q, k = _fp8(queries, HEADS, WIDTH, device=device), _fp8(context, WIDTH, device=device)
    weights, scales = torch.randn(queries, HEADS, device=device), torch.rand(context, device=device)
    ends = torch.arange(context - queries + 1, context + 1, dtype=torch.int32, device=device)
    problem = q, k, weights, torch.zeros_like(ends), ends, scales
    run = partial(indexer_logits, *problem) if topk is None else partial(indexer_topk, *problem, topk)
    return lambda _: run()


def _paged(batch: int, context: int, new: int, device: torch.device) -> Callable[[int], object]:
    pages = batch * context // PAGE
    cache = torch.empty(pages, PAGE * RECORD, dtype=torch.uint8, device=device)
    for part in cache.split(16384):  # in parts, because the values are made in fp32
        part[:, : PAGE * WIDTH] = _fp8(len(part), PAGE * WIDTH, device=device).view(torch.uint8)
        part[:, PAGE * WIDTH :] = torch.rand(len(part), PAGE, device=device).view(torch.uint8)
    run = partial(
        paged_indexer_logits,
        _fp8(batch, new, HEADS, WIDTH, device=device),
        cache.view(pages, PAGE, 1, RECORD),
        torch.randn(batch, new, HEADS, device=device),
        torch.randperm(pages, device=device).int().view(batch, -1),
        torch.full((batch,), context, dtype=torch.int32, device=device),
        context,
    )
    return lambda _: run()


def cases(device: torch.device) -> Iterator[Case]:
    required = {(4096, 32768): ("800", "980"), (4096, 131072): ("800", "1017")}
    none = ("", "")
    for queries, context in ((4096, 4096), *required, (2048, 65536)):
        pairs = queries * context - queries * (queries - 1) // 2
        yield Case(
            f"indexer prefill {queries}x{context}",
            _prefill(queries, context, device),
            1,
            queries * HEADS * (WIDTH + 4) + context * RECORD + 4 * pairs,
            pairs * FLOPS,
            *required.get((queries, context), none),
            unit="TFLOPS",
        )
    queries, context = 4096, 131072
    pairs = queries * context - queries * (queries - 1) // 2
    yield Case(
        f"indexer and top-k {queries}x{context}",
        _prefill(queries, context, device, TOPK),
        1,
        queries * HEADS * (WIDTH + 4) + context * RECORD + 8 * pairs + 4 * queries * TOPK,
        pairs * FLOPS,
        "both",
        "both / 1.2",
        graph=False,  # so that implementations that wait for the device can be compared
    )
    # The keys of one sequence of 128K fit into L2 and stay there from run to run, unlike in a model.
    limits = {(1, 131072, 1): ("12", "6.4"), (64, 131072, 1): ("470", "386"), (64, 131072, 2): ("480", "403")}
    for batch, context in ((1, 131072), (16, 32768), (64, 32768), (64, 131072), (128, 8192)):
        for new in (1, 2):
            yield Case(
                f"indexer decode B={batch} {context} s_q={new}",
                _paged(batch, context, new, device),
                1,
                batch * context * (RECORD + 4 * new),
                batch * context * new * FLOPS,
                *limits.get((batch, context, new), none),
            )
