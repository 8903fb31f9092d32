"""`deepseek-v32 doctor`: versions, devices, the implementation of every operation, and the problems of a checkpoint."""

import importlib.metadata
import json
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import BackendOption, DeviceOption, PrecisionOption, TensorParallelOption
from .terminal import visible, wrapped

if TYPE_CHECKING:
    from ...model.config import Precision
    from .checkpoint_check import CheckpointFindings, MemoryRow

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "tilelang",
    "apache-tvm-ffi",
    "nvidia-cutlass",
    "gradio",
)


def doctor(
    model: Annotated[
        Path | None,
        typer.Option("--model", help="Checkpoint directory to check: its headers and settings, not its weights."),
    ] = None,
    gpu_memory: Annotated[
        float | None,
        typer.Option(
            "--gpu-memory",
            min=1,
            metavar="GIB",
            help="Memory of each GPU. Default: that of this machine's GPU, or of an H200.",
        ),
    ] = None,
    device: DeviceOption = None,
    backend: BackendOption = "auto",
    precision: PrecisionOption = None,
    tensor_parallel_size: TensorParallelOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print versions, devices and the implementation chosen for every operation; with --model, check a checkpoint.

    The exit code is 1 if the checkpoint has a problem, or fits nowhere.
    """
    from . import checkpoint_check  # torch, which --help does not wait for

    report = examine(device, backend)
    found, rows, offload = None, [], None
    if model is not None:
        found = checkpoint_check.check_checkpoint(model, tensor_parallel_size or 1)
        rows = _memory(found, tensor_parallel_size, precision, gpu_memory)
        parts = [asdict(each) for each in found.findings]
        report |= {
            "checkpoint": {"directory": str(found.directory), "parts": parts, "problems": found.problems},
            "memory": [asdict(row) | {"fits": row.fits} for row in rows],
        }
        if found.config is not None:
            offload = checkpoint_check.offload_speed(found, precision, report["device"], tensor_parallel_size or 1)
            report["offload"] = asdict(offload)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        lines = show(report)
        if found is not None:
            lines += ["", *checkpoint_check.checkpoint_lines(found)]
            if found.config is not None:
                lines += ["", *checkpoint_check.memory_lines(rows, found.config)]
                lines += wrapped(f"With --offload experts: {offload}.", 2)
        print(visible("\n".join(lines), sys.stdout))
    if found is not None and (found.problems or not any(row.fits for row in rows)):
        raise typer.Exit(1)


def _memory(
    found: "CheckpointFindings", ranks: int | None, precision: "Precision | None", gigabytes: float | None
) -> "list[MemoryRow]":
    """Compute the memory on `ranks` GPUs, and on this CPU if no option describes GPUs."""
    from . import checkpoint_check

    if found.config is None:
        return []
    memory = None if gigabytes is None else int(gigabytes * checkpoint_check.GIB)
    rows = [checkpoint_check.gpu_row(found.config, ranks or 1, precision, found.mtp, memory)]
    if ranks is None and gigabytes is None:
        rows.append(checkpoint_check.cpu_row(found.config, precision, found.mtp))
    return rows


def examine(device: str | None, backend: str) -> dict[str, Any]:
    """Collect everything that doctor reports, as JSON values. ValueError if there is no such device."""
    import torch

    from ...kernels import device as hardware
    from ...kernels.availability import describe, falls_back, not_deterministic

    chosen = torch.device(hardware.check_device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
    return {
        "deepseek-v32": _version("deepseek-v32"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "nvcc": shutil.which("nvcc"),
        "cpu": {"threads": torch.get_num_threads(), "capability": torch.backends.cpu.get_cpu_capability()},
        "gpus": [hardware.describe(torch.device("cuda", index)) for index in range(torch.cuda.device_count())],
        "device": str(chosen),
        "backend": backend,
        "deterministic": [name for name in ("exact", "bf16", "fp8") if not_deterministic(chosen, name) is None],
        "operations": [
            asdict(choice) | {"falls_back": falls_back(choice.operation, choice.chosen)}
            for choice in describe(chosen, backend)
        ],
    }


def show(report: dict[str, Any]) -> list[str]:
    """Lay the report out: operations with the same implementation share a line, and so do those with the same reason."""
    packages = [f"{name} {version or 'not installed'}" for name, version in report["packages"].items()]
    lines = [
        f"deepseek-v32 {report['deepseek-v32']}, Python {report['python']}, {report['system']}",
        *wrapped(", ".join([*packages, f"nvcc {report['nvcc'] or 'not found'}"])),
        f"CPU: {report['cpu']['threads']} threads, {report['cpu']['capability']}",
        *(f"GPU {index}: {gpu}" for index, gpu in enumerate(report["gpus"])),
        *([] if report["gpus"] else ["GPU: none"]),
        "",
        f"Kernels on {report['device']}, backend {report['backend']}; "
        f"deterministic in {', '.join(report['deterministic']) or 'no precision'}",
    ]
    operations = report["operations"]
    for backend, names in _grouped((each["chosen"], each["operation"]) for each in operations):
        lines += [
            f"  {'nothing' if backend == 'none' else backend} runs {len(names)} operations:",
            *wrapped(", ".join(names)),
        ]
    reasons = [(reason, each["operation"]) for each in operations for reason in each["unsupported_reasons"]]
    for reason, names in _grouped(reasons):
        lines += wrapped(f"{reason}: {len(names)} operations", 2)
    for each in operations:
        if each["falls_back"]:
            lines += wrapped(f"{each['operation']}: {each['falls_back']}", 2)
    return lines


def _grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Group pairs by their first value: (first, all its seconds), in their order."""
    groups: dict[str, list[str]] = {}
    for first, second in pairs:
        groups.setdefault(first, []).append(second)
    return list(groups.items())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
