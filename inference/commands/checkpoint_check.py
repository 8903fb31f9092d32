"""Checks a checkpoint for `doctor --model`: problems that headers and settings show, and the memory that it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...model.checkpoint.config_json import read_config
from ...model.checkpoint.files import no_directory
from ...model.checkpoint.locate import STATE, converted_tables, find_converted, is_converted, match
from ...model.checkpoint.manifest import CONVERTED, PLAIN, find_manifest
from ...model.checkpoint.safetensors import StoredTensor, is_plain, read_headers
from ...model.config import ModelConfig, Precision
from ...model.metadata import PAGE_SIZE
from ...model.mtp import MTPTables
from ...model.parallel.plan import Plan
from ...model.parallel.shard import parameter_bytes
from ..engine.running.cache import bytes_per_page
from ..engine.sizing import available_memory
from ..params import SamplingParams
from ..text.messages import resolve_chat_format
from ..text.settings import sampling_defaults
from ..text.tokenizer import Tokenizer
from .terminal import size_text, wrapped

MOST_PROBLEMS = 20  # listed for each part; further ones are only counted


@dataclass(frozen=True)
class Finding:
    """One part of a checkpoint: a description, and its problems."""

    part: str
    text: str
    problems: Sequence[str] = ()


class CheckpointFindings(NamedTuple):
    """All parts of a checkpoint; its memory follows from `config` and `mtp`."""

    parts: list[Finding]
    config: ModelConfig | None = None  # None if it cannot be used
    mtp: MTPTables | None = None

    @property
    def problems(self) -> int:
        return sum(len(finding.problems) for finding in self.parts)


def check_checkpoint(directory: Path, ranks: int) -> CheckpointFindings:
    """Read the headers and settings of a checkpoint of either layout, for `ranks` processes that share it."""
    if not directory.is_dir():
        return CheckpointFindings([Finding("directory", "", [no_directory(directory)])])
    others = [_check_tokenizer(directory), _check_manifest(directory)]
    try:
        config = read_config(directory)
        Plan(config, size=ranks)
    except ValueError as error:
        return CheckpointFindings([Finding("config.json", "", [str(error)]), *others])
    kind = "fp8" if config.weight_block is not None else "bf16 or fp32"
    text = (
        f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}, {config.n_routed_experts} routed experts, "
        f"weights in {kind}, context of {config.max_position_embeddings:,} tokens"
    )
    weights, mtp = _check_weights(directory, config, ranks)
    return CheckpointFindings([Finding("config.json", text), weights, *others], config, mtp)


def _check_weights(directory: Path, config: ModelConfig, ranks: int) -> tuple[Finding, MTPTables | None]:
    problems: list[str] = []

    def note(error: ValueError) -> None:
        problems.append(str(error))

    tensors: dict[str, StoredTensor] = {}
    mtp: MTPTables | None = None
    try:
        if is_converted(directory) and not is_plain(directory):
            mtp = converted_tables(directory)
            for rank in range(ranks):
                try:
                    found, _ = find_converted(Plan(config, rank, ranks, mtp), directory, verify_hashes=False)
                except ValueError as error:
                    note(error)
                else:
                    tensors |= {f"{each.weight.file}/{each.weight.name}": each.weight for each in found}
        else:
            if (directory / STATE).exists():
                note(ValueError("is an unfinished conversion; expected a finished one: run the same convert again"))
            tensors = read_headers(directory, note)
            mtp = MTPTables() if f"model.layers.{config.num_hidden_layers}.eh_proj.weight" in tensors else None
            if not problems:  # otherwise all tensors of a missing file would be listed
                match(Plan(config, mtp=mtp), tensors, directory, note)
    except ValueError as error:
        note(error)
    files = len({tensor.file for tensor in tensors.values()})
    size = size_text(sum(tensor.size for tensor in tensors.values()))
    drafts = ", with the MTP layer, which guesses tokens" if mtp is not None else ", without an MTP layer"
    return Finding("weights", f"{len(tensors):,} tensors, files: {files}, {size}{drafts}", problems), mtp


def _check_tokenizer(directory: Path) -> Finding:
    problems: list[str] = []
    text = "none: only token ids can be given to it"
    try:
        tokenizer = Tokenizer.from_directory(directory)
        if tokenizer is not None:
            format_ = resolve_chat_format(tokenizer)
            text = f"{tokenizer.vocab_size:,} ids, chat format {format_}"
    except ValueError as error:
        problems.append(str(error))
    try:
        sampling_defaults(directory, SamplingParams)
        text += "".join(f", {name} {value}" for name, value in sampling_defaults(directory, dict[str, Any]).items())
    except ValueError as error:
        if str(error) not in problems:
            problems.append(str(error))
    return Finding("tokenizer", text, problems)


def _check_manifest(directory: Path) -> Finding:
    problems: list[str] = []
    text = f"none; deepseek-v32 manifest {directory} notes the hashes, which loading then compares"
    try:
        has_one = (directory / (PLAIN if is_plain(directory) else CONVERTED)).exists()
        manifest = find_manifest(directory) if has_one else None
        if manifest is not None:
            text = f"{manifest.path.name}, files of weights: {len(manifest.files)}"
            if "ranks" in manifest.values:
                text += f", converted for {manifest.values['ranks']} ranks"
            manifest.check_others()
            for name in manifest.files:
                size = (directory / name).stat().st_size if (directory / name).is_file() else None
                if size != manifest.files[name].size:
                    came = "missing" if size is None else f"{size} bytes"
                    problems.append(f"{name} is {came}; expected the {manifest.files[name].size} bytes of the manifest")
    except ValueError as error:
        problems.append(str(error))
    return Finding("manifest", text, problems)


def checkpoint_lines(directory: Path, found: CheckpointFindings) -> list[str]:
    lines = [f"Checkpoint {directory}"]
    for finding in found.parts:
        lines += wrapped(f"{finding.part:12} {finding.text or 'cannot be used'}", 2)
        for problem in islice(finding.problems, MOST_PROBLEMS):
            lines += wrapped(f"PROBLEM: {problem}", 4)
        if (rest := len(finding.problems) - MOST_PROBLEMS) > 0:
            lines.append(f"    and {rest} more problems")
    return lines


GPU_GIB = 139.0  # of an H200, as torch counts it: for a machine that has no GPU
GPU_FRACTION = 0.9  # of its memory, as memory_fraction by default
CPU_FRACTION = 0.25  # of the memory that is free, for the caches
GIB = 2**30


@dataclass(frozen=True)
class MemoryRow:
    """One way to run a model. Sizes are in bytes; with several GPUs, they are one GPU's."""

    place: str
    precision: Precision
    memory: int
    weights: int
    bytes_per_token: int  # of all layers' caches, which every GPU holds whole
    tokens: int  # that fit into the caches; 0: the weights do not fit

    @property
    def fits(self) -> bool:
        """Whether it can run at all."""
        return self.tokens >= PAGE_SIZE


