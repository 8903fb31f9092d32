"""The probe against running servers: right ones are right, whoever wrote them, and one with a bug is told its name."""

from pathlib import Path

import pytest
from golden.bugs import BUGS
from golden.servers import SIZES, serving
from make_conformance_checkpoint import write_twin
from trace_transformers import load as load_transformers

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import Golden, load
from deepseek_v32.inference.conformance.probe import Probe
from deepseek_v32.inference.conformance.probe_client import Client
from deepseek_v32.inference.conformance.verdict import Verdict, judge
from deepseek_v32.inference.llm import DEMO
from support.answer_server import serving_answers
from support.golden_slices import only
from support.transformers_server import Answerer

SOME = ("score-120", "decode-250", "decode-450", "chat-system", "chat-thinking", "batch-180", "batch-260")
WHOLE = pytest.mark.slow


def probed(address: str, names=SOME) -> Verdict:
    golden = load("demo")
    if names:
        golden = only(golden, names)
    return judge(golden, Probe(Client(address, timeout=600)).run(golden.items))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "names, options",
    [
        (SOME, {"precision": "exact"}),
        (SOME, {"precision": "bf16", "backend": "reference"}),
        pytest.param((), {"precision": "exact", "max_sequences": 1}, marks=WHOLE),
        pytest.param((), {"precision": "exact", "max_sequences": 32, "speculative_tokens": 0}, marks=WHOLE),
        pytest.param((), {"precision": "bf16", "max_sequences": 1, "backend": "reference"}, marks=WHOLE),
        pytest.param((), {"precision": "fp8", "max_sequences": 1}, marks=WHOLE),
        pytest.param((), {"precision": "fp8", "backend": "reference", "max_batch_tokens": 192}, marks=WHOLE),
    ],
    ids=str,
)
def test_this_engine_is_right(names, options):
    with serving(LLM(device="cpu", **SIZES, **options)) as address:
        verdict = probed(address, names)
    assert verdict.kind == "right" and verdict.sparse is not False, verdict


@pytest.mark.heavy
@pytest.mark.parametrize("names", [SOME[:4], pytest.param((), marks=WHOLE)], ids=["some", "all"])
def test_transformers_is_right(names):
    with serving_answers(Answerer(load_transformers(DEMO))) as address:
        verdict = probed(address, names)
    assert verdict.kind == "right", verdict


def counted(checkpoint: str) -> list[str]:
    golden = load(checkpoint)
    return [bug.name for bug in golden.bugs if golden.counts(bug)]


ON_THE_DEMO = counted("demo")
ON_THE_WIDE = [name for name in counted("wide") if name not in ON_THE_DEMO]


def is_named(name: str, golden: Golden, model: Path) -> None:
    """In bf16, while the known answers are those of exact precision, if the bug shows in both."""
    precision = next(each for each in ("bf16", "exact", "fp8") if each in BUGS[name].precisions)
    with BUGS[name].seed(), serving(LLM(model, device="cpu", precision=precision, **SIZES)) as address:
        verdict = judge(golden, Probe(Client(address, timeout=600)).run(golden.items))
    assert verdict.kind == "bug" and name in [match.name for match in verdict.matches[: verdict.named]], verdict
    assert verdict.named <= 2


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name, names",
    [
        ("index-rope-interleaved", ("score-700", "decode-450")),
        ("chat-thinking-mark-missing", ("chat-system", "chat-turns")),
        *(pytest.param(name, (), marks=WHOLE, id=f"{name}, all") for name in ON_THE_DEMO),
    ],
)
def test_a_bug_is_named(name, names):
    golden = load("demo")
    is_named(name, only(golden, names) if names else golden, DEMO)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_THE_WIDE)
def test_a_bug_is_named_on_the_wide_checkpoint(name, tmp_path):
    """Those that do not count on the demo. The twin computes the same function in a quarter of the time."""
    write_twin(tmp_path)
    is_named(name, load("wide"), tmp_path)
