"""Reads routed experts from a checkpoint's files whenever a step needs them, with the checks that loading does.

Values and hashes are checked when bytes are read for the first time; at every read, that the file is still the same one. Plain
reads are used: a mapped file that becomes shorter would end the process (SIGBUS).
"""

import os
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch

from ..config import FP8_BLOCK, blocks
from ..errors import CheckpointError, short_repr
from ..expert_slots import ExpertSlots, Key, LayerSlots, PartShape, Slot
from ..moe import MixtureOfExperts
from ..transformer import Transformer
from ..weight_map import SCALE
from .locate import TensorSource
from .manifest import TensorHashes, identify, reading
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
    def stop(self) -> int:
        return self.tensor.offset + self.last * self.tensor.row_bytes

    @property
    def is_scale(self) -> bool:
        return self.tensor.name.endswith(SCALE)

    def within(self, slot: Slot) -> torch.Tensor:
        """Return the bytes of the slot that the rows fill."""
        whole = slot.scale if self.is_scale else slot.weight
        assert whole is not None
        return whole[self.place : self.place + self.last - self.first].view(torch.uint8).view(-1)


class ExpertFiles:
    """An `ExpertReader` of the tensors that make up each part of each expert."""

    def __init__(
        self, sources: dict[tuple[str, Key], list[TensorSource]], ue8m0: bool, hashes: TensorHashes | None
    ) -> None:
        self._sources, self._ue8m0, self._hashes = sources, ue8m0, hashes
        files = {tensor.file for each in sources.values() for source in each for tensor in _tensors(source)}
        self._identities = {file: identify(file.stat()) for file in files}
        self._checked: set[tuple[str, int]] = set()  # rows that have been read and checked: a name, a place in the file
        self._unusual: list[str] = []  # names of scales that are no powers of two, although the configuration says so
        self._warned = False
        self._reads: dict[tuple[str, Key, bool], list[list[Rows]]] = {}  # kept: see _runs
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
        reads = self._reads.get((part, key, few))
        if reads is None:
            reads = self._reads[part, key, few] = _runs(self._sources[part, key], few)
        return [self._pool.submit(self._fill, run, slot, after) for run in reads]

    def convert(self, part: str, key: Key, slot: Slot, into: Slot) -> None:
        for source in self._sources[part, key]:
            loader = ParameterLoader(source, *_place(source, into), self._ue8m0, self._unusual)
            loader.convert(*_place(source, slot))

    @torch.no_grad()
    def _fill(self, run: list[Rows], slot: Slot, after: "torch.cuda.Event | None") -> None:
        """Read what lies together in a file, and check it. On a GPU, copy it there: the copies have ended when this returns."""
        file, on_gpu = run[0].tensor.file, slot.weight.device.type == "cuda"
        targets = [rows.within(slot) for rows in run]
        found = self._pinned([len(each) for each in targets], slot.weight.device) if on_gpu else targets
        if on_gpu and after is not None:
            after.wait()
        try:
            with reading(file, self._identities[file]) as read:
                for rows, part, target in zip(run, found, targets, strict=True):
                    data = part.numpy()
                    read(rows.start, data.data)
                    self._check(rows, data)
                    if on_gpu:  # while the next rows are read
                        target.copy_(part, non_blocking=True)
        finally:
            if on_gpu:
                torch.cuda.current_stream().synchronize()

    def _check(self, rows: Rows, data: np.ndarray) -> None:
        """Check bytes that are read for the first time."""
        tensor = rows.tensor
        if (tensor.name, rows.start) in self._checked:
            return
        if self._hashes is not None:
            self._hashes.check(tensor, rows.start, data.data)
        check_finite(tensor, data)
        if rows.is_scale:
            check_scales(tensor, torch.from_numpy(data).view(torch.float32), self._ue8m0, self._unusual)
        self._checked.add((tensor.name, rows.start))

    def _pinned(self, sizes: list[int], device: torch.device) -> list[torch.Tensor]:
        """Return parts of this thread's pinned memory, each aligned; its stream becomes the thread's."""
        places = list(accumulate(blocks(size) * FP8_BLOCK for size in sizes))
        own = self._own
        if not hasattr(own, "memory"):
            torch.cuda.set_stream(torch.cuda.Stream(device))
        if not hasattr(own, "memory") or own.memory.numel() < places[-1]:
            own.memory = torch.empty(places[-1], dtype=torch.uint8, pin_memory=True)
        memory: torch.Tensor = own.memory
        return [memory[first : first + size] for first, size in zip((0, *places), sizes, strict=False)]


def _quarters(rows: int) -> list[tuple[int, int]]:
    """Divide rows into at most four ranges of whole FP8 blocks."""
    step = blocks(-(-rows // 4)) * FP8_BLOCK
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


def _runs(sources: list[TensorSource], few: bool) -> list[list[Rows]]:
    """Divide an expert's part into what one thread reads: all that lies together in a file; few: about a quarter of a weight.

    It reads about a quarter at a time. Each thread's work costs 0.1 ms of Python, for which others wait, and so does dividing.
    """
    pieces = []
    for source in sources:
        spec = source.shard.spec
        pieces += [Rows(source.weight, first, last, spec.row + first) for first, last in _quarters(spec.shape[0])]
        if source.scale is not None:
            pieces.append(Rows(source.scale, 0, spec.scale_shape[0], spec.scale_row))
    runs: list[list[Rows]] = []
    for piece in sorted(pieces, key=lambda each: (each.tensor.file, each.start)):
        last = runs[-1][-1] if runs else None
        together = last is not None and (last.tensor.file, last.stop) == (piece.tensor.file, piece.start)
        if together and (piece.is_scale or not few):
            runs[-1].append(piece)
        else:
            runs.append([piece])
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
