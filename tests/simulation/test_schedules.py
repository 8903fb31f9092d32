"""Random schedules of the whole server (ten thousand as slow tests), and whether one that fails is shrunk to a readable one."""

import subprocess
import sys
from pathlib import Path

import pytest

from deepseek_v32.inference.engine.scheduling.pages import PagePool
from simulation.bug import Bug
from simulation.historic_bugs import POLICY_BUGS
from simulation.schedule import make_schedule, shrink
from simulation.test_historic_bugs import check_found
from simulation.world import Settings, World

ROOT = Path(__file__).parents[2]
SHARE = 250  # the bugs of historic_bugs.py and draft_bugs.py are all found by the first 251
FAST, ALL = 3 * SHARE, 40 * SHARE


@pytest.mark.heavy
@pytest.mark.parametrize(
    "first",
    [*range(0, FAST, SHARE), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FAST, ALL, SHARE))],
)
def test_no_schedule_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + SHARE):
        schedule = make_schedule(seed)
        failure = schedule.failure()
        assert failure is None, f"seed {seed}: {failure}\n\n{shrink(schedule).script()}"


def test_a_schedule_is_repeated_by_its_seed() -> None:
    one, other = make_schedule(6).run(), make_schedule(6).run()
    assert one.runner.steps == other.runner.steps
    assert [client.error for client in one.clients] == [client.error for client in other.clients]


def test_tokens_that_scoring_has_drained_are_delivered_although_the_service_stops() -> None:
    """Found by a random schedule: they waited for a step that never came."""
    world = World(Settings())
    world.submit((0,), max_tokens=6)
    world.score((0, 1))
    world.turn()
    world.stop()
    world.finish()
    assert world.clients[0].completion is not None and world.clients[0].completion.token_ids


@pytest.mark.heavy
@pytest.mark.parametrize("bug", POLICY_BUGS, ids=[bug.name for bug in POLICY_BUGS])
def test_an_altered_selection_that_leaks_is_found(bug: Bug) -> None:
    check_found(bug)


def keep_evicted(pool: PagePool, page: int) -> None:
    """An evicted page can still be found."""


@pytest.mark.heavy
def test_a_failing_schedule_is_shrunk_to_a_script_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(PagePool, "_forget_key", keep_evicted)
    schedule = next(each for each in map(make_schedule, range(1000)) if each.failure() is not None)
    small = shrink(schedule)
    assert small.failure() is not None
    assert len(small.operations) <= 8
    script = tmp_path / "failing.py"
    patch = "from deepseek_v32.inference.engine.scheduling.pages import PagePool\nPagePool._forget_key = lambda pool, page: None\n"
    script.write_text(patch + small.script())
    paths = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    done = subprocess.run([sys.executable, script], env={"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
