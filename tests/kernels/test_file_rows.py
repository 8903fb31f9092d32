"""Rows of a file in a GPU's memory, next to the file's bytes as numpy reads them."""

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.kernels.file_rows import RowReader, Wait, row_reader

HOPPER = torch.cuda.is_available() and is_hopper(torch.device("cuda"))
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")]

START = 12_345
SIZES = [5 << 20, 4096, 64, 7_000_000, 4096]
# Ranges that end within a piece and beyond one, of two tensors, in another order than theirs.
PLACES = [[0, 7 << 20, SIZES[0]], [1, 8192, SIZES[1]], [1, 0, 64], [0, 0, SIZES[3]], [1, 512, SIZES[4]]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows of ö"
    path.write_bytes(np.random.default_rng(0).integers(0, 256, 20 << 20, dtype=np.uint8).tobytes())
    return path


class Target:
    """The memory of a read, zeros at first."""

    def __init__(self) -> None:
        self.weight = torch.zeros(3, 4 << 20, dtype=torch.uint8, device="cuda")
        self.scale = torch.zeros(16, 256, device="cuda")
        torch.cuda.current_stream().synchronize()

    def begin(self, reader: RowReader, path: Path, identity: bytes, after: int = 0) -> Wait:
        addresses = self.weight.data_ptr(), self.scale.data_ptr()
        return reader(os.fsencode(path), identity, START, torch.tensor(PLACES), *addresses, after)

    def check(self, path: Path) -> None:
        data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        expected, first = [np.zeros(12 << 20, dtype=np.uint8), np.zeros(16384, dtype=np.uint8)], START
        for which, at, size in PLACES:
            expected[which][at : at + size] = data[first : first + size]
            first += size
        for found, right in zip((self.weight, self.scale), expected, strict=True):
            assert np.array_equal(found.view(torch.uint8).cpu().numpy().reshape(-1), right)


def identity(path: Path) -> bytes:
    status = path.stat()
    return struct.pack("qqQ", status.st_size, status.st_mtime_ns, status.st_ino)


def device_reader(threads: int) -> RowReader:
    return row_reader(torch.device("cuda", torch.cuda.current_device()), threads)


@pytest.mark.parametrize("threads", [1, 12])
def test_rows_go_to_their_places(threads: int, file: Path) -> None:
    reader = device_reader(threads)

    def read(turn: int) -> None:
        target = Target()
        wait = target.begin(reader, file, identity(file))
        while (done := wait(turn % 3)) is None:
            pass
        assert done is True
        target.check(file)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(read, range(20)))


def test_what_is_no_longer_the_same_file_fails(file: Path, tmp_path: Path) -> None:
    reader, target, path = device_reader(4), Target(), tmp_path / "rows"
    path.write_bytes(file.read_bytes()[: START + 6_000_000])
    size, modified, inode = struct.unpack("qqQ", identity(path))
    for other in (
        (size, modified, inode),
        (size + 1, modified, inode),
        (size, modified - 1, inode),
        (size, modified, 1),
    ):
        assert target.begin(reader, path, struct.pack("qqQ", *other))(10_000) is False  # the first one ends before
    path.unlink()
    assert target.begin(reader, path, struct.pack("qqQ", size, modified, inode))(10_000) is False
    assert target.begin(reader, file, identity(file))(10_000) is True
    target.check(file)


@pytest.mark.parametrize("end", ["wait", "cancel", "drop"])
def test_copies_wait_for_an_event_and_none_comes_after_the_end(end: str, file: Path) -> None:
    reader, target, event = device_reader(4), Target(), torch.cuda.Event()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(400_000_000)  # 0.2 s
        target.weight.fill_(7)
        event.record()
    waits = [target.begin(reader, file, identity(file), event.cuda_event) for _ in range(5)]
    assert waits[0](20) is None
    if end == "wait":
        assert all(wait(10_000) for wait in waits)
        target.weight.view(-1)[7_000_000 : 7 << 20] = 0  # in no range
        target.check(file)
    else:
        if end == "cancel":
            assert all(wait(-1) is not None for wait in waits)
        waits.clear()
        target.weight.fill_(9)
        torch.cuda.synchronize()
        assert bool((target.weight == 9).all())
    assert str(file) not in [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
