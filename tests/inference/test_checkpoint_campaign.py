"""A slice of the campaign of damaged checkpoints, and that it notices a check that is missing."""

import pytest

from campaigns import checkpoint_mutants, checkpoints
from deepseek_v32.model.checkpoint import load, rows
from deepseek_v32.model.checkpoint.manifest import TensorHashes


@pytest.mark.heavy
def test_a_slice():
    result = checkpoints.run(seed=20261122, count=3 * len(checkpoint_mutants.CLASSES))
    assert result["failures"] == []
    assert len(result["by_class"]) >= 20 and all(sum(counts.values()) == 3 for counts in result["by_class"].values())
    assert result["outcomes"]["refused"] > 75


MISSING = {
    "hashes": (TensorHashes, "check", "bit of a weight", "silent"),
    "search for NaN": (load, "check_finite", "NaN in the indexer", "silent"),
    "scales": (rows, "check_scales", "scale of 0 or less", "silent"),
}


@pytest.mark.heavy
@pytest.mark.parametrize(("owner", "check", "name", "outcome"), MISSING.values(), ids=MISSING)
def test_a_missing_check_fails_the_campaign(monkeypatch, owner, check, name, outcome):
    monkeypatch.setattr(checkpoints, "CLASSES", {name: checkpoint_mutants.CLASSES[name]})
    monkeypatch.setattr(owner, check, lambda *arguments: None)
    failures = checkpoints.run(seed=3, count=8)["failures"]
    assert failures and all(name in failure for failure in failures)
    assert any(outcome in failure for failure in failures)


def test_a_traceback_fails_the_campaign(tmp_path, monkeypatch):
    def broken(directory, precision):
        raise KeyError("data_offsets")

    monkeypatch.setattr(checkpoints, "answer", broken)
    assert checkpoints.outcome(tmp_path, "exact", None) == ("traceback", "KeyError: 'data_offsets'")
