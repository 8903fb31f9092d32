"""`deepseek-v32 doctor`: versions, devices, the implementation of every operation, and the problems of a checkpoint."""

import importlib.metadata
import json
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import BackendOption, DeviceOption, PrecisionOption, TensorParallelOption, option, with_options
from .terminal import visible, wrapped

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


@with_options
def doctor(
    model: Annotated[
        Path | None, option("Checkpoint directory to check: its headers and settings, not its weights.")
    ] = None,
    gpu_memory: Annotated[
        float | None,
        option("Memory of each GPU. Default: that of this machine's GPU, or of an H200.", min=1, metavar="GIB"),
    ] = None,
    device: DeviceOption = None,
    backend: BackendOption = "auto",
    precision: PrecisionOption = None,
    tensor_parallel_size: TensorParallelOption = None,
    as_json: Annotated[bool, option("One JSON object.", "--json")] = False,
) -> None:
    """Print versions, devices and kernels, or check a checkpoint. Says which implementation every operation has.

    The exit code is 1 if the checkpoint has a problem, or fits nowhere, even with --offload experts.
    """
    import torch  # which --help does not wait for

    from ..distributed.launch import check_size
    from ..offload_speed import estimate_offload
    from . import checkpoint_check

    ranks = 1 if tensor_parallel_size is None else tensor_parallel_size
    check_size(ranks)
    report = examine(device, backend)
    lines, fails = show(report), False
    if model is not None:
        found = checkpoint_check.check_checkpoint(model, ranks)
        parts = [asdict(each) for each in found.parts]
        lines += ["", *checkpoint_check.checkpoint_lines(model, found)]
        rows: list[checkpoint_check.MemoryRow] = []
        if (config := found.config) is not None:
            gpu = (config, ranks, precision, found.mtp, int(gpu_memory * checkpoint_check.GIB) if gpu_memory else None)
            with_cpu = tensor_parallel_size is None and gpu_memory is None  # unless an option describes GPUs
            rows = [checkpoint_check.gpu_row(*gpu)]
            if with_cpu:
                rows.append(checkpoint_check.cpu_row(config, precision, found.mtp))
            here, command = torch.device(report["device"]), ""
            if not any(row.fits for row in rows):
                if with_cpu and here.type == "cpu":
                    rows.append(checkpoint_check.cpu_row(config, precision, found.mtp, offload=True))
                else:
                    rows.append(checkpoint_check.gpu_row(*gpu, offload=True))
                if rows[-1].fits:
                    given = {"device": device, "precision": precision, "tensor-parallel-size": tensor_parallel_size}
                    options = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
                    command = f"deepseek-v32 generate --model {model}{options} --offload experts"
            chosen = precision or ("exact" if here.type == "cpu" else config.stored_precision)
            offload = estimate_offload(config, chosen, here, ranks, found.mtp is not None, model)
            report["offload"] = asdict(offload) | ({"command": command} if command else {})
            lines += ["", *checkpoint_check.memory_lines(rows, config)]
            lines += wrapped(f"With --offload experts: {offload}.", 2)
            lines += ["  It runs only so:", f"    {command}"] if command else []
        report["checkpoint"] = {"directory": str(model), "parts": parts, "problems": found.problems}
        report["memory"] = [asdict(row) | {"fits": row.fits} for row in rows]
        fails = bool(found.problems) or not any(row.fits for row in rows)
    print(json.dumps(report, indent=2) if as_json else visible("\n".join(lines), sys.stdout))
    if fails:
        raise typer.Exit(1)


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
