"""Reads routed experts from a checkpoint's files whenever a step needs them, with the checks that loading does.

Values and hashes are checked when bytes are read for the first time; at every read, that the file is still the same one. Plain
reads are used: a mapped file that becomes shorter would end the process (SIGBUS).
"""

import os
import struct
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import torch

from ...kernels.device import is_hopper
from ...kernels.file_rows import Wait, row_reader
from ..config import blocks
from ..errors import CheckpointError, short_repr
from ..expert_slots import ExpertSlots, Key, PartShape, Read, Slot
from ..moe import MixtureOfExperts
from ..transformer import Transformer
from ..weight_map import SCALE
from .locate import TensorSource
from .manifest import TensorHashes, identify, read_into
from .rows import DTYPES, ParameterLoader, check_finite, check_scales
from .safetensors import StoredTensor

# One thread reads 5 GB/s of cached files; twelve read 39 GB/s to an H200 (16 cores).
_THREADS = min(12, max(4, os.cpu_count() or 1))


class Rows(NamedTuple):
    """A tensor, and the first of a slot's rows that it fills, of its weight or of its scales."""

    tensor: StoredTensor
    place: int

    @property
    def is_scale(self) -> bool:
        return self.tensor.name.endswith(SCALE)


class Run:
    """Tensors that lie together in a file."""

    def __init__(self, rows: Rows) -> None:
        self.rows = [rows]
        # The first arguments of `row_reader`'s function, when the bytes have been read and checked.
        self.request: tuple[bytes, bytes, int, torch.Tensor] | None = None


class NativeRead:
    """A `Read` by threads that run no Python. If it fails, the same is read in Python, which says why."""

    def __init__(self, wait: Wait, in_python: "Callable[[], Future[None]]") -> None:
        self._wait = wait  # goes first: the read ends before the slot and the event go, which `in_python` holds
        self._in_python = in_python
        self._again: Future[None] | None = None

    def done(self) -> bool:
        return self._wait(0) is not None

    def cancel(self) -> bool:
        self._wait(-1)
        return True

    def exception(self) -> BaseException | None:
        while (filled := self._wait(100)) is None:
            pass  # here Ctrl-C is noticed
        if filled:
            return None
        self._again = self._again or self._in_python()
        return self._again.exception()


class ExpertFiles:
    """An `ExpertReader` of the tensors that make up each part of each expert."""

    def __init__(
        self,
        sources: dict[tuple[str, Key], list[TensorSource]],
        ue8m0: bool,
        hashes: TensorHashes | None,
        device: torch.device,
    ) -> None:
        """device: of the slots, with its index."""
        self._sources, self._ue8m0, self._hashes = sources, ue8m0, hashes
        tensors = (tensor for each in sources.values() for source in each for tensor in (source.weight, source.scale))
        files = {tensor.file for tensor in tensors if tensor is not None}
        self._identities = {file: identify(file.stat()) for file in files}
        self._unusual: list[str] = []  # names of scales that are no powers of two, although the configuration says so
        self._warned = False
        self._runs = {which: _runs(each) for which, each in sources.items()}
        self._read_rows = row_reader(device, _THREADS) if is_hopper(device) else None
        self._pool = ThreadPoolExecutor(_THREADS, "experts", _use_own_stream, (device,))

    def read(self, part: str, key: Key, slot: Slot, after: "torch.cuda.Event | None") -> list[Read]:
        if self._unusual and not self._warned:
            self._warned = True
            warnings.warn(
                f"scales of experts, the first {short_repr(self._unusual[0])}, are no powers of two; expected powers of two, as "
                "scale_fmt is 'ue8m0' in config.json: they are used as they are",
                stacklevel=2,
            )
        return [self._begin(run, slot, after) for run in self._runs[part, key]]

    def convert(self, part: str, key: Key, slot: Slot, into: Slot) -> None:
        for source in self._sources[part, key]:
            loader = ParameterLoader(source, *_place(source, into), self._ue8m0, self._unusual)
            loader.convert(*_place(source, slot))

    def _begin(self, run: Run, slot: Slot, after: "torch.cuda.Event | None") -> Read:
        fill = partial(self._fill, run, slot, after)
        if self._read_rows is None or run.request is None:
            return self._pool.submit(fill)
        scale = 0 if slot.scale is None else slot.scale.data_ptr()
        event = 0 if after is None else after.cuda_event
        wait = self._read_rows(*run.request, slot.weight.data_ptr(), scale, event)
        return NativeRead(wait, partial(self._pool.submit, fill))

    @torch.no_grad()
    def _fill(self, run: Run, slot: Slot, after: "torch.cuda.Event | None") -> None:
        """Read rows into a slot, and check them the first time. When this returns, they are there, also on a GPU."""
        if after is not None:
            after.wait()
        for rows in run.rows:
            tensor, whole = rows.tensor, slot.scale if rows.is_scale else slot.weight
            assert whole is not None
            target = whole[rows.place : rows.place + tensor.shape[0]]
            part = torch.empty(target.shape, dtype=target.dtype, pin_memory=True) if target.is_cuda else target
            data = part.view(torch.uint8).numpy().reshape(-1)
            read_into(tensor.file, tensor.offset, data.data, self._identities[tensor.file])
            if run.request is None:
                if self._hashes is not None:
                    self._hashes.check(tensor, tensor.offset, data.data)
                check_finite(tensor, data)
                if rows.is_scale:
                    check_scales(tensor, part, self._ue8m0, self._unusual)
            if part is not target:
                target.copy_(part)
        if run.request is None:
            first = run.rows[0].tensor
            identity = struct.pack("qqQ", *self._identities[first.file])
            places = [[rows.is_scale, rows.place * rows.tensor.row_bytes, rows.tensor.size] for rows in run.rows]
            run.request = os.fsencode(first.file), identity, first.offset, torch.tensor(places, dtype=torch.int64)


def _use_own_stream(device: torch.device) -> None:
    """Give this thread a stream of its own."""
    if device.type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(device))


def _runs(sources: list[TensorSource]) -> list[Run]:
    """Divide an expert's part into what lies together in a file."""
    pieces = []
    for source in sources:
        spec = source.shard.spec
        pieces.append(Rows(source.weight, spec.row))
        if source.scale is not None:
            pieces.append(Rows(source.scale, spec.scale_row))
    runs: list[Run] = []
    for rows in sorted(pieces, key=lambda each: (each.tensor.file, each.tensor.offset)):
        last = runs[-1].rows[-1].tensor if runs else None
        if last is not None and (last.file, last.offset + last.size) == (rows.tensor.file, rows.tensor.offset):
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
    device = torch.empty(0, device=compute.device).device  # with its index: other threads may have another device
    reader = ExpertFiles(found, config.ue8m0_scales, hashes, device)
    model.expert_slots = ExpertSlots(shapes, reader, layers, count, device)
    for module in modules.values():
        module.experts.store = partial(model.expert_slots.request, module.layer)


def _place(source: TensorSource, slot: Slot) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the part of a slot that a tensor fills, and the part of its scales."""
    spec, scale = source.shard.spec, slot.scale
    weight = slot.weight[spec.row : spec.row + spec.shape[0]]
    return weight, None if scale is None else scale[spec.scale_row : spec.scale_row + spec.scale_shape[0]]
