"""Which of a step's rows this process computes, and what it exchanges with other ranks.

The model is written for rows, not for ranks. On one device a process computes all T rows, and nothing is exchanged. Several ranks
have two kinds of steps (parallel/rows.py): those in which every rank computes all rows with its part of the weights, and those in
which the rows are divided.
"""

from typing import TYPE_CHECKING

import torch

from ..kernels.types import Quantized
from .layers import Operand, Update

if TYPE_CHECKING:
    from .attention import MultiHeadLatentAttention
    from .indexer import Indexer, IndexQueries
    from .metadata import AttentionMetadata, LayerCache, Prefill, Selection


class Rows:
    """The rows of a step on one device: all of them."""

    divided = False

    def attention_of(self, whole: "MultiHeadLatentAttention") -> "MultiHeadLatentAttention":
        """Return the attention that computes these rows: that of all heads, or of this rank's."""
        return whole

    def own(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, ...] -> the rows that this process computes."""
        return x

    def gather(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        """This process's rows of several tensors -> all T rows of each."""
        return list(parts)

    def gather_inputs(self, x: Operand, *others: torch.Tensor) -> tuple[Operand, list[torch.Tensor]]:
        """Do the same for an input of projections, and for other tensors with it."""
        if isinstance(x, Quantized):
            values, scales, *others_of_all = self.gather(*x, *others)
            return Quantized(values, scales), others_of_all
        values, *others_of_all = self.gather(x, *others)
        return values, others_of_all

    def sum(self, part: torch.Tensor) -> Update:
        """All T rows of this rank's part of a sum -> this process's rows of the sum."""
        return part

    def entries(
        self, kv: torch.Tensor, keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, metadata: "AttentionMetadata"
    ) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, AttentionMetadata]":
        """Return what this process writes to its caches: all T rows of kv and keys, with their angles and the step's metadata."""
        return kv, keys, cos, sin, metadata

    def select(
        self, indexer: "Indexer", queries: "IndexQueries", prefill: "Prefill", cache: "LayerCache", with_scores: bool
    ) -> "Selection":
        """Select for the rows of a prompt chunk, as `Indexer.select_prefill` does."""
        return indexer.select_prefill(queries, prefill, cache, with_scores)

    def report(self, layer: int) -> None:
        """Called after a layer's attention: report what it selected, if it is not reported yet."""


ALL_ROWS = Rows()
