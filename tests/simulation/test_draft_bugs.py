"""Each mistake of draft_bugs.py is found by the schedules that the engine itself passes."""

import pytest

from simulation.bug import Bug
from simulation.draft_bugs import DRAFT_BUGS
from simulation.test_historic_bugs import check_found


@pytest.mark.heavy
@pytest.mark.parametrize("bug", DRAFT_BUGS, ids=[bug.name for bug in DRAFT_BUGS])
def test_a_mistake_in_speculation_is_found(bug: Bug) -> None:
    check_found(bug)


def test_the_mistakes_are_thirteen() -> None:
    assert len({bug.name for bug in DRAFT_BUGS}) == len(DRAFT_BUGS) == 13
