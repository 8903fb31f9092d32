"""FlashMLA's attention, as an importable package or as a shared library with the C functions of SIGNATURES."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from . import library

SIGNATURES = """\
Functions of a library given by --flash-mla; each returns 0, or a CUDA error. Pointers are to device memory, all contiguous; strides
follow from sizes. meta is int32 [parts, 8], num_splits int32 [b + 1], o_accum fp32 [b + parts, s_q, h, 512], lse_accum without 512.
  int flash_mla_sparse_prefill(void *q, void *kv, int *indices, void *out, float *max_logits, float *lse, int s_q, int s_kv, int h,
                               int topk, float scale, int multiprocessors, void *stream)
  int flash_mla_plan(int b, int s_q, int topk, int *seqlens, void *meta, int *num_splits, int parts, void *stream)
                               topk is -1 and seqlens are given for dense decode
  int flash_mla_fp8_decode(void *q, void *cache, int *indices, void *out, float *lse, float *lse_accum, float *o_accum, void *meta,
                           int *num_splits, int b, int s_q, int h, int pages, int page_size, int topk, float scale, int parts,
                           void *stream)
  int flash_mla_dense_decode(void *q, void *cache, int *block_table, int *seqlens, void *out, float *lse, float *lse_accum,
                             float *o_accum, void *meta, int *num_splits, int b, int s_q, int h, int pages, int table_width,
                             int causal, float scale, int parts, void *stream)
"""

Call = Callable[[], Sequence[torch.Tensor]]


class Peer(Protocol):
    """Each method prepares what is planned once a step, and returns a call that gives out and lse as FlashMLA shapes them."""

    def sparse_prefill(self, q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, scale: float) -> Call: ...

    def fp8_decode(self, q: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float) -> Call: ...

    def dense_decode(
        self,
        q: torch.Tensor,
        cache: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        scale: float,
        causal: bool,
    ) -> Call: ...


class Package:
    """The package `flash_mla`."""

    def __init__(self) -> None:
        self._module: Any = importlib.import_module("flash_mla")

    def sparse_prefill(self, q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, scale: float) -> Call:
        def call() -> Sequence[torch.Tensor]:
            out, _, lse = self._module.flash_mla_sparse_fwd(q, kv, indices, scale)
            return out, lse

        return call

    def fp8_decode(self, q: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float) -> Call:
        plan, _ = self._module.get_mla_metadata()
        call = partial(
            self._module.flash_mla_with_kvcache,
            q, cache, None, None, 512, plan, softmax_scale=scale, is_fp8_kvcache=True, indices=indices,
        )  # fmt: skip
        call()  # makes the plan
        return call

    def dense_decode(
        self,
        q: torch.Tensor,
        cache: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        scale: float,
        causal: bool,
    ) -> Call:
        plan, _ = self._module.get_mla_metadata()
        call = partial(
            self._module.flash_mla_with_kvcache, q, cache, table, lengths, 512, plan, softmax_scale=scale, causal=causal
        )
        call()
        return call


class Library:
    """A shared library with the functions of SIGNATURES."""

    def __init__(self, path: str) -> None:
        self._run = library.Library(path).run

    def _plan(
        self, batch: int, s_q: int, topk: int, lengths: torch.Tensor | None, parts: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        meta = torch.empty(parts, 8, dtype=torch.int32, device=device)
        splits = torch.empty(batch + 1, dtype=torch.int32, device=device)
        self._run("flash_mla_plan", batch, s_q, topk, lengths, meta, splits, parts)
        return meta, splits

    @staticmethod
    def _buffers(q: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
        """out, lse, lse_accum and o_accum."""
        batch, s_q, heads, _ = q.shape
        out = torch.empty(batch, s_q, heads, 512, dtype=q.dtype, device=q.device)
        lse = torch.empty(batch, s_q, heads, device=q.device)
        lse_accum = torch.empty(batch + parts, s_q, heads, device=q.device)
        return out, lse, lse_accum, torch.empty(batch + parts, s_q, heads, 512, device=q.device)

    def sparse_prefill(self, q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, scale: float) -> Call:
        tokens, heads, _ = q.shape

        def call() -> Sequence[torch.Tensor]:
            out = torch.empty(tokens, heads, 512, dtype=q.dtype, device=q.device)
            top, lse = torch.empty(2, tokens, heads, device=q.device)
            sizes = (tokens, kv.shape[0], heads, indices.shape[-1])
            self._run("flash_mla_sparse_prefill", q, kv, indices, out, top, lse, *sizes, scale, _multiprocessors(q))
            return out, lse

        return call

    def fp8_decode(self, q: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, scale: float) -> Call:
        batch, s_q, heads, _ = q.shape
        topk = indices.shape[-1]
        parts = max(_multiprocessors(q) // s_q // (heads // 64), 1)
        plan = self._plan(batch, s_q, topk, None, parts, q.device)
        sizes = (batch, s_q, heads, cache.shape[0], cache.shape[1], topk)

        def call() -> Sequence[torch.Tensor]:
            buffers = self._buffers(q, parts)
            self._run("flash_mla_fp8_decode", q, cache, indices, *buffers, *plan, *sizes, scale, parts)
            return buffers[0], buffers[1].transpose(1, 2)

        return call

    def dense_decode(
        self,
        q: torch.Tensor,
        cache: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        scale: float,
        causal: bool,
    ) -> Call:
        batch, s_q, heads, _ = q.shape
        parts = max(_multiprocessors(q) // -(-s_q * heads // 64), 1)
        plan = self._plan(batch, s_q, -1, lengths, parts, q.device)
        sizes = (batch, s_q, heads, cache.shape[0], table.shape[1], int(causal))

        def call() -> Sequence[torch.Tensor]:
            buffers = self._buffers(q, parts)
            self._run("flash_mla_dense_decode", q, cache, table, lengths, *buffers, *plan, *sizes, scale, parts)
            return buffers[0], buffers[1].transpose(1, 2)

        return call


def _multiprocessors(tensor: torch.Tensor) -> int:
    count: int = torch.cuda.get_device_properties(tensor.device).multi_processor_count
    return count
