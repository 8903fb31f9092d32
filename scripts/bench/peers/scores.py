"""Cases of the indexer's scores against DeepGEMM's MQA logits, as an importable package or as a shared library."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits

from . import library
from .samples import Case

SIGNATURES = """\
Functions of a library given by --deep-gemm-mqa (the package is deep_gemm); 64 heads of 128 dims, scales and scores fp32, as above.
A page of the cache is 64 keys, then their 64 scales; plan is int32 [multiprocessors + 1, 2], and sizes end in the stride of a row.
  int deep_gemm_mqa_logits(void *q, void *k, float *k_scale, float *weights, int *starts, int *ends, float *out, int rows, int keys,
                           int stride, void *stream)
  int deep_gemm_paged_plan(int *lengths, int *plan, int batch, int next_n, void *stream)
  int deep_gemm_paged_mqa_logits(void *q, void *cache, float *weights, int *lengths, int *block_table, int *plan, float *out,
                                 int batch, int next_n, int pages, int table_width, int stride, void *stream)
"""

HEADS, WIDTH, PAGE = 64, 128, 64
SPLIT = 256  # keys to which DeepGEMM pads a row of scores
TOLERANCE = 1e-4  # fp32 sums of the same products in another order

Call = Callable[[], Sequence[torch.Tensor]]


class Peer(Protocol):
    """Each method prepares what is planned once a step, and returns a call that gives the scores, padded to SPLIT columns."""

    def prefill(
        self, q: torch.Tensor, k: torch.Tensor, k_scale: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor
    ) -> Call: ...

    def paged(
        self, q: torch.Tensor, cache: torch.Tensor, weights: torch.Tensor, lengths: torch.Tensor, table: torch.Tensor
    ) -> Call: ...


class Package:
    """The package `deep_gemm`."""

    def __init__(self) -> None:
        self._module: Any = importlib.import_module("deep_gemm")

    def prefill(
        self, q: torch.Tensor, k: torch.Tensor, k_scale: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor
    ) -> Call:
        starts = torch.zeros_like(ends)

        def call() -> Sequence[torch.Tensor]:
            return (self._module.fp8_mqa_logits(q, (k, k_scale), weights, starts, ends, clean_logits=False),)

        return call

    def paged(
        self, q: torch.Tensor, cache: torch.Tensor, weights: torch.Tensor, lengths: torch.Tensor, table: torch.Tensor
    ) -> Call:
        multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
        plan = self._module.get_paged_mqa_logits_metadata(lengths, PAGE, multiprocessors)
        columns, flat = table.shape[1] * PAGE, weights.flatten(0, 1)

        def call() -> Sequence[torch.Tensor]:
            logits = self._module.fp8_paged_mqa_logits(
                q, cache, flat, lengths, table, plan, columns, clean_logits=False
            )
            return (logits,)

        return call


class Library:
    """A shared library with the functions of SIGNATURES."""

    def __init__(self, path: str) -> None:
        self._run = library.Library(path).run

    def prefill(
        self, q: torch.Tensor, k: torch.Tensor, k_scale: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor
    ) -> Call:
        starts, (rows, keys) = torch.zeros_like(ends), (q.shape[0], k.shape[0])
        stride = -(-keys // SPLIT) * SPLIT + SPLIT

        def call() -> Sequence[torch.Tensor]:
            out = torch.empty(rows, stride, device=q.device)
            self._run("deep_gemm_mqa_logits", q, k, k_scale, weights, starts, ends, out, rows, keys, stride)
            return (out[:, :keys],)

        return call

    def paged(
        self, q: torch.Tensor, cache: torch.Tensor, weights: torch.Tensor, lengths: torch.Tensor, table: torch.Tensor
    ) -> Call:
        multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
        plan = torch.zeros(multiprocessors + 1, 2, dtype=torch.int32, device=q.device)
        (batch, new), (pages, stride) = q.shape[:2], (cache.shape[0], table.shape[1] * PAGE)
        self._run("deep_gemm_paged_plan", lengths, plan, batch, new)

        def call() -> Sequence[torch.Tensor]:
            out = torch.empty(batch * new, stride, device=q.device)
            self._run(
                "deep_gemm_paged_mqa_logits", q, cache, weights, lengths, table, plan, out, batch, new, pages,
                table.shape[1], stride,
            )  # fmt: skip
            return (out,)

        return call


def fp8(*shape: int) -> torch.Tensor:
    """Values like the quantiser's: the largest of 128 is 448."""
    return (torch.randn(*shape, device="cuda") * 160).clamp_(-448, 448).to(torch.float8_e4m3fn)


