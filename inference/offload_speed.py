"""How fast a model would be whose experts stay in the checkpoint's files: bytes by count, rates measured here in a few seconds."""

import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from ..model.config import ModelConfig, Precision
from ..model.mtp import MTPTables
from ..model.parallel.shard import parameter_bytes

PIECE = 16 << 20  # bytes of a read, about as much as a thread reads of an expert at a time
THREADS, SECONDS = 8, 1.0


@dataclass(frozen=True)
class OffloadSpeed:
    """Sizes in bytes, rates in bytes a second. None: there is no file to read, no such way of reading, or no GPU."""

    residents: int  # weights that stay on the device, of one rank
    experts: int  # in the files
    token: int  # the experts that one token needs, if none of them is held
    cached: float | None = None  # files that the machine's memory holds
    disk: float | None = None
    copies: float | None = None  # from pinned memory to the GPU

    def seconds(self, rate: float | None) -> float | None:
        """A token's reads at this rate, or at the GPU's if that is lower."""
        return None if rate is None else self.token / min(rate, self.copies or rate)

    def __str__(self) -> str:
        text = f"{_gb(self.residents)} stay on the device, {_gb(self.experts)} of experts in the files"
        ways = [
            f"{name} {rate / 1e9:.1f} GB/s, {self.seconds(rate):.2f} s"
            for name, rate in (("from memory", self.cached), ("from disk", self.disk))
            if rate is not None
        ]
        rates = f" ({'; '.join(ways)})" if ways else ""
        return f"{text}; a token reads at most {_gb(self.token)} of them{rates}"


def estimate_offload(
    config: ModelConfig, precision: Precision, device: torch.device, ranks: int, mtp: bool, directory: Path | None
) -> OffloadSpeed:
    """Count the bytes, and measure how fast `directory`'s files can be read and, on a GPU, copied to it."""
    tables = MTPTables() if mtp else None
    stored = config.stored_precision
    experts = parameter_bytes(config, stored, mtp=tables) - parameter_bytes(config, stored, mtp=tables, offload=True)
    chosen = experts * config.num_experts_per_tok // config.n_routed_experts
    residents = parameter_bytes(config, precision, 0, ranks, tables, offload=True)
    files = sorted(directory.glob("*.safetensors") if directory else (), key=lambda file: file.stat().st_size)
    direct = os.O_DIRECT if hasattr(os, "O_DIRECT") else None  # absent on macOS
    disk, cached = [_read_rate(file, flag) for file in files[-1:] for flag in (direct, 0)] or (None, None)
    return OffloadSpeed(residents, experts, chosen, cached, disk, _copy_rate(device) if device.type == "cuda" else None)


def _read_rate(file: Path, flag: int | None) -> float | None:
    """Bytes a second of reads by several threads. flag: of os.open; with 0, pieces that have been read before are read again."""
    pieces = file.stat().st_size // PIECE
    if flag is None or not pieces:
        return None
    try:
        opened = os.open(file, os.O_RDONLY | flag)
    except OSError:  # a file system without direct reads
        return None

    buffers = [mmap.mmap(-1, PIECE) for _ in range(THREADS)]  # at the start of a page, as direct reads need it

    def read(number: int) -> int:
        return os.preadv(opened, [buffers[number % THREADS]], number % pieces * PIECE)

    try:
        with ThreadPoolExecutor(THREADS) as pool:
            if flag == 0:
                pieces = min(pieces, THREADS)
                list(pool.map(read, range(pieces)))
            return _rate(lambda turn: sum(pool.map(read, range(turn * THREADS, (turn + 1) * THREADS))))
    except OSError:
        return None
    finally:
        os.close(opened)
        for buffer in buffers:
            buffer.close()


def _copy_rate(device: torch.device) -> float:
    host = torch.empty(PIECE, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(host, device=device)

    def copy(turn: int) -> int:
        for _ in range(THREADS):
            there.copy_(host, non_blocking=True)
        torch.cuda.synchronize(device)
        return THREADS * PIECE

    copy(0)
    return _rate(copy)


def _rate(work: Callable[[int], int]) -> float:
    """Bytes a second of `work`, which returns the bytes of its turn."""
    start, done, turn = time.perf_counter(), 0, 0
    while (seconds := time.perf_counter() - start) < SECONDS:
        done, turn = done + work(turn), turn + 1
    return done / seconds


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
