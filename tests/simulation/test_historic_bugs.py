"""Each bug of historic_bugs.py, seeded into this engine, is found by the schedules that the engine itself passes."""

from collections import Counter

import pytest

from simulation import world
from simulation.historic_bugs import BUGS, Bug
from simulation.schedule import make_schedule

SEEDS = 500  # test_schedules.py runs these, and more, without the bugs
# The engine repairs its books after the failed assertion to which this one leads, and nobody is given anything wrong.
REPAIRED = "sgl-project/sglang#24590"
NOTICED = [bug for bug in BUGS if bug.thread != REPAIRED]


def is_found() -> bool:
    return any(make_schedule(seed).failure() is not None for seed in range(SEEDS))


@pytest.mark.heavy
@pytest.mark.parametrize("bug", BUGS, ids=[bug.thread.partition("/")[2] for bug in BUGS])
def test_a_historic_bug_is_found(bug: Bug) -> None:
    with bug.seeded():
        assert is_found(), bug.what


@pytest.mark.heavy
@pytest.mark.parametrize("bug", NOTICED, ids=[bug.thread.partition("/")[2] for bug in NOTICED])
def test_clients_and_followers_alone_would_notice(monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    """Without a look at pages and caches, by wrong tokens, by requests that do not end, or by ranks that differ."""
    monkeypatch.setattr(world, "check_engine", lambda engine, runner: None)
    with bug.seeded():
        assert is_found(), bug.what


def test_the_bugs_are_thirty_and_distinct() -> None:
    assert len(BUGS) >= 30 and len(NOTICED) == len(BUGS) - 1
    assert max(Counter(bug.thread for bug in BUGS).values()) == 1
    assert max(Counter((str(bug.place), bug.old, bug.new) for bug in BUGS).values()) == 1
    assert sum(not bug.instead for bug in BUGS) >= 20, "bugs of features that this engine has"


def test_a_seeded_bug_is_gone_afterwards() -> None:
    bug = BUGS[0]
    owner, name = bug.place
    before = vars(owner)[name]
    with bug.seeded():
        assert vars(owner)[name] is not before
    assert vars(owner)[name] is before
