"""Loads stored tensors into the model's parameters, one row chunk at a time, from either checkpoint layout.

Headers are checked before any data is read and before the model is allocated. From Hugging Face safetensors, a rank reads whole
rows even of tensors that are split by columns: with the released model on eight ranks, each rank reads 87 GiB and keeps 80. A
converted file holds only its rank's part.
"""

import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch

from ..config import ModelConfig, Precision
from ..errors import short_repr
from ..parallel.collectives import Ranks
from ..parallel.plan import Plan
from ..parallel.shard import build_model
from ..transformer import Transformer
from ..weight_map import TensorSpec, scale_parameter
from .config_json import read_config
from .expert_files import attach_experts
from .locate import TensorSource, find_mtp_tables, locate
from .manifest import Progress, TensorHashes, read_into
from .rows import DTYPES, ParameterLoader, RowChunk, check_finite

_THREADS = 4  # a single thread would leave the disk or the network idle between its reads
_AHEAD = 2**24  # bytes that may be read but not yet used: little compared with any large tensor


def read_ahead(chunks: Iterator[RowChunk], hashes: TensorHashes | None = None) -> Iterator[int]:
    """Read all chunks, across file borders, and use them in order on this thread. Yields the bytes of each used chunk.

    Raises CheckpointError for a chunk that holds NaN or infinity, or whose bytes do not have their hash in `hashes`.
    """
    pending: deque[tuple[RowChunk, Future[torch.Tensor]]] = deque()
    waiting = 0
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="read") as pool:
        try:
            for chunk in chunks:
                while pending and waiting + chunk.size > _AHEAD:
                    waiting -= pending[0][0].size
                    yield _finish(*pending.popleft())
                pending.append((chunk, pool.submit(_read, chunk, _buffer(chunk), hashes)))
                waiting += chunk.size
            while pending:
                yield _finish(*pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _finish(chunk: RowChunk, read: "Future[torch.Tensor]") -> int:
    chunk.use(read.result())
    return chunk.size


def _buffer(chunk: RowChunk) -> torch.Tensor:
    """Allocate memory to read into, on the thread that frees it: the C library keeps freed memory per allocating thread."""
    if chunk.into is not None:
        return chunk.into
    return torch.empty((chunk.stop - chunk.start, *chunk.tensor.shape[1:]), dtype=DTYPES[chunk.tensor.dtype])


def _read(chunk: RowChunk, buffer: torch.Tensor, hashes: TensorHashes | None) -> torch.Tensor:
    """Fill `buffer` with plain reads: pages of a mapped file would count as this process's memory."""
    tensor = chunk.tensor
    if not buffer.numel():
        return buffer
    data = buffer.detach().view(torch.uint8).numpy().reshape(-1)
    start = tensor.offset + chunk.start * tensor.row_bytes
    read_into(tensor.file, start, data.data)
    if hashes is not None:
        hashes.check(tensor, start, data.data)
    check_finite(tensor, data)
    return buffer


def load_model(
    path: str | Path,
    precision: Precision = "exact",
    backend: str = "auto",
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    ranks: Ranks | None = None,
    verify_hashes: bool = True,
    mtp: bool = False,
    deterministic: bool = False,
    config: ModelConfig | None = None,
    offload: bool = False,
    whole_attention: bool = False,
) -> Transformer:
    """Load the model of a checkpoint directory (config.json and safetensors) in `precision` on `device`.

    ranks: the job that shares the model; None: this process holds all of it. config: None stands for the directory's config.json.
    verify_hashes: compare the bytes read with the checkpoint's manifest, if it has one. mtp: also load the MTP layer, which drafts.
    deterministic: see `Compute`. offload: leave the routed experts in their files, to be checked when they are first read.
    whole_attention: see Plan; only for the Hugging Face layout.
    Peak memory is the parameters plus less than twice the largest tensor.
    Raises ConfigError or CheckpointError, each of one line. Headers are checked before anything is allocated; NaN, infinity and
    changed bytes are found while reading.
    """
    directory = Path(path)
    config = config or read_config(directory)
    config.check_precision(precision)
    tables = find_mtp_tables(directory, config) if mtp else None
    plan = Plan(config, ranks.rank, ranks.size, tables, whole_attention) if ranks else Plan(config, mtp=tables)
    sources, hashes = locate(plan, directory, verify_hashes)
    model = build_model(config, precision, backend, device, ranks, tables, deterministic, offload, whole_attention)
    if offload:
        experts = [source for source in sources if source.shard.spec.expert is not None]
        sources = [source for source in sources if source.shard.spec.expert is None]
        attach_experts(model, experts, hashes)
    load_weights(model, sources, config, progress, hashes)
    return model


@torch.no_grad()
def load_weights(
    model: torch.nn.Module,
    sources: list[TensorSource],
    config: ModelConfig,
    progress: Progress | None = None,
    hashes: TensorHashes | None = None,
) -> None:
    """Fill every parameter of `model` in its dtype, verify `hashes`, and call `progress` after every row chunk.

    Into a float parameter, FP8 is dequantised and other dtypes are cast. Into an e4m3 parameter, FP8 is copied with its scales
    and other dtypes are quantised.
    """
    targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
    if config.tie_word_embeddings:  # a shared table is read once
        del targets["lm_head.weight"]
        sources = [each for each in sources if each.shard.spec.parameter != "lm_head.weight"]
    filled = dict.fromkeys(targets, 0)
    total = sum(source.size for source in sources)
    done = 0
    unusual: list[str] = []  # names of scales that are not powers of two, although the configuration says so

    def work() -> Iterator[RowChunk]:
        # In the order on disk: file by file, each from its start to its end.
        for source in sorted(sources, key=lambda each: (str(each.weight.file), each.weight.offset)):
            spec = source.shard.spec
            assert spec.parameter is not None
            target = place(targets[spec.parameter], spec, spec.row, spec.shape)
            filled[spec.parameter] += target.numel()
            scales = None
            if target.dtype == torch.float8_e4m3fn:
                name = scale_parameter(spec.parameter)
                scales = place(targets[name], spec, spec.scale_row, spec.scale_shape)
                filled[name] += scales.numel()
            yield from ParameterLoader(source, target, scales, config.ue8m0_scales, unusual).work()

    for size in read_ahead(work(), hashes):
        done += size
        if progress is not None and size:
            progress(done, total)
    for name, target in targets.items():
        assert filled[name] == target.numel(), f"{filled[name]} of {target.numel()} elements of {name} were filled"
    if unusual:
        warnings.warn(
            f"{len(unusual)} tensors of scales, the first {short_repr(unusual[0])}, hold values that are no powers of two; "
            "expected powers of two, as scale_fmt is 'ue8m0' in config.json: they are used as they are",
            stacklevel=3,
        )


def place(parameter: torch.Tensor, spec: TensorSpec, row: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the part of a parameter (or of its scales) that a tensor fills."""
    stacked = parameter if spec.expert is None else parameter[spec.expert]
    part = stacked[row : row + shape[0]]
    assert part.shape == shape, f"{spec.parameter} is {list(part.shape)}; expected {list(shape)} for {spec.name}"
    return part
