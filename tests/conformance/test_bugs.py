"""The seeded bugs: each changes what the model says, and leaves nothing behind."""

from dataclasses import replace

import pytest
import torch

from conformance.bugs import BUGS
from deepseek_v32.inference import LLM
from deepseek_v32.model.synthetic.checkpoint import TINY, write_checkpoint

CONFIG = replace(
    TINY, num_hidden_layers=2, vocab_size=256, index_topk=48, rms_norm_eps=1e-2, num_nextn_predict_layers=1
)
TOKENS = torch.randint(256, (150,), generator=torch.Generator().manual_seed(1)).tolist()
EFFECT = 1e-2  # least change of a log-probability; the right engines differ by 1e-5 in exact precision


@pytest.fixture(scope="module")
def llms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LLM]:
    found = {}
    for precision, dtype in (("exact", "fp32"), ("fp8", "fp8")):
        directory = tmp_path_factory.mktemp(precision)
        write_checkpoint(directory, CONFIG, dtype)  # type: ignore[arg-type]
        found[precision] = LLM(directory, device="cpu", precision=precision, page_count=16)  # type: ignore[arg-type]
    return found


SHOWN = [bug for bug in BUGS.values() if {"trace", "http"} <= bug.shows]


@pytest.mark.parametrize("bug", SHOWN, ids=lambda bug: bug.name)
def test_a_bug_changes_the_log_probabilities(bug, llms: dict[str, LLM]) -> None:
    for precision in sorted(bug.precisions & llms.keys()):
        llm = llms[precision]
        right = llm.logits(TOKENS).log_softmax(-1)
        with bug.seed():
            wrong = llm.logits(TOKENS).log_softmax(-1)
        assert (right - wrong).abs().max() > EFFECT, precision
        assert torch.equal(right, llm.logits(TOKENS).log_softmax(-1)), "it is gone afterwards"


def test_names_and_references() -> None:
    for name, bug in BUGS.items():
        assert name == bug.name and bug.shows and bug.precisions
        owner, _, number = bug.reference.partition("#")
        assert owner.count("/") == 1 and number.isdecimal()
