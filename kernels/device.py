"""What the Python code of the kernels asks about the hardware."""

from functools import cache

import torch

from .errors import ArgumentError


def check_device(name: str) -> str:
    """Return `name` if it is cpu, or a CUDA GPU of this machine; else raise a ValueError."""
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise ArgumentError("device", f"{name!r}", "cpu, cuda or cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ArgumentError(
            "device",
            f"{name!r}",
            f"a GPU of this machine, of which torch {torch.__version__} sees {torch.cuda.device_count()}",
        )
    return name


@cache
def is_hopper(device: torch.device) -> bool:
    """Return whether compiled sm_90a kernels run on this device (compute capability 9.0: H100, H200, H800, H20)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


@cache
def multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU."""
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


@cache
def describe(device: torch.device) -> str:
    """Describe the device for error messages and the start-up log."""
    if device.type != "cuda":
        threads = torch.get_num_threads()
        return f"{device.type} ({threads} {'thread' if threads == 1 else 'threads'})"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, sm_{properties.major}{properties.minor}, {properties.total_memory / 2**30:.0f} GiB"
