"""The seeded bugs: each changes what the model says, and its removal restores the model."""

from collections.abc import Callable

import pytest
import torch

from conformance.small_model import text
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.references import REFERENCES
from deepseek_v32.inference.trace import Trace
from golden.bugs import BUGS
from golden.bugs.bug import Bug

# Least change of a log-probability. Right engines differ by 1e-5 in exact precision; in fp8 the same engine repeats itself.
EFFECT = 1e-2
# Likely mistakes for which no public thread was found.
WITHOUT_THREAD = {"softmax-in-place-of-relu", "window-attention"}
SHOWN = [
    pytest.param(bug, precision, id=f"{bug.name}, {precision}")
    for bug in BUGS.values()
    if {"trace", "http"} <= bug.shows
    for precision in sorted(bug.precisions & {"exact", "fp8"})[:1]
]


@pytest.mark.parametrize("bug, precision", SHOWN)
def test_a_bug_changes_the_log_probabilities(
    bug: Bug, precision: str, right: Callable[[str], tuple[LLM, Trace]]
) -> None:
    llm, trace = right(precision)
    # Both passes have one length: without AVX-512, a row of a product depends on the number of rows.
    before = llm.logits(text(20))
    with bug.seed():
        wrong = llm.logits(text()).log_softmax(-1)
    assert (trace.stages["logits"].log_softmax(-1) - wrong).abs().max() > EFFECT
    assert torch.equal(before, llm.logits(text(20))), "the bug is gone afterwards"


def test_names_and_references() -> None:
    for name, bug in BUGS.items():
        assert name == bug.name and bug.shows and bug.precisions
        with bug.seed():  # raises if what it replaces has moved
            pass
        if name in WITHOUT_THREAD:
            continue
        owner, _, number = REFERENCES[name].partition("#")
        assert owner.count("/") == 1 and number.isdecimal()
