"""Split-KV plans: which CTAs attend to which keys of which query. A plan is made on the device once a step; all layers share it.

The method is that of Flash-Decoding (2023), the name is FlashMLA's.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SplitPlan:
    """Device tensors that a planning kernel fills. Valid for every call with the same lengths, number of queries and rows."""

    parts: torch.Tensor  # int32 [parts, 8]: `struct Part` of cuda/attention/problem.cuh
    split_offset: torch.Tensor  # int32 [queries + 1]: the first split of each query
    rows: int  # query rows that share keys: the heads, times the new tokens in dense decode

    def check(self, queries: int, rows: int) -> None:
        """ValueError unless the plan was made for this many queries and rows."""
        if (self.split_offset.shape[0] - 1, self.rows) != (queries, rows):
            raise ValueError(
                f"plan is for {self.split_offset.shape[0] - 1} queries of {self.rows} rows; "
                f"expected one for {queries} queries of {rows} rows"
            )
