"""The CUDA kernels other than attention's under compute-sanitizer; attention's are in test_attention_sanitizers.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer on the PATH")
def test_no_access_out_of_bounds() -> None:
    """A small call of every kernel. torch's caching of memory is off, because it would hide accesses past the end."""
    program = Path(__file__).parents[1] / "support" / "small_kernels.py"
    command = ["compute-sanitizer", "--tool", "memcheck", sys.executable, str(program)]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "ERROR SUMMARY: 0 errors" in result.stdout, result.stdout[-4000:] + result.stderr[-2000:]
