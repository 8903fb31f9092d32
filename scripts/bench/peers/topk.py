"""Cases of the top-k selector against FlashInfer's, as an importable package or as a shared library."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from deepseek_v32.kernels.select_topk import select_topk

from . import library
from .samples import Case

SIGNATURES = """\
Functions of a library given by --flashinfer; each returns 0, or a CUDA error. in is fp32 [rows, columns], out int32 [rows, k]. Of a
row, lengths[row] values are selected from; lengths is null if that is all of them.
  int flashinfer_top_k(float *in, int *out, float *values, int *lengths, int *zeros, int rows, int columns, int k, void *state,
                       int deterministic, void *stream)
                               its radix selectors, as its own dispatch chooses; values [rows, k], zeros [rows] and state, 4 MB of
                               zeros, are scratch
  int flashinfer_top_k_cub(float *in, int *out, int *lengths, int rows, int columns, int k, void *workspace, size_t *bytes,
                           void *stream)
                               its selector by CUB; with a null workspace, *bytes (on the host) is set instead
"""

TOPK = 2048

Call = Callable[[], Sequence[torch.Tensor]]


class Peer(Protocol):
    """Gives calls for the positions of the TOPK largest values, in any order, by the name of the method."""

    def calls(self, values: torch.Tensor, lengths: torch.Tensor | None) -> dict[str, Call]: ...


class Package:
    """The package `flashinfer`, whose dispatch chooses the method."""

    def __init__(self) -> None:
        self._module: Any = importlib.import_module("flashinfer")

    def calls(self, values: torch.Tensor, lengths: torch.Tensor | None) -> dict[str, Call]:
        offsets = torch.zeros(len(values), dtype=torch.int32, device=values.device)

        def call() -> Sequence[torch.Tensor]:
            if lengths is None:
                return (self._module.top_k(values, TOPK, sorted=False)[1],)
            return (self._module.top_k_ragged_transform(values, offsets, lengths, TOPK),)

        return {"dispatch": call}


class Library:
    """A shared library with the functions of SIGNATURES."""

    def __init__(self, path: str) -> None:
        self._library = library.Library(path)

    def calls(self, values: torch.Tensor, lengths: torch.Tensor | None) -> dict[str, Call]:
        (rows, columns), device = values.shape, values.device
        zeros = torch.zeros(rows, dtype=torch.int32, device=device)
        best = torch.empty(rows, TOPK, device=device)
        state = torch.zeros(4 << 20, dtype=torch.uint8, device=device)
        size = torch.zeros(1, dtype=torch.int64)  # on the host
        sizes = rows, columns, TOPK
        self._library.run("flashinfer_top_k_cub", values, zeros, lengths, *sizes, None, size)
        workspace = torch.empty(max(int(size), 1), dtype=torch.uint8, device=device)

        def radix() -> Sequence[torch.Tensor]:
            out = torch.empty(rows, TOPK, dtype=torch.int32, device=device)
            self._library.run("flashinfer_top_k", values, out, best, lengths, zeros, *sizes, state, 0)
            return (out,)

        def cub() -> Sequence[torch.Tensor]:
            out = torch.empty(rows, TOPK, dtype=torch.int32, device=device)
            self._library.run("flashinfer_top_k_cub", values, out, lengths, *sizes, workspace, size)
            return (out,)

        return {"radix": radix, "CUB": cub}


def scores(rows: int, columns: int) -> torch.Tensor:
    """Values like the indexer's: weighted sums of ReLUs over 16 heads, most of which have the same exponent."""
    out = torch.zeros(rows, columns, device="cuda")
    for _ in range(16):
        out += torch.randn(rows, columns, device="cuda").relu_() * torch.rand(rows, 1, device="cuda")
    return out


def in_order(values: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The values at positions, ascending: of equal values another position may be chosen. -inf where there is no position."""

    def compared(positions: torch.Tensor) -> torch.Tensor:
        found = values.gather(1, positions.clamp_min(0).long())
        return torch.where(positions < 0, float("-inf"), found).sort(-1).values

    return compared


def topk_cases(peer: Peer) -> Iterator[Case]:
    sizes: list[tuple[int, int, int | None]] = [
        *((rows, columns, None) for columns in (4096, 8192) for rows in (1, 16, 64, 128)), (4096, 4096, None), (4096, 8192, None),
        (64, 16384, None), (64, 32768, None), (64, 131072, None), (1, 131072, None), (4096, 32768, None),
        (64, 131072, 3000), (64, 131072, 8192), (16, 131072, 1000), (128, 8192, 1500), (4096, 32768, 4096),
        (1, 131072, 2500),
    ]  # fmt: skip
    for rows, columns, length in sizes:
        values = scores(rows, columns)
        ends = torch.full((rows,), length or columns, dtype=torch.int32, device="cuda")

        def ours(values: torch.Tensor = values, ends: torch.Tensor = ends) -> Sequence[torch.Tensor]:
            return (select_topk(values, None, ends, TOPK, backend="cuda"),)

        name = f"top-k, {rows} rows of {columns}" + (f", {length} valid" if length else "")
        for method, theirs in peer.calls(values, ends if length else None).items():
            yield Case(f"{name}: {method}", ours, theirs, 0.0, compared=in_order(values))


GROUPS = {"topk": topk_cases}
