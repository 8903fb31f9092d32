"""Whether a device still works after something has failed."""

import torch

from ..fault import first_line


def device_fault(device: torch.device) -> str | None:
    """The error that every call to a GPU now gives, in one line; None if it works. Waits for the GPU.

    Errors like too little memory pass. A kernel that reads a wrong address or fails an assertion ends the process's use of the GPU
    (CUDA Runtime API, cudaErrorIllegalAddress: "the process must be terminated and relaunched").
    """
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except Exception as error:  # of a type that depends on the version of torch
            return first_line(error)
    return None
