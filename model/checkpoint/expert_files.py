"""Reads routed experts from a checkpoint's files whenever a step needs them, with the checks that loading does.

Values and hashes are checked when bytes are read for the first time; at every read, that the file is still the same one. Plain
reads are used: a mapped file that becomes shorter would end the process (SIGBUS).
"""

import os
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import NamedTuple

import torch

from ...kernels.device import is_hopper
from ...kernels.file_rows import read_rows
from ..config import FP8_BLOCK, blocks
from ..errors import CheckpointError, short_repr
from ..expert_slots import ExpertSlots, Key, LayerSlots, PartShape, Slot
from ..moe import MixtureOfExperts
from ..transformer import Transformer
from ..weight_map import SCALE
from .locate import TensorSource
from .manifest import TensorHashes, ended, identify, opened, read_into
from .rows import DTYPES, ParameterLoader, check_finite, check_scales
from .safetensors import StoredTensor

# One thread reads 5 GB/s of cached files; twelve read, check and copy 20 GB/s to an H200 (16 cores).
_THREADS = min(12, max(4, os.cpu_count() or 1))


class Rows(NamedTuple):
    """Rows [first, last) of a tensor, and the first of a slot's rows that they fill, of its weight or of its scales."""

    tensor: StoredTensor
    first: int
    last: int
    place: int

    @property
    def start(self) -> int:
        return self.tensor.offset + self.first * self.tensor.row_bytes

    @property
    def size(self) -> int:
        return (self.last - self.first) * self.tensor.row_bytes

    @property
    def is_scale(self) -> bool:
        return self.tensor.name.endswith(SCALE)

    def within(self, slot: Slot) -> torch.Tensor:
        """Return the rows of the slot."""
        whole = slot.scale if self.is_scale else slot.weight
        assert whole is not None
        return whole[self.place : self.place + self.last - self.first]


class Run:
    """Rows that lie together in a file, which one thread reads."""

    def __init__(self, rows: Rows) -> None:
        self.rows = [rows]
        self.is_checked = False  # they have been read before

    @property
    def size(self) -> int:
        return sum(rows.size for rows in self.rows)

    @cached_property
    def places(self) -> torch.Tensor:
        """The argument of kernels.file_rows.read_rows."""
        return torch.tensor(
            [[rows.is_scale, rows.place * rows.tensor.row_bytes, rows.size] for rows in self.rows], dtype=torch.int64
        )


class ExpertFiles:
    """An `ExpertReader` of the tensors that make up each part of each expert."""

    def __init__(
        self, sources: dict[tuple[str, Key], list[TensorSource]], ue8m0: bool, hashes: TensorHashes | None
    ) -> None:
        self._sources, self._ue8m0, self._hashes = sources, ue8m0, hashes
        files = {tensor.file for each in sources.values() for source in each for tensor in _tensors(source)}
        self._identities = {file: identify(file.stat()) for file in files}
        self._unusual: list[str] = []  # names of scales that are no powers of two, although the configuration says so
        self._warned = False
        self._runs: dict[tuple[str, Key, bool], list[Run]] = {}  # those of which an expert's part consists, kept
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="experts")
        self._own = threading.local()  # a thread's pinned memory

    def read(
        self, part: str, key: Key, slot: Slot, after: "torch.cuda.Event | None", at_once: int
    ) -> list["Future[None]"]:
        if self._unusual and not self._warned:
            self._warned = True
            warnings.warn(
                f"scales of experts, the first {short_repr(self._unusual[0])}, are no powers of two; expected powers of two, as "
                "scale_fmt is 'ue8m0' in config.json: they are used as they are",
                stacklevel=2,
            )
        few = at_once * 3 <= _THREADS  # they are divided among the threads
        runs = self._runs.get((part, key, few))
        if runs is None:
            runs = self._runs[part, key, few] = _divide(self._sources[part, key], few)
        return [self._pool.submit(self._fill, run, slot, after) for run in runs]

    def convert(self, part: str, key: Key, slot: Slot, into: Slot) -> None:
        for source in self._sources[part, key]:
            loader = ParameterLoader(source, *_place(source, into), self._ue8m0, self._unusual)
            loader.convert(*_place(source, slot))

    @torch.no_grad()
    def _fill(self, run: Run, slot: Slot, after: "torch.cuda.Event | None") -> None:
        """Read rows into a slot, and check them the first time. When this returns, they are there, also on a GPU."""
        file, device = run.rows[0].tensor.file, slot.weight.device
        memory = self._pinned(run.size, device) if device.type == "cuda" else None
        if after is not None:
            after.wait()
        if memory is not None and run.is_checked and is_hopper(device):
            with opened(file, self._identities[file]) as descriptor:
                count = read_rows(descriptor, run.rows[0].start, memory, run.places, *slot)
                if count < 0:
                    raise OSError(-count, os.strerror(-count))
                if count < len(memory):
                    raise ended(file, run.rows[0].start + count)
            return
        for rows in run.rows:
            target = rows.within(slot)
            part = target if memory is None else memory[: rows.size].view(target.dtype).view(target.shape)
            data = part.view(torch.uint8).numpy().reshape(-1)
            read_into(file, rows.start, data.data, self._identities[file])
            if not run.is_checked:
                if self._hashes is not None:
                    self._hashes.check(rows.tensor, rows.start, data.data)
                check_finite(rows.tensor, data)
                if rows.is_scale:
                    check_scales(rows.tensor, part, self._ue8m0, self._unusual)
            if memory is not None:
                target.copy_(part)
        run.is_checked = True

    def _pinned(self, size: int, device: torch.device) -> torch.Tensor:
        """This thread's pinned memory, `size` bytes. The thread gets a stream of its own."""
        own = self._own
        if not hasattr(own, "memory"):
            torch.cuda.set_stream(torch.cuda.Stream(device))
        if not hasattr(own, "memory") or own.memory.numel() < size:
            own.memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        memory: torch.Tensor = own.memory[:size]
        return memory


