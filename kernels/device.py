"""The only place that asks what the hardware is."""

from functools import cache

import torch


def check_device(name: str) -> str:
    """`name`, if this program runs on such a device and it is here; else a ValueError."""
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise ValueError(f"device is {name!r}, expected cpu, cuda or cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device is {name!r}, but torch {torch.__version__} sees {torch.cuda.device_count()} CUDA GPUs here"
        )
    return name


@cache
def is_hopper(device: torch.device) -> bool:
    """Whether compiled sm_90a kernels run on this device (compute capability 9.0: H100, H200, H800, H20)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


@cache
def describe(device: torch.device) -> str:
    """The device in words, for error messages and the start-up log."""
    if device.type != "cuda":
        return f"{device.type} ({torch.get_num_threads()} threads)"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, sm_{properties.major}{properties.minor}, {properties.total_memory / 2**30:.0f} GiB"
