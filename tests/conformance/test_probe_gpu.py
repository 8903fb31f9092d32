"""On a GPU this engine is right in every precision, with every backend, one sequence at a time and 32 together."""

import pytest
from golden.servers import SIZES, serving

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import load
from deepseek_v32.inference.conformance.probe import Probe
from deepseek_v32.inference.conformance.probe_client import Client
from deepseek_v32.inference.conformance.verdict import judge

SERVERS = [
    (precision, backend, sequences)
    for precision in ("exact", "bf16", "fp8")
    for backend in ("auto", "reference")
    for sequences in (1, 32)
]
# Both backends of compiled kernels are complete in fp8, so that one of them alone can be preferred.
SERVERS += [("fp8", backend, sequences) for backend in ("cuda", "tile") for sequences in (1, 32)]


@pytest.mark.gpu
@pytest.mark.heavy
@pytest.mark.parametrize("precision, backend, sequences", SERVERS)
def test_this_engine_is_right_on_a_gpu(precision, backend, sequences):
    golden = load("demo")
    options = {"precision": precision, "backend": backend, "max_sequences": sequences}
    with serving(LLM(device="cuda", **SIZES, **options)) as address:
        verdict = judge(golden, Probe(Client(address, timeout=600)).run(golden.items))
    assert verdict.kind == "right" and verdict.sparse, verdict
