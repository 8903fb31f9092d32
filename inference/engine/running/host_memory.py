"""Memory of the host that a device reaches, and tensors over memory that they do not own."""

from types import SimpleNamespace

import torch


def pinned(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host, in memory that the device can reach."""
    if device.type != "cuda":
        return torch.empty(shape, dtype=dtype)
    with torch.cuda.device(device):  # which the memory then belongs to
        return torch.empty(shape, dtype=dtype, pin_memory=True)


def seen_by(device: torch.device, host: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a tensor of the device, whose kernels can write to pinned memory of the host."""
    if device.type != "cuda":
        return host
    seen = same_memory(host, device)
    assert seen.data_ptr() == host.data_ptr(), "pinned memory that belongs to another device"
    return seen


def same_memory(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the same memory as a tensor of a GPU, which does not keep it from being freed."""
    if not tensor.numel():
        return tensor.to(device)
    # The pointers of this interface may be to all that the device can reach.
    interface = {
        "shape": tuple(tensor.shape),
        "strides": tuple(each * tensor.itemsize for each in tensor.stride()),
        "typestr": {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}[tensor.itemsize],
        "data": (tensor.data_ptr(), False),
        "version": 3,
    }
    return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device=device).view(tensor.dtype)
