"""Memory of the host to which a GPU's kernels write by themselves, as a tensor for each side."""

from typing import Any

import torch

_TYPES = {torch.int32: "<i4", torch.int64: "<i8"}


def pinned(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of the host, in memory that the device can reach."""
    if device.type != "cuda":
        return torch.empty(shape, dtype=dtype)
    with torch.cuda.device(device):  # which the memory then belongs to
        return torch.empty(shape, dtype=dtype, pin_memory=True)


def seen_by(device: torch.device, host: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor of the device, whose kernels can write to pinned memory of the host."""
    if device.type != "cuda":
        return host
    seen = torch.as_tensor(_HostArray(host), device=device)
    assert seen.data_ptr() == host.data_ptr(), "pinned memory that belongs to another device"
    return seen


class _HostArray:
    """Pinned memory under the CUDA array interface (version 3), whose pointers may be to any memory that the device can reach."""

    def __init__(self, host: torch.Tensor) -> None:
        self._host = host  # kept while the tensor made of this exists

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        shape = tuple(self._host.shape)
        return {
            "shape": shape,
            "typestr": _TYPES[self._host.dtype],
            "data": (self._host.data_ptr(), False),
            "version": 3,
        }
