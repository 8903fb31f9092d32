"""The GPU and the versions that a benchmark ran with."""

import subprocess
import time
from typing import Any

import torch


def describe_machine(device: torch.device) -> dict[str, Any]:
    """JSON values: device, driver and NCCL (of a GPU), torch, CUDA and today's date."""
    machine: dict[str, Any] = {"device": "cpu"}
    if device.type == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        machine = {"device": torch.cuda.get_device_name(device), "driver": driver, "nccl": nccl}
    return machine | {"torch": torch.__version__, "cuda": torch.version.cuda, "date": time.strftime("%Y-%m-%d")}
