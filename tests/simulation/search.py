"""Visits all reachable states of an engine with a few requests."""

from collections import Counter
from typing import NamedTuple

from simulation.states import Action, Space, State, restore


class Search(NamedTuple):
    """The counts of an exhaustive search."""

    states: int
    transitions: int
    taken: Counter[str]  # transitions by action
    preempted: int  # transitions in which pages ran out, so that the scheduler preempted a request


class Violation(AssertionError):
    """A broken promise, and the shortest known way there."""

    def __init__(self, error: Exception, path: tuple[Action, ...]) -> None:
        super().__init__(f"{error} after {' '.join(f'{name}({number})' for name, number in path)}")
        self.path = path


def search(space: Space) -> Search:
    """Visit all states, breadth first. Raises Violation."""
    first = State(space)
    seen = {first.digest()}
    level: list[tuple[bytes, tuple[Action, ...]]] = [(first.save(), ())]
    transitions, taken, preempted = 0, Counter[str](), 0
    while level:
        following: list[tuple[bytes, tuple[Action, ...]]] = []
        for saved, path in level:
            state = restore(saved)
            actions = list(state.actions())
            for number, action in enumerate(actions):
                state = restore(saved) if number else state
                before = state.engine.scheduler.preemptions
                try:
                    state.take(action)
                    key = state.digest()
                except Exception as error:
                    raise Violation(error, (*path, action)) from error
                if action.name == "step" and space.faults:
                    actions += state.faults()
                transitions += 1
                taken[action.name] += 1
                preempted += action.name != "preempt" and state.engine.scheduler.preemptions > before
                if key not in seen:
                    seen.add(key)
                    following.append((state.save(), (*path, action)))
        level = following
    return Search(len(seen), transitions, taken, preempted)


# Two prompts that share a page, and one with other pages, whose answer ends by itself.
KINDS = (((0, 0), 5), ((0, 0, 2), 4), ((0, 1), 6))


def all_spaces() -> list[Space]:
    """Every order of three requests of KINDS; with steps ahead, without them, and without reuse of pages."""
    return [
        Space((a, b, c), ahead=ahead, reuse=reuse)
        for a in KINDS
        for b in KINDS
        for c in KINDS
        for ahead, reuse in ((True, True), (False, True), (True, False))
    ]