def visible(counts: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The scores of the first counts[t] keys of each row t; the others are zero. At most 256 rows are compared."""
    counts = counts[:256]

    def compared(scores: torch.Tensor) -> torch.Tensor:
        columns = torch.arange(scores.shape[1], device=scores.device)
        return torch.where(columns < counts[:, None], scores[: len(counts)], 0.0)

    return compared


def prefill_cases(peer: Peer) -> Iterator[Case]:
    for rows, keys in ((4096, 4096), (4096, 32768), (4096, 131072), (128, 131072)):
        q, k, weights = fp8(rows, HEADS, WIDTH), fp8(keys, WIDTH), torch.randn(rows, HEADS, device="cuda")
        scales = torch.rand(keys, device="cuda")
        ends = torch.arange(keys - rows + 1, keys + 1, dtype=torch.int32, device="cuda")

        def ours(
            q: torch.Tensor = q,
            k: torch.Tensor = k,
            weights: torch.Tensor = weights,
            scales: torch.Tensor = scales,
            ends: torch.Tensor = ends,
        ) -> Sequence[torch.Tensor]:
            return (indexer_logits(q, k, weights, torch.zeros_like(ends), ends, scales, backend="cuda"),)

        theirs = peer.prefill(q, k, scales, weights, ends)
        yield Case(f"indexer, {rows} queries, {keys} keys", ours, theirs, TOLERANCE, compared=visible(ends))


def paged_cases(peer: Peer) -> Iterator[Case]:
    batches = {
        "1 of 128K": [131072],
        "1 of 32K": [32768],
        "16 of 32K": [32768] * 16,
        "64 of 32K": [32768] * 64,
        "64 of 128K": [131072] * 64,
        "128 of 8K": [8192] * 128,
        "1 of 128K and 63 of 1K": [131072] + [1024] * 63,
    }
    for name, counts in batches.items():
        for new in (1, 2):
            owned = [count // PAGE for count in counts]
            cache = torch.empty(sum(owned), PAGE * (WIDTH + 4), dtype=torch.uint8, device="cuda")
            for part in cache.split(16384):  # in parts, because the values are made in fp32
                part[:, : PAGE * WIDTH] = fp8(len(part), PAGE * WIDTH).view(torch.uint8)
                part[:, PAGE * WIDTH :] = torch.rand(len(part), PAGE, device="cuda").view(torch.uint8)
            cache = cache.view(-1, PAGE, 1, WIDTH + 4)
            table = torch.zeros(len(counts), max(owned), dtype=torch.int32, device="cuda")
            for row, pages in zip(table, torch.randperm(sum(owned), device="cuda").int().split(owned), strict=True):
                row[: len(pages)] = pages
            lengths = torch.tensor(counts, dtype=torch.int32, device="cuda")
            q, weights = fp8(len(counts), new, HEADS, WIDTH), torch.randn(len(counts), new, HEADS, device="cuda")

            def ours(
                q: torch.Tensor = q,
                cache: torch.Tensor = cache,
                weights: torch.Tensor = weights,
                table: torch.Tensor = table,
                lengths: torch.Tensor = lengths,
            ) -> Sequence[torch.Tensor]:
                columns = table.shape[1] * PAGE
                return (paged_indexer_logits(q, cache, weights, table, lengths, columns, backend="cuda"),)

            seen = (lengths[:, None] - new + 1 + torch.arange(new, device="cuda")).flatten()
            theirs = peer.paged(q, cache, weights, lengths, table)
            yield Case(f"paged indexer, {name}, {new} new", ours, theirs, TOLERANCE, compared=visible(seen))


GROUPS = {"indexer": prefill_cases, "paged_indexer": paged_cases}
