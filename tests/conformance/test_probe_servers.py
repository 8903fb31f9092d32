"""The probe against running servers: right ones are right, whoever wrote them, and one with a bug is told its name."""

from collections.abc import Callable, Collection
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from make_conformance_checkpoint import write_twin, write_wide
from trace_transformers import load as load_transformers
from trace_transformers import modeling

from conformance.verdicts import in_short, probed, probed_in_batches, room
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import Golden, load
from deepseek_v32.inference.conformance.verdict import Verdict
from deepseek_v32.inference.engine.scheduling.pace import UNBOUNDED
from deepseek_v32.inference.llm import DEMO
from golden.bugs import BUGS
from golden.servers import PLAIN, SIZES, serving
from golden.tables import counted
from support.answer_server import serving_answers
from support.golden_slices import only
from support.transformers_server import Answerer

SOME = ("score-120", "decode-250", "decode-450", "chat-system", "chat-thinking", "batch-180", "batch-260")
WHOLE = pytest.mark.slow


def asked(names: Collection[str], checkpoint: str = "demo") -> Golden:
    """Return all golden answers, or only some items'."""
    return only(load(checkpoint), names) if names else load(checkpoint)


def described(names: Collection[str]) -> str:
    return "all questions" if not names else f"{len(names)} questions"


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
def test_this_engine_is_right(names, options, evidence):
    with serving(LLM(device="cpu", **SIZES, **options)) as address:
        verdict = probed(address, asked(names))
    case = ", ".join(f"{name} {value}" for name, value in options.items())
    evidence("right, HTTP", f"this engine on a CPU, demo, {case}, {described(names)}", **in_short(verdict))
    assert verdict.kind == "right" and verdict.sparse is not False, verdict


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["exact", "bf16", "fp8"])
def test_this_engine_is_right_in_batches_of_32(precision, evidence):
    verdict = probed_in_batches(
        LLM(device="cpu", precision=precision, max_sequences=32, **SIZES), load("demo"), sequences=32
    )
    evidence("right, HTTP", f"this engine on a CPU, demo, precision {precision}, 32 at a time", **in_short(verdict))
    assert verdict.kind == "right" and verdict.sparse, verdict


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["exact", "bf16", "fp8"])
def test_the_wide_checkpoint_is_right(precision, tmp_path, evidence):
    """The wide checkpoint, with all its heads, gives its narrow twin's golden answers."""
    write_wide(tmp_path)
    with serving(LLM(tmp_path, device="cpu", precision=precision, **SIZES)) as address:
        verdict = probed(address, load("wide"))
    evidence("right, HTTP", f"this engine on a CPU, wide, precision {precision}", **in_short(verdict))
    assert verdict.kind == "right" and verdict.sparse, verdict


@pytest.mark.heavy
@pytest.mark.parametrize(
    "checkpoint, names, dtype",
    [
        ("demo", SOME[:4], torch.float32),
        pytest.param("demo", (), torch.float32, marks=WHOLE),
        pytest.param("demo", (), torch.bfloat16, marks=WHOLE),
        pytest.param("wide", (), torch.float32, marks=WHOLE),
        pytest.param("wide", (), torch.bfloat16, marks=WHOLE),
    ],
    ids=["demo, some", "demo, all", "demo, all, bf16", "wide, all", "wide, all, bf16"],
)
def test_transformers_is_right(checkpoint, names, dtype, tmp_path, evidence):
    """The wide checkpoint is tested through its narrow twin."""
    model = DEMO
    if checkpoint == "wide":
        write_twin(model := tmp_path)
    with serving_answers(Answerer(load_transformers(model, dtype))) as address:
        verdict = probed(address, asked(names, checkpoint))
    kind = str(dtype).removeprefix("torch.")
    evidence("right, HTTP", f"transformers in {kind}, {checkpoint}, {described(names)}", **in_short(verdict))
    assert verdict.kind == "right", verdict


def interleaved(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **named: Any) -> Any:
    """Transformers' rotation of index queries and keys, with the wrong pairs (2i, 2i + 1)."""
    cos, sin = (each.chunk(2, -1)[0].unsqueeze(named.get("unsqueeze_dim", 1)) for each in (cos, sin))
    pairs = [(x[..., 0::2], x[..., 1::2]) for x in (q, k)]
    return tuple(torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2) for a, b in pairs)


