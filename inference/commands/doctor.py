"""`deepseek-v32 doctor`: versions, devices, and what would run for every operation."""

import importlib.metadata
import json
import platform
import shutil
from dataclasses import asdict
from typing import Annotated, Any

import typer

from .options import BackendOption, DeviceOption

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
    device: DeviceOption = None,
    backend: BackendOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print versions, devices and the implementation chosen for every operation."""
    report = examine(device, backend)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        show(report)


def examine(device: str | None, backend: str) -> dict[str, Any]:
    """Everything that doctor reports, as JSON values. ValueError if there is no such device."""
    import torch

    from ...kernels import device as hardware
    from ...kernels.registry import describe, falls_back

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
        "operations": [
            asdict(choice) | {"falls_back": falls_back(choice.operation, choice.chosen)}
            for choice in describe(chosen, backend)
        ],
    }


def show(report: dict[str, Any]) -> None:
    """Print the report as a table."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]deepseek-v32[/bold] {report['deepseek-v32']}, Python {report['python']}, {report['system']}")
    for name, version in report["packages"].items():
        console.print(f"  {name} {version or '[dim]not installed[/dim]'}")
    console.print(f"  nvcc {report['nvcc'] or '[dim]not found[/dim]'}")
    console.print(f"CPU: {report['cpu']['threads']} threads, {report['cpu']['capability']}")
    for index, gpu in enumerate(report["gpus"]):
        console.print(f"GPU {index}: {gpu}")
    if not report["gpus"]:
        console.print("GPU: none")
    table = Table(title=f"Kernels on {report['device']}, backend {report['backend']}", title_justify="left")
    for heading in ("operation", "runs", "could run", "why not the others"):
        table.add_column(heading, overflow="fold")
    for choice in report["operations"]:
        table.add_row(
            choice["operation"],
            "; ".join(filter(None, (choice["chosen"], choice["falls_back"]))),
            ", ".join(choice["available"]),
            "; ".join(choice["unsupported_reasons"]),
        )
    console.print(table)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
