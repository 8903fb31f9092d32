"""Random inputs and tolerances of the sparse attention tests."""

import numpy as np
import torch

from support.compare import BF16_OUT, FP32_OUT, Tolerance

SCALE = 0.1352337788608801  # the released model's
# bf16 outputs must meet the public tests' tolerance, whose absolute part assumes keys of a tenth of unit size.
KEY_SIZE = {torch.float32: 1.0, torch.bfloat16: 0.1}
SMALL = 2.0**-5  # scales FP8 records to that size without rounding: their rows are up to four times unit size


def out_tolerance(dtype: torch.dtype) -> Tolerance:
    return FP32_OUT if dtype == torch.float32 else BF16_OUT


def int32(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def queries(rng: np.random.Generator, dtype: torch.dtype, *shape: int) -> tuple[torch.Tensor, np.ndarray]:
    q = torch.from_numpy(rng.standard_normal((*shape, 576))).to(dtype)
    return q, q.double().numpy()


def pick(rng: np.random.Generator, usable: np.ndarray, columns: int, invalid: list[int]) -> list[int]:
    """`columns` indices: distinct usable rows, every third replaced by an invalid one if there are any."""
    row = rng.permutation(usable)[:columns].tolist()
    row += [-1] * (columns - len(row))
    for column in range(0, columns, 3):
        if invalid:
            row[column] = int(rng.choice(invalid))
    return row
