"""When a step launches the projection and the absorption of MLA's queries: before the selection of keys, or after it.

The order changes no result. After the selection it is faster, because a few decodes' selection leaves most of the memory bandwidth
idle: while its last kernel still runs, the next launch already requests its weights (kernels/cuda/pdl.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from .layers import Compute, Linear, Operand, projections
from .metadata import AttentionMetadata
from .stages import is_traced

# In steps of up to this many decodes, queries are projected while the selection still runs.
LATE_QUERIES = 16

Later = Callable[[], torch.Tensor]  # a tensor whose launches may not have begun; every call returns the same one


@dataclass(frozen=True)
class LaunchOrder:
    """The order of one step. attention.py asks for queries where a reader expects them, and this decides when they are launched."""

    # The selection reads nothing of MLA's queries, and the projection is launched next to its last kernel.
    projects_late: bool
    absorbs_late: bool

    @classmethod
    def of(cls, metadata: AttentionMetadata, compute: Compute, selects_slots: bool) -> "LaunchOrder":
        """selects_slots: only attention uses the decodes' selection, so no other launch comes between the two."""
        few = len(metadata.query_lengths) == metadata.decodes <= LATE_QUERIES
        return cls(few and compute.quantized and selects_slots and not is_traced(), selects_slots)

    def project(
        self, x: Operand, heads: int, query: Linear, index_query: Linear | None
    ) -> tuple[Later, torch.Tensor | None]:
        """x [T, Q] -> MLA's queries [T, H, D] and, if there is a projection for them, the indexer's [T, H_i * D_i]."""
        if self.projects_late and index_query is not None:
            return cache(lambda: query(x, beside_previous=True).unflatten(1, (heads, -1))), index_query(x)
        q, index_q = (query(x), None) if index_query is None else projections(x, query, index_query)
        q = q.unflatten(1, (heads, -1))
        return lambda: q, index_q

    def absorb(self, absorb: Later) -> Later:
        """Return the result of `absorb`, computed at once or at its first use."""
        if self.absorbs_late:
            return cache(absorb)
        absorbed = absorb()
        return lambda: absorbed
