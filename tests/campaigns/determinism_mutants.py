"""Mistakes that make bits depend on the batch, one for each way that is known: what checks of determinism must catch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

from deepseek_v32.kernels import registry
from deepseek_v32.kernels.invariant import linear, routing, sparse_mla
from deepseek_v32.kernels.types import ExpertOutputs, SparseAttention
from deepseek_v32.model.attention import MultiHeadLatentAttention
from deepseek_v32.model.metadata import LayerCache, Prefill
from deepseek_v32.model.prefill_form import PrefillForm


@dataclass(frozen=True)
class Mutant:
    """`owner.name` is replaced by `mistake(original)`."""

    owner: Any
    name: str
    mistake: Callable[[Any], Any]

    @contextmanager
    def applied(self) -> Iterator[None]:
        registry._load.cache_clear()  # it keeps the functions that it has found
        try:
            with patch.object(self.owner, self.name, self.mistake(getattr(self.owner, self.name))):
                yield
        finally:
            registry._load.cache_clear()


def _body_by_row_count(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A few rows go to the library as they are."""
    return lambda x, weight: x @ weight.T if len(x) < 4 else right(x, weight)


def _tiles_by_batch(right: Callable[..., Any]) -> Callable[..., Any]:
    """A single query splits its keys among more tiles, to fill the machine."""

    def attend(q: torch.Tensor, *arguments: Any) -> Any:
        with patch.object(sparse_mla, "TILE", sparse_mla.TILE // 4 if len(q) == 1 else sparse_mla.TILE):
            return right(q, *arguments)

    return attend


def _padding_leaks(right: Callable[..., Any]) -> Callable[..., Any]:
    """A query sees its padding as far as the longest list of the batch goes."""
    return lambda q, keys, keep, *rest: right(q, keys, keep.any(0, keepdim=True).expand_as(keep), *rest)


def _merged_in_any_order(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The experts' outputs are added as they come: here in another order for an odd number of tokens."""

    def combine(outputs: ExpertOutputs) -> torch.Tensor:
        rows, groups, weights, shared = outputs
        if shared is None or len(weights) % 2 == 0:
            return right(outputs)
        total = shared.float()
        for pair in range(weights.shape[1]):
            total = total + rows[groups.inverse_permutation[:, pair]].float() * weights[:, pair, None]
        return total.to(rows.dtype)

    return combine


def _multi_head_if_short(right: Callable[..., bool]) -> Callable[..., bool]:
    """Short prompts take the form that is faster for them."""
    return lambda self, prefill, q: prefill.length <= self.config.index_topk


def _pieces_from_the_prefix(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A query's keys are laid out beginning where its chunk begins."""

    def attend(
        self: MultiHeadLatentAttention, q: torch.Tensor, positions: torch.Tensor, prefill: Prefill, cache: LayerCache
    ) -> torch.Tensor:
        return right(self, q, positions.flip(1) if prefill.start else positions, prefill, cache)

    return attend


def _library_sigmoid(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The last elements of a tensor are computed by other code, as torch does; how far that shows depends on the processor."""

    def sigmoid(x: torch.Tensor) -> torch.Tensor:
        found = right(x)
        if count := x.numel() % 32:  # two vectors of AVX-512
            found.view(-1)[-count:] = x.reshape(-1)[-count:].double().sigmoid()
        return found

    return sigmoid


def _k_split_by_row_count(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Few rows sum K in two halves, as split-K does."""

    def products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        half = x.shape[1] // 2
        if len(x) > 64:
            return right(x, weight)
        return right(x[:, :half], weight[:, :half]) + right(x[:, half:], weight[:, half:])

    return products


MUTANTS = {
    "body by row count": Mutant(linear, "_products", _body_by_row_count),
    "tiles by batch": Mutant(sparse_mla, "_attend", _tiles_by_batch),
    "padding leaks": Mutant(sparse_mla, "_attend", _padding_leaks),
    "merged in any order": Mutant(routing, "combine_experts", _merged_in_any_order),
    "multi-head if short": Mutant(PrefillForm, "is_multi_head", _multi_head_if_short),
    "pieces from the prefix": Mutant(MultiHeadLatentAttention, "attend_selected", _pieces_from_the_prefix),
    "library sigmoid": Mutant(routing, "sigmoid", _library_sigmoid),
    "K split by row count": Mutant(linear, "_products", _k_split_by_row_count),
}


def gpu_mutants() -> dict[str, Mutant]:
    """The same for the implementations on a GPU, whose packages are imported here.

    Under load the demo shows the first, the third and the fourth. Its slices are few, its scales powers of two, and rounding to
    bf16 hides the rest, which the operations' own tests find.
    """
    from deepseek_v32.kernels.cuda import fp32_ops
    from deepseek_v32.kernels.cuda import routing as cuda_routing
    from deepseek_v32.kernels.invariant.gpu import fp8_gemm, rows, sparse_mla
    from deepseek_v32.kernels.invariant.gpu import linear as dense

    def library_product(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def product(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
            return F.linear(x.float(), weight.float()).to(out_dtype) if len(x) < 4 else right(x, weight, out_dtype)

        return product

    def split_by_rows(right: Callable[..., None]) -> Callable[..., None]:
        def product(out: Any, a: Any, weight: Any, scale: Any, splits: int, beside: bool = False) -> None:
            splits = 2 if len(a.values) <= 8 and a.scales.shape[1] > 1 else splits
            right(out, a, weight, scale, splits, beside)

        return product

    def pieces_by_batch(right: Callable[..., Any]) -> Callable[..., Any]:
        def attend(given: SparseAttention, plan: Any) -> Any:
            smaller = 1 if given.indices.shape[2] <= sparse_mla.MOST_PIECES * sparse_mla.BLOCK else 4
            blocks = smaller if given.q.shape[0] * given.q.shape[1] == 1 else sparse_mla.PIECE_BLOCKS
            with patch.object(sparse_mla, "PIECE_BLOCKS", blocks):
                return right(given, None)

        return attend

    def padding_leaks(right: Callable[..., Any]) -> Callable[..., Any]:
        def attend(given: SparseAttention, plan: Any) -> Any:
            return right(given._replace(indices=given.indices.clamp_min(0), topk_length=None), plan)

        return attend

    def any_order(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def combine(outputs: ExpertOutputs) -> torch.Tensor:
            own, groups, weights, shared = outputs
            if len(weights) % 2 == 0 or shared is None:
                return right(outputs)
            total = shared.float()
            for pair in range(weights.shape[1]):
                total = total + own[groups.inverse_permutation[:, pair].long()].float() * weights[:, pair, None]
            return total.to(own.dtype)

        return combine

    def few_tokens_apart(right: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return fp32_ops.fp32_linear

    return {
        "body by row count": Mutant(dense, "linear", library_product),
        "K split by row count": Mutant(fp8_gemm, "_dense_into", split_by_rows),
        "pieces by batch": Mutant(sparse_mla, "sparse_mla_decode", pieces_by_batch),
        "padding leaks": Mutant(sparse_mla, "sparse_mla_decode", padding_leaks),
        "merged in any order": Mutant(cuda_routing, "combine_experts", any_order),
        "fp32 products by row count": Mutant(rows, "fp32_linear", few_tokens_apart),
        "pieces from the prefix": MUTANTS["pieces from the prefix"],
    }