IN_TRANSFORMERS = {
    "index-rope-interleaved": (modeling, "apply_rotary_pos_emb", interleaved),
    "mla-rope-half-split": (modeling, "apply_rotary_pos_emb_interleave", modeling.apply_rotary_pos_emb),
    "relu-missing": (torch.nn.functional, "relu", lambda x: x),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_TRANSFORMERS)
def test_a_bug_in_transformers_is_named(name, evidence):
    """A bug in another engine's own code is named, although the known answers come from this engine."""
    with patch.object(*IN_TRANSFORMERS[name]), serving_answers(Answerer(load_transformers(DEMO))) as address:
        verdict = probed(address, load("demo"))
    evidence("HTTP, transformers", f"{name}, transformers in float32", bug=name, **in_short(verdict))
    is_named(name, verdict)


ON_THE_DEMO = sorted(counted(load("demo")))
ON_THE_WIDE = sorted(counted(load("wide")) - set(ON_THE_DEMO))
ON_NEITHER = sorted({name for name, bug in BUGS.items() if "http" in bug.shows} - {*ON_THE_DEMO, *ON_THE_WIDE})


def verdict_of(name: str, golden: Golden, model: Path, evidence: Callable[..., None], row: str) -> Verdict:
    """Probe the bug in bf16 if it shows there too; the known answers are from exact precision."""
    precision = next(each for each in ("bf16", "exact", "fp8") if each in BUGS[name].precisions)
    with BUGS[name].seed(), serving(LLM(model, device="cpu", precision=precision, **PLAIN), UNBOUNDED) as address:
        verdict = probed(address, golden)
    evidence(row, f"{name}, {precision}", bug=name, **in_short(verdict))
    return verdict


def is_named(name: str, verdict: Verdict) -> None:
    assert verdict.kind == "bug" and name in [match.name for match in verdict.matches[: verdict.named]], verdict
    assert verdict.named <= 2


# By bug: groups of which two questions tell it from all others. Else one answer that several bugs change alike outweighs the rest.
TELLING = {"index-rope-interleaved": ("score", "decode"), "chat-thinking-mark-missing": ("chat",)}


def telling(name: str) -> tuple[str, ...]:
    """The two questions that tell a bug best. Which they are depends on the weights."""
    golden = load("demo")
    pairs = combinations([item.name for item in golden.items if item.group in TELLING[name]], 2)
    return max(pairs, key=lambda pair: room(only(golden, pair), name))


@pytest.mark.parametrize("name", TELLING)
def test_few_questions_leave_no_doubt(name):
    """From processor to processor, similarities of other bugs were seen to change by 0.1."""
    assert room(asked(telling(name)), name) > 0.5


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name, few",
    [
        *(pytest.param(name, True, id=name) for name in TELLING),
        *(pytest.param(name, False, marks=WHOLE, id=f"{name}, all") for name in ON_THE_DEMO),
    ],
)
def test_a_bug_is_named(name, few, evidence):
    row = "HTTP, some questions" if few else "HTTP, demo"
    is_named(name, verdict_of(name, asked(telling(name) if few else ()), DEMO, evidence, row))


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_THE_WIDE)
def test_a_bug_is_named_on_the_wide_checkpoint(name, tmp_path, evidence):
    """Bugs that do not count on the demo are named here. The twin computes the same function in a quarter of the time."""
    write_twin(tmp_path)
    is_named(name, verdict_of(name, load("wide"), tmp_path, evidence, "HTTP, wide"))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["exact", "bf16", "fp8"])
def test_a_bug_that_is_dense_attention_is_told_so_on_the_demo(precision, evidence):
    """On the demo dense attention is within each token's noise, and still named."""
    with BUGS["dense-attention"].seed(), serving(LLM(device="cpu", precision=precision, **PLAIN), UNBOUNDED) as address:
        verdict = probed(address, load("demo"))
    evidence("HTTP, dense", f"dense-attention, {precision}", bug="dense-attention", **in_short(verdict))
    assert verdict.sparse is False and verdict.kind == "bug", verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_NEITHER)
def test_a_bug_that_does_not_count_is_given_no_other_name(name, evidence):
    verdict = verdict_of(name, load("demo"), DEMO, evidence, "HTTP, counts on neither")
    assert not verdict.named or name in [match.name for match in verdict.matches[: verdict.named]], verdict
