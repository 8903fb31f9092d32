"""On a GPU, traces and answers of this engine are right: in every precision and backend, with one sequence or 32 at a time."""

from pathlib import Path

import pytest
from golden.servers import SIZES, serving

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.compare import compare
from deepseek_v32.inference.conformance.golden import load
from deepseek_v32.inference.conformance.probe import Probe
from deepseek_v32.inference.conformance.probe_client import Client
from deepseek_v32.inference.conformance.trace_file import Trace
from deepseek_v32.inference.conformance.verdict import judge

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
ENGINES = [
    ("exact", "auto"),
    ("bf16", "auto"),
    ("bf16", "tile"),
    ("bf16", "reference"),
    ("fp8", "auto"),
    ("fp8", "cuda"),
    ("fp8", "tile"),
    ("fp8", "reference"),
]


@pytest.fixture(scope="module")
def right() -> tuple[list[int], Trace]:
    llm = LLM(device="cpu", precision="exact", page_count=16)
    assert llm.tokenizer is not None
    text = (ROOT / "docs" / "dsa.md").read_text(encoding="utf-8")
    tokens = list(llm.tokenizer.encode_prompt(text))[:400]
    return tokens, llm.trace(tokens)


@pytest.mark.parametrize("chunk", [None, 150])
@pytest.mark.parametrize("precision, backend", ENGINES)
def test_a_trace_agrees_with_the_exact_one(precision, backend, chunk, right):
    tokens, trace = right
    llm = LLM(device="cuda", precision=precision, backend=backend, page_count=16)
    report = compare(trace, llm.trace(tokens, chunk=chunk))
    assert report.equal, (report.first, report.diagnoses)


@pytest.mark.parametrize("sequences", [1, 32])
@pytest.mark.parametrize("precision, backend", ENGINES)
def test_a_server_is_right(precision, backend, sequences):
    golden = load("demo")
    llm = LLM(device="cuda", precision=precision, backend=backend, max_sequences=sequences, **SIZES)
    with serving(llm) as address:
        verdict = judge(golden, Probe(Client(address, timeout=100)).run(golden.items))
    print(precision, backend, sequences, verdict.kind, dict(verdict.deviations), verdict.fields)
    assert verdict.kind == "right" and verdict.sparse, verdict
