"""On a GPU this engine is right in every precision, with every backend, one sequence at a time and 32 together."""

from pathlib import Path

import pytest
from make_conformance_checkpoint import write_wide

from conformance.verdicts import in_short, probed_in_batches
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import load
from deepseek_v32.inference.llm import DEMO
from golden.servers import SIZES

SERVERS = [
    (checkpoint, precision, backend, sequences)
    for checkpoint in ("demo", "wide")
    for precision, backends in (
        ("exact", ("auto", "reference")),
        ("bf16", ("auto", "reference")),
        # In fp8 both compiled backends are complete, so either can be the only one.
        ("fp8", ("auto", "reference", "cuda", "tile")),
    )
    for backend in backends
    for sequences in (1, 32)
]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wide")
    write_wide(directory)
    return directory


@pytest.mark.gpu
@pytest.mark.heavy
@pytest.mark.parametrize("checkpoint, precision, backend, sequences", SERVERS)
def test_this_engine_is_right_on_a_gpu(checkpoint, precision, backend, sequences, wide, evidence):
    model = DEMO if checkpoint == "demo" else wide
    options = {"precision": precision, "backend": backend, "max_sequences": sequences}
    verdict = probed_in_batches(LLM(model, device="cuda", **SIZES, **options), load(checkpoint), sequences)
    evidence(
        "right, HTTP",
        f"this engine on a GPU, {checkpoint}, {precision}, backend {backend}, {sequences} at a time",
        **in_short(verdict),
    )
    assert verdict.kind == "right" and verdict.sparse, verdict