def gpu_row(
    config: ModelConfig,
    ranks: int,
    precision: Precision | None,
    mtp: MTPTables | None,
    memory: int | None = None,
    offload: bool = False,
) -> MemoryRow:
    """Compute the row of `ranks` GPUs with `memory` bytes each; by default the memory of this machine's GPU, or of an H200."""
    name = ""
    if memory is None:
        memory = int(GPU_GIB * GIB)
        if torch.cuda.is_available():
            memory, name = torch.cuda.mem_get_info(0)[1], f" ({torch.cuda.get_device_name(0)})"
    chosen = precision or config.stored_precision
    weights = max(parameter_bytes(config, chosen, rank, ranks, mtp, offload) for rank in range(ranks))
    place = f"{ranks} GPU{'s' if ranks > 1 else ''} of {memory / GIB:.0f} GiB{name}"
    return _row(place, config, chosen, mtp, memory, weights, int(GPU_FRACTION * memory) - weights, offload)


def cpu_row(
    config: ModelConfig, precision: Precision | None, mtp: MTPTables | None, offload: bool = False
) -> MemoryRow:
    """Compute the row of this machine's CPU, with the memory that is free now."""
    chosen, memory = precision or "exact", available_memory()
    weights = parameter_bytes(config, chosen, mtp=mtp, offload=offload)
    return _row("this CPU", config, chosen, mtp, memory, weights, int(CPU_FRACTION * (memory - weights)), offload)


def _row(
    place: str,
    config: ModelConfig,
    precision: Precision,
    mtp: MTPTables | None,
    memory: int,
    weights: int,
    budget: int,
    offload: bool,
) -> MemoryRow:
    page = bytes_per_page(config, precision, mtp=mtp is not None)
    pages = max(budget, 0) // page
    if offload:  # experts get most of it
        place, pages = f"{place}, --offload experts", max(pages // 4, min(pages, 1))
    return MemoryRow(place, precision, memory, weights, page // PAGE_SIZE, pages * PAGE_SIZE)


def memory_lines(rows: list[MemoryRow], config: ModelConfig) -> list[str]:
    width = max(len(row.place) for row in rows)
    lines = [f"{'Memory':{width + 2}}  {'in':6}{'weights':>11}{'cache/token':>12}{'tokens fit':>14}{'contexts':>10}"]
    for row in rows:
        contexts = f"{row.tokens / config.max_position_embeddings:,.1f}" if row.fits else ""
        tokens = f"{row.tokens:,}" if row.fits else "none"
        cells = f"{size_text(row.weights):>11}{f'{row.bytes_per_token / 1024:.1f} KiB':>12}{tokens:>14}{contexts:>10}"
        lines.append(f"  {row.place:{width}}  {row.precision:6}{cells}")
    return [*lines, *wrapped("Activations reduce this number.", 2)]