def _quarters(rows: int) -> list[tuple[int, int]]:
    """Divide rows into at most four ranges of whole FP8 blocks."""
    step = blocks(-(-rows // 4)) * FP8_BLOCK
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


def _divide(sources: list[TensorSource], few: bool) -> list[Run]:
    """Divide an expert's part into what lies together in a file. few: into about a quarter of a weight, for more threads."""
    pieces = []
    for source in sources:
        spec = source.shard.spec
        bounds = _quarters(spec.shape[0]) if few else [(0, spec.shape[0])]
        pieces += [Rows(source.weight, first, last, spec.row + first) for first, last in bounds]
        if source.scale is not None:
            pieces.append(Rows(source.scale, 0, spec.scale_shape[0], spec.scale_row))
    runs: list[Run] = []
    for rows in sorted(pieces, key=lambda each: (each.tensor.file, each.start)):
        last = runs[-1].rows[-1] if runs else None
        together = last is not None and (last.tensor.file, last.start + last.size) == (rows.tensor.file, rows.start)
        if together and (rows.is_scale or not few):
            runs[-1].rows.append(rows)
        else:
            runs.append(Run(rows))
    return runs


def attach_experts(model: Transformer, sources: list[TensorSource], hashes: TensorHashes | None) -> None:
    """Give a model that was built without routed experts `expert_slots`, which read them from `sources`.

    Raises CheckpointError unless all experts are stored in one dtype.
    """
    config, compute = model.config, model.compute
    modules = {f"{name}.experts": each for name, each in model.named_modules() if isinstance(each, MixtureOfExperts)}
    found: dict[tuple[str, Key], list[TensorSource]] = {}
    dtypes: dict[str, str] = {}  # as the first tensor of each part is stored
    for source in sources:
        spec, weight = source.shard.spec, source.weight
        assert spec.parameter is not None and spec.expert is not None
        owner, part = spec.parameter.rsplit(".", 1)
        found.setdefault((part, (modules[owner].layer, spec.expert)), []).append(source)
        if dtypes.setdefault(part, weight.dtype) != weight.dtype:
            expected = f"{dtypes[part]}, like other experts: offloaded experts have one dtype"
            raise CheckpointError(
                weight.file, f"tensor {short_repr(weight.name)} is {weight.dtype}; expected {expected}"
            )
    used = torch.float8_e4m3fn if compute.quantized else compute.dtype
    hidden, inner = config.hidden_size, config.moe_intermediate_size
    weights = {"gate_up_proj": (2 * inner, hidden), "down_proj": (hidden, inner)}
    scales = {"gate_up_proj": (2 * blocks(inner), blocks(hidden)), "down_proj": (blocks(hidden), blocks(inner))}
    shapes = {part: PartShape(weights[part], scales[part], DTYPES[dtypes[part]], used) for part in weights}
    layers = [module.layer for module in modules.values()]
    count = next(iter(modules.values())).experts.count if modules else 0
    reader = ExpertFiles(found, config.ue8m0_scales, hashes)
    model.expert_slots = ExpertSlots(shapes, reader, layers, count, compute.device)
    for module in modules.values():
        module.experts.store = LayerSlots(model.expert_slots, module.layer)


def _tensors(source: TensorSource) -> tuple[StoredTensor, ...]:
    return (source.weight,) if source.scale is None else (source.weight, source.scale)


def _place(source: TensorSource, slot: Slot) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the part of a slot that a tensor fills, and the part of its scales."""
    spec, scale = source.shard.spec, slot.scale
    weight = slot.weight[spec.row : spec.row + spec.shape[0]]
    return weight, None if scale is None else scale[spec.scale_row : spec.scale_row + spec.scale_shape[0]]
