"""Each bug of historic_bugs.py, seeded into this engine, is found by the schedules that the engine itself passes."""

import pytest

from simulation import world
from simulation.bug import Bug
from simulation.draft_bugs import DRAFT_BUGS
from simulation.historic_bugs import BUGS, POLICY_BUGS
from simulation.schedule import make_schedule

SEEDS = 500  # test_schedules.py runs these, and more, without the bugs
# The engine repairs its books after the failed assertion to which this one leads, and no one is given anything wrong.
REPAIRED = "sgl-project/sglang#24590"


def check_found(bug: Bug) -> None:
    """A schedule fails with the bug, and passes without it."""
    with bug.seeded():
        seed = next((seed for seed in range(SEEDS) if make_schedule(seed).failure() is not None), None)
    assert seed is not None, bug.what
    assert make_schedule(seed).failure() is None


@pytest.mark.heavy
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.partition("/")[2] for bug in BUGS])
def test_a_historic_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    """Wrong tokens, requests that do not end, or ranks that differ show all bugs but one without a look at pages and caches."""
    if bug.name != REPAIRED:
        monkeypatch.setattr(world, "check_engine", lambda engine, runner: None)
    check_found(bug)


def test_the_bugs_are_thirty_and_distinct() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) == 33 and REPAIRED in [bug.name for bug in BUGS]
    assert sum(not bug.instead for bug in BUGS) >= 20, "bugs of features that this engine has"


@pytest.mark.parametrize("bug", (*BUGS, *POLICY_BUGS, *DRAFT_BUGS), ids=lambda bug: bug.name)
def test_a_bug_replaces_what_the_product_has_and_is_gone_afterwards(bug: Bug) -> None:
    right = vars(bug.owner)[bug.attribute]  # defined here: a subclass or another module would not notice the change
    with bug.seeded():
        assert vars(bug.owner)[bug.attribute] is not right
    assert vars(bug.owner)[bug.attribute] is right
    assert bug.what
