"""Reads routed experts from a checkpoint's files whenever a step needs them, with the checks that loading does.

Values and hashes are checked when bytes are read for the first time; at every read, that the file is still the same one. Plain
reads are used: a mapped file that becomes shorter would end the process (SIGBUS).
"""

import os
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from ..config import blocks
from ..errors import CheckpointError, short_repr
from ..expert_slots import ExpertSlots, Key, LayerSlots, PartShape, Slot
from ..moe import MixtureOfExperts
from ..transformer import Transformer
from .locate import TensorSource
from .manifest import TensorHashes, identify, read_into
from .rows import DTYPES, ParameterLoader, RowChunk, check_finite
from .safetensors import StoredTensor

# One thread reads 5 GB/s of cached files into pinned memory, twelve read 35 GB/s (a machine with 16 cores and an H200).
_THREADS = min(12, max(4, os.cpu_count() or 1))


class ExpertFiles:
    """An `ExpertReader` of the tensors that make up each part of each expert."""

    def __init__(
        self, sources: dict[tuple[str, Key], list[TensorSource]], ue8m0: bool, hashes: TensorHashes | None
    ) -> None:
        self._sources, self._ue8m0, self._hashes = sources, ue8m0, hashes
        files = {tensor.file for each in sources.values() for source in each for tensor in _tensors(source)}
        self._identities = {file: identify(file.stat()) for file in files}
        self._checked: set[tuple[str, int]] = (
            set()
        )  # tensors' names and places of bytes that were right when they were first read
        self._unusual: list[str] = []  # names of scales that are no powers of two, although the configuration says so
        self._warned = False
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="experts")
        self._own = threading.local()  # a thread's stream and pinned memory

    def read(
        self, part: str, key: Key, slot: Slot, after: "torch.cuda.Event | None", beside: int
    ) -> list["Future[None]"]:
        if self._unusual and not self._warned:
            self._warned = True
            warnings.warn(
                f"scales of experts, the first {short_repr(self._unusual[0])}, are no powers of two; expected powers of two, as "
                "scale_fmt is 'ue8m0' in config.json: they are used as they are",
                stacklevel=2,
            )
        # Few experts are divided among the threads. Many are read in large pieces: each costs its thread some 0.3 ms of Python.
        pieces = max(1, _THREADS // (len(self._sources[part, key]) * beside))
        chunks = [chunk for loader, _ in self._loaders(part, key, slot) for chunk in loader.work(pieces)]
        return [self._pool.submit(self._fill, chunk, slot.weight.device, after) for chunk in chunks]

    def convert(self, part: str, key: Key, slot: Slot, into: Slot) -> None:
        for loader, source in self._loaders(part, key, into):
            loader.convert(*_place(source, slot))

    def _loaders(self, part: str, key: Key, slot: Slot) -> Iterator[tuple[ParameterLoader, TensorSource]]:
        for source in self._sources[part, key]:
            yield ParameterLoader(source, *_place(source, slot), self._ue8m0, self._unusual), source

    @torch.no_grad()
    def _fill(self, chunk: RowChunk, device: torch.device, after: "torch.cuda.Event | None") -> None:
        """Read a chunk and check it. On a GPU, copy it there: the copy has ended when this returns."""
        tensor = chunk.tensor
        start = tensor.offset + chunk.start * tensor.row_bytes
        buffer = chunk.into if chunk.into is not None else self._buffer(chunk, device)
        data = buffer.view(torch.uint8).numpy().reshape(-1)
        read_into(tensor.file, start, data.data, self._identities[tensor.file])
        if (tensor.name, start, chunk.size) not in self._checked:
            if self._hashes is not None:
                self._hashes.check(tensor, start, data.data)
            check_finite(tensor, data)
        if device.type == "cuda":
            with torch.cuda.stream(self._own.stream):
                if after is not None:
                    after.wait()
                chunk.use(buffer)
        else:
            chunk.use(buffer)
        self._checked.add((tensor.name, start, chunk.size))

    def _buffer(self, chunk: RowChunk, device: torch.device) -> torch.Tensor:
        """Memory to read a chunk into: of this thread, pinned for copies to a GPU."""
        own, shape = self._own, (chunk.stop - chunk.start, *chunk.tensor.shape[1:])
        if not hasattr(own, "memory") or own.memory.numel() < chunk.size:
            own.memory = torch.empty(chunk.size, dtype=torch.uint8, pin_memory=device.type == "cuda")
            if device.type == "cuda":
                own.stream = torch.cuda.Stream(device)
        memory: torch.Tensor = own.memory[: chunk.size]
        return memory.view(DTYPES[chunk.tensor.dtype]).view(shape)


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
