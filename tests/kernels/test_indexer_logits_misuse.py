"""Misuse of the indexer's operations is an error of one line that names the argument."""

import pytest
import torch

from deepseek_v32.kernels.cuda import indexer_logits as cuda
from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits
from deepseek_v32.kernels.types import PagedIndexerOperands
from support import caches

FP8 = torch.float8_e4m3fn


def call(dtype: torch.dtype = torch.float32, **changes: torch.Tensor | None) -> torch.Tensor:
    bounds = torch.zeros(2, dtype=torch.int32)
    given = {
        "q": torch.ones(2, 4, 128).to(dtype),
        "k": torch.ones(3, 128).to(dtype),
        "weights": torch.ones(2, 4),
        "starts": bounds,
        "ends": bounds,
        "k_scale": None,
    } | changes
    return indexer_logits(*given.values())  # type: ignore[arg-type]


def paged(**changes: torch.Tensor) -> torch.Tensor:
    given = {
        "q": torch.ones(2, 1, 4, 128).to(FP8),
        "cache": caches.poisoned(1, 64, 1, 132),
        "weights": torch.ones(2, 1, 4),
        "block_table": torch.zeros(2, 1, dtype=torch.int32),
        "lengths": torch.ones(2, dtype=torch.int32),
    } | changes
    return paged_indexer_logits(*given.values(), 64)


MISUSE = {
    "fp8 keys without scale": (lambda: call(FP8), "k_scale is missing for keys of .*e4m3fn"),
    "fp32 keys with scale": (lambda: call(k_scale=torch.ones(3)), "k_scale is given for keys of torch.float32"),
    "a scale too many": (lambda: call(FP8, k_scale=torch.ones(4)), r"k_scale has shape \[4\]; expected \[3\]"),
    "mixed dtypes": (
        lambda: call(k=torch.ones(3, 128).bfloat16()),
        "k has dtype torch.bfloat16; expected torch.float32",
    ),
    "bf16 weights": (lambda: call(weights=torch.ones(2, 4).bfloat16()), "weights has dtype torch.bfloat16"),
    "weights of another head count": (
        lambda: call(weights=torch.ones(2, 5)),
        r"weights has shape \[2, 5\]; expected \[2, 4\]",
    ),
    "int64 ends": (lambda: call(ends=torch.zeros(2, dtype=torch.int64)), "ends has dtype torch.int64"),
    "starts of one row": (lambda: call(starts=torch.zeros(1, dtype=torch.int32)), r"starts has shape \[1\]"),
    "fp32 queries for a byte cache": (
        lambda: paged(q=torch.ones(2, 1, 4, 128)),
        r"cache has shape .*; expected \[.*128\]",
    ),
    "table of one sequence": (
        lambda: paged(block_table=torch.zeros(1, 1, dtype=torch.int32)),
        r"block_table has shape \[1, 1\]; expected \[2, \*\]",
    ),
    "lengths elsewhere": (
        lambda: paged(lengths=torch.ones(2, dtype=torch.int32, device="meta")),
        "lengths is on meta; expected cpu",
    ),
}


@pytest.mark.parametrize(("misuse", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(misuse: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        misuse()  # type: ignore[operator]


def test_pages_of_another_size_than_the_kernels_are_refused() -> None:
    q, table = torch.ones(2, 1, 4, 128).to(FP8), torch.zeros(2, 1, dtype=torch.int32)
    given = PagedIndexerOperands(q, caches.poisoned(1, 32, 1, 132), torch.ones(2, 1, 4), table, table[:, 0], 32)
    with pytest.raises(ValueError, match="cache has pages of 32 tokens; expected 64 for backend 'cuda'"):
        cuda.paged_indexer_logits(given)
