"""Peak memory of loading: the parameters, plus less than twice the largest tensor."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.forked_ranks import run_program
from tiny_model.checkpoint import TINY, write_checkpoint

# One dense MLP with tensors of 33.6 M elements; row chunks (a few MB) are small in comparison.
CONFIG = replace(TINY, hidden_size=4096, intermediate_size=8192, num_hidden_layers=1)
LARGEST = CONFIG.hidden_size * CONFIG.intermediate_size

# Prints the rise of the resident memory's high-water mark during loading, and the bytes of the parameters.
MEASURE = """
import sys
from deepseek_v32.model.checkpoint.load import load_model

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

load_model(sys.argv[1], sys.argv[3])  # the first call also loads code and starts threads
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # resets the high-water mark
before = status("VmRSS")
model = load_model(sys.argv[2], sys.argv[3])
print(status("VmHWM") - before, sum(p.numel() * p.element_size() for p in model.parameters()))
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoints")
    for dtype in ("bf16", "fp32", "fp8"):
        write_checkpoint(directory / dtype, CONFIG, dtype)
        write_checkpoint(directory / f"small {dtype}", TINY, dtype)
    return directory


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's account of a process's memory")
@pytest.mark.parametrize(
    "dtype, precision, width",
    [("fp8", "exact", 4), ("fp32", "bf16", 2), ("bf16", "bf16", 2), ("bf16", "fp8", 1), ("fp8", "fp8", 1)],
)
@pytest.mark.heavy
def test_peak_memory(checkpoints, dtype, precision, width):
    paths = (checkpoints / f"small {dtype}", checkpoints / dtype)
    done = run_program(MEASURE, *paths, precision)
    assert done.code == 0, done.err
    rise, parameters = map(int, done.out.split())
    assert parameters > 3 * LARGEST * width
    assert rise < parameters + 2 * LARGEST * width, f"{rise / 1e6:.0f} MB for {parameters / 1e6:.0f} MB of parameters"
    assert rise > parameters * 0.95  # the measurement sees the parameters
