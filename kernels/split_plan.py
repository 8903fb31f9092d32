"""Split-KV plans: which part of the GPU attends to which keys. Made on the device once a step and reused by every layer."""

from dataclasses import dataclass

import torch

PART_FIELDS = 8  # int32 words of `struct Part` in common/problem.cuh


@dataclass(frozen=True)
class SplitPlan:
    """Device tensors, filled by a planning kernel; valid for every call with the same lengths, number of queries and rows."""

    parts: torch.Tensor  # int32 [parts, 8]
    split_offset: torch.Tensor  # int32 [queries + 1]
    rows: int  # query rows that share keys: heads, times new tokens in dense decode

    def check(self, queries: int, rows: int) -> None:
        if (self.split_offset.shape[0] - 1, self.rows) != (queries, rows):
            raise ValueError(
                f"plan was made for {self.split_offset.shape[0] - 1} queries of {self.rows} rows, "
                f"expected one for {queries} of {rows}"
            )

    def buffers(self, value_dim: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Partial outputs and logsumexps: every query has one split more than cuts go through it."""
        slots = self.split_offset.shape[0] - 1 + self.parts.shape[0]
        device = self.parts.device
        return (
            torch.empty(slots, rows, value_dim, dtype=torch.float32, device=device),
            torch.empty(slots, rows, dtype=torch.float32, device=device),
        )


def empty_plan(queries: int, rows: int, device: torch.device, ctas: int, ctas_at_once: int = 1) -> SplitPlan:
    """A plan for a planning kernel to fill, with one part for each group of `ctas` that the device runs at once.

    A group holds all rows of a query; a multiprocessor runs `ctas_at_once`.
    """
    processors: int = torch.cuda.get_device_properties(device).multi_processor_count
    parts = max(processors * ctas_at_once // ctas, 1)
    return SplitPlan(
        torch.empty(parts, PART_FIELDS, dtype=torch.int32, device=device),
        torch.empty(queries + 1, dtype=torch.int32, device=device),
        rows,
    )


def costs(rows: int) -> tuple[int, int, int]:
    """struct Costs of common/split.cuh: starting a query, in blocks; a partial result and merging at all, in 64ths of a block.

    A block of 64 keys takes 2 to 4 microseconds; a partial result of 64 rows, 128 KB written and read again, about 0.1.
    """
    return 5, max(rows // 32, 1), 96


def check_vectors(**tensors: torch.Tensor) -> None:
    """The kernels copy 16 bytes at a time: addresses and strides (but the last) must be multiples of that."""
    for name, tensor in tensors.items():
        size = tensor.element_size()
        if tensor.data_ptr() % 16 or any(
            s * size % 16 for s, n in zip(tensor.stride()[:-1], tensor.shape, strict=False) if n > 1
        ):
            raise ValueError(
                f"{name} has strides {list(tensor.stride())} and starts at byte {tensor.data_ptr() % 16} of 16, expected rows "
                "aligned to 16 bytes; call .contiguous()"
            )


def check_widths(width: int, value_dim: int) -> None:
    if width != 576 or value_dim != 512:
        raise ValueError(
            f"head dims are {width} and {value_dim}, expected 576 and 512 (the CUDA attention kernels take no others)"
        )
