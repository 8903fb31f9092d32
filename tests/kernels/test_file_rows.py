"""Rows of a file in a GPU's memory, next to the file's bytes as numpy reads them."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.kernels.file_rows import row_reader

HOPPER = torch.cuda.is_available() and is_hopper(torch.device("cuda"))
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")]


@pytest.mark.parametrize("threads", [1, 12])
def test_rows_go_to_their_places(threads: int, tmp_path: Path) -> None:
    """Ranges that end within a piece and beyond one, of two tensors, in another order than theirs; then a file that ends early."""
    reader = row_reader(torch.device("cuda", torch.cuda.current_device()), threads)
    data = np.random.default_rng(0).integers(0, 256, 20 << 20, dtype=np.uint8)
    path, start = tmp_path / "rows", 12_345
    path.write_bytes(data.tobytes())
    sizes = [5 << 20, 4096, 64, 9_000_000, 4096]
    places = [[0, 7 << 20, sizes[0]], [1, 8192, sizes[1]], [1, 0, 64], [0, 0, sizes[3]], [1, 512, sizes[4]]]
    expected = [np.zeros(12 << 20, dtype=np.uint8), np.zeros(16384, dtype=np.uint8)]
    first = start
    for which, at, size in places:
        expected[which][at : at + size] = data[first : first + size]
        first += size

    def read(turn: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            weight = torch.zeros(3, 4 << 20, dtype=torch.uint8, device="cuda")
            scale = torch.zeros(16, 256, device="cuda")
            with path.open("rb") as file:
                assert reader(file.fileno(), start, torch.tensor(places), weight, scale.view(torch.uint8)) == sum(sizes)
            for found, right in zip((weight, scale), expected, strict=True):
                assert np.array_equal(found.view(torch.uint8).cpu().numpy().reshape(-1), right), turn

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(read, range(20)))
    weight, scale = torch.zeros(12 << 20, dtype=torch.uint8, device="cuda"), torch.zeros(16, 256, device="cuda")
    with path.open("rb") as file:
        os.truncate(path, start + 6_000_000)
        assert reader(file.fileno(), start, torch.tensor(places), weight, scale.view(torch.uint8)) == 6_000_000
        closed = file.fileno()
    assert reader(closed, start, torch.tensor(places), weight, None) == -errno.EBADF
