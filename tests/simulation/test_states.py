"""All reachable states of small engines."""

import pytest

from simulation.historic_bugs import BUGS
from simulation.schedule import quiet
from simulation.search import Violation, search
from simulation.states import Space

# The first two share a page, the second and third need more pages together than there are.
REQUESTS = (((0, 1, 2), 3), ((0, 1), 4), ((0, 1, 2, 0), 3))
GREEDY_FOR_PAGES = (((0, 0), 5), ((1, 1), 5), ((0, 0, 2), 4))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "space",
    [
        pytest.param(Space(REQUESTS, ahead=False), marks=pytest.mark.slow),
        Space(REQUESTS),
        Space(REQUESTS[:2], drafts=2),
        # With drafts it is searched faster.
        pytest.param(Space(GREEDY_FOR_PAGES, faults=False), marks=pytest.mark.slow),
        Space(GREEDY_FOR_PAGES, faults=False, drafts=2),
    ],
    ids=["faults", "faults-ahead", "faults-drafts", "pages-run-out", "pages-run-out-drafts"],
)
def test_no_state_breaks_a_promise(space: Space) -> None:
    with quiet():
        found = search(space)
    assert found.states > 200
    assert {"arrive", "step", "cancel", "preempt"} <= found.taken.keys()
    assert {"forward", "row", "sample"} <= found.taken.keys() or not space.faults
    assert found.preempted or space.requests != GREEDY_FOR_PAGES


def test_a_violation_comes_with_the_shortest_way_there() -> None:
    [bug] = [bug for bug in BUGS if bug.name.endswith("#38355")]
    with bug.seeded(), pytest.raises(Violation) as found:
        search(Space(REQUESTS))
    assert [name for name, _ in found.value.path] == ["arrive", "step", "preempt"]
