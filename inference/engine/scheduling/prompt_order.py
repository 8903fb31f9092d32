"""The order in which a step's time goes to prompts: short remainders first, and nobody starves."""

from collections.abc import Iterable, Sequence

from ...params import Request

# Steps in a row that go to others before a prompt goes first. A long prompt beside a crowd of short ones gets a fifth of the steps.
PATIENCE = 4


def in_turn(started: Sequence[Request], waiting: Iterable[Request]) -> list[Request]:
    """The prompts of running requests (`started`) and of waiting ones, the first to be computed first.

    The shortest remainder goes first, which lets a question pass a long prompt and gives equal prompts their order of arrival. A
    waiting prompt passes a started one only if it is at most half as long. So each one that passes others halves what remains, and
    few long prompts are in progress at a time, however many wait; those with the same beginning wait for its pages.

    The started prompts and the oldest one age: one that got nothing in PATIENCE steps goes first, and among several the one
    that has waited longest. So each of n started prompts advances within PATIENCE + n steps.
    """
    prompts = [*started, *waiting]
    oldest = min((request.id for request in prompts), default=0)

    def key(request: Request) -> tuple[float, ...]:
        if request.skipped >= PATIENCE:
            return 0, -request.skipped, request.id
        if request.pages or request.id == oldest:
            return 1, request.remaining - request.reusable, request.id
        return 1, 2 * (request.remaining - request.reusable), request.id

    return sorted(prompts, key=key)


def count_skipped(started: Sequence[Request], waiting: Sequence[Request], advanced: set[Request]) -> None:
    """After a step is scheduled: the prompts that age and got nothing in it have waited for one more step."""
    oldest = min((request.id for request in (*started, *waiting)), default=0)
    for request in (*started, *waiting):
        ages = bool(request.pages) or request.id == oldest
        request.skipped = request.skipped + 1 if ages and request not in advanced else 0
