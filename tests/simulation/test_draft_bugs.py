"""Each mistake of draft_bugs.py is found by the schedules that the engine itself passes."""

import pytest

from simulation.draft_bugs import DRAFT_BUGS
from simulation.historic_bugs import Bug
from simulation.test_historic_bugs import is_found


@pytest.mark.heavy
@pytest.mark.parametrize("bug", DRAFT_BUGS, ids=[bug.thread for bug in DRAFT_BUGS])
def test_a_mistake_in_speculation_is_found(bug: Bug) -> None:
    with bug.seeded():
        assert is_found(), bug.what
