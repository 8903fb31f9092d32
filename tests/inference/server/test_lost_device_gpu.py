"""A GPU that a kernel has taken away: the service ends, and says why. In a process of its own, which loses its GPU."""

import subprocess
import sys

import pytest
import torch

from deepseek_v32.kernels.device import is_hopper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and is_hopper(torch.device("cuda", 0))), reason="needs a Hopper GPU"
    ),
]

PROGRAM = """
import torch
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.service.service import Service

service = Service(LLM(device="cuda", precision="fp8", page_count=40, max_model_len=512))
greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
assert len(list(service.stream([5] * 20, greedy))[-1].completion.token_ids) == 8
forward = service.llm.model.forward_with_hidden

def faulty(*arguments):
    torch.zeros(4, device="cuda")[torch.tensor([1 << 40], device="cuda")]  # a failed assertion of a kernel
    return forward(*arguments)

service.llm.engine.runner.drafter.model.forward_with_hidden = service.llm.model.forward = faulty
print(list(service.stream([7] * 30, greedy))[-1].completion.error)
service._thread._thread.join(20)
print(service.stats().failed)
try:
    service.stream([9], greedy)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def test_a_device_that_is_lost_ends_the_service() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    error, failed, refused = done.stdout.splitlines()[-3:]
    assert "device-side assert" in error, done.stdout + done.stderr[-3000:]
    assert failed == "True"
    assert refused.startswith("Busy: the device computes nothing any more; restart the server: ")
    assert "the device computes nothing any more" in done.stderr, "the log says so, too"
