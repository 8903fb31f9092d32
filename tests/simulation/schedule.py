"""Schedules: made from a seed, run, shrunk, and printed as a script."""

import itertools
import logging
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, NamedTuple

from simulation.world import VARIED, Settings, World


class Operation(NamedTuple):
    """A call of a method of World."""

    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        arguments = [f"{name}={value!r}" for name, value in self.arguments.items()]
        if self.name == "meanwhile":  # its second argument is an operation
            arguments[:2] = [repr(self.arguments["points"]), repr(self.arguments["operation"])]
        return f"world.{self.name}({', '.join(arguments)})"


class Schedule(NamedTuple):
    settings: Settings
    operations: tuple[Operation, ...]

    def run(self) -> World:
        """AssertionError, or whatever the product raises, if a promise is broken."""
        world = World(self.settings)
        for operation in self.operations:
            getattr(world, operation.name)(**operation.arguments)
        world.finish()
        return world

    def failure(self) -> str | None:
        """The line that says what went wrong; None if nothing did."""
        try:
            with quiet():
                self.run()
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return None

    def script(self) -> str:
        """A program that repeats it."""
        changed = [
            f"{field.name}={getattr(self.settings, field.name)!r}"
            for field in fields(Settings)
            if getattr(self.settings, field.name) != field.default
        ]
        lines = [
            "# PYTHONPATH=src:tests python this_file.py",
            "from simulation.world import Settings, World",
            "",
            f"world = World(Settings({', '.join(changed)}))",
            *map(str, self.operations),
            "world.finish()",
        ]
        return "\n".join(lines)


@contextmanager
def quiet() -> Iterator[None]:
    """The engine logs every fault that it survives."""
    before = logging.root.manager.disable
    if before < logging.CRITICAL:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        if before < logging.CRITICAL:
            logging.disable(before)


def kind_of(failure: str | None) -> str | None:
    """The line without its numbers."""
    return failure and re.sub(r"\d+", "N", failure)


# How often each operation is chosen.
WEIGHTS = {
    "turn": 60,
    "submit": 22,
    "meanwhile": 6,
    "cancel": 4,
    "close": 1,
    "abort": 1,
    "fail": 4,
    "score": 2,
    "advance": 2,
    "speed": 1,
    "stop": 0.3,
    "follow": 3,
    "read": 3,
    "loop": 2,
}

NAMES, CUMULATIVE = list(WEIGHTS), list(itertools.accumulate(WEIGHTS.values()))
FAULTS = ("forward", "sample", "row", "stage", "draft", "text", "observer", "delivery")


def make_schedule(seed: int) -> Schedule:
    rng = random.Random(seed)
    settings = make_settings(rng)
    return Schedule(settings, tuple(make_operation(rng, settings) for _ in range(rng.randint(10, 60))))


def make_settings(rng: random.Random) -> Settings:
    size, pages = rng.choice((1, 2, 2, 3)), rng.randint(4, 8)
    return Settings(
        pages=pages,
        page_size=size,
        budget=rng.choice((1, 2, 3, 3, 5, 16)),
        sequences=rng.randint(1, 4),
        context=rng.randint(4, min(pages * size, 16)),
        reuse=rng.random() < 0.8,
        ahead=rng.random() < 0.7,
        followers=rng.choice((0, 0, 0, 1, 2)),
        queue=rng.randint(0, 5),
        pause=rng.choice((0.0, 0.0, 0.02)),
        text=rng.random() < 0.25,
        step=rng.choice((0.0, 0.01, 0.02, 0.05)),
        token=rng.choice((0.005, 0.02)),
        drafts=rng.choice((0, 0, 0, 0, 1, 2, 3, 4, VARIED)),
    )


def make_operation(rng: random.Random, settings: Settings) -> Operation:
    [name] = rng.choices(NAMES, cum_weights=CUMULATIVE)
    arguments: dict[str, Any] = {}
    if name == "submit":
        arguments = {"prompt": make_prompt(rng, settings), "max_tokens": rng.randint(1, 10)}
        if rng.random() < 0.3:
            arguments["kind"] = rng.choice(("penalty", "grammar", "random", "stop"))
        if rng.random() < 0.3:
            arguments["asynchronous"] = True
        if rng.random() < 0.15:
            arguments["start"] = rng.randint(0, len(arguments["prompt"]) + 1)
    elif name == "score":
        arguments = {"prompt": make_prompt(rng, settings)}
        if rng.random() < 0.5 and len(arguments["prompt"]) > 1:
            arguments["known"] = rng.randint(1, len(arguments["prompt"]) - 1)
            if rng.random() < 0.5:
                arguments["start"] = rng.randint(0, len(arguments["prompt"]))
    elif name in ("cancel", "close", "abort", "read"):
        arguments = {"client": rng.randint(0, 9)}
    elif name == "follow":
        arguments = {"rank": rng.randint(0, 1)}
    elif name == "fail":
        arguments = {"where": rng.choice(FAULTS), "row": rng.randint(0, 3)}
        if arguments["where"] == "forward" and arguments["row"]:  # in the middle of the pass, or none but a wait
            where, row = (("experts", 0), ("experts", 1), ("stall", settings.pages % 4))[arguments["row"] - 1]
            arguments = {"where": where, "row": row}
    elif name == "advance":
        arguments = {"seconds": rng.choice((0.01, 0.01, 0.05, 40.0))}
    elif name == "speed":
        arguments = {"token": rng.choice((0.0, 0.001, 0.01, 0.1))}
    elif name == "meanwhile":
        other = make_operation(rng, settings)
        if other.name not in ("submit", "cancel", "close", "abort"):  # what other threads do
            other = Operation(rng.choice(("cancel", "abort")), {"client": rng.randint(0, 9)})
        arguments = {"points": rng.randint(1, 4), "operation": other.name, **other.arguments}
    return Operation(name, arguments)


def make_prompt(rng: random.Random, settings: Settings) -> tuple[int, ...]:
    """Prompts that share prefixes: pieces of few patterns, sometimes with another last token."""
    longest = settings.context - 1 if rng.random() < 0.1 else settings.context // 2
    pattern = rng.choice(((0, 1, 2), (0, 1, 1), (2, 0)))
    prompt = [pattern[i % len(pattern)] for i in range(rng.randint(1, longest))]
    if rng.random() < 0.2:
        prompt[-1] = rng.randint(0, 2)
    return tuple(prompt)


def shrink(schedule: Schedule, rounds: int = 20) -> Schedule:
    """A small schedule that fails too: operations are left out, and settings take their defaults, as long as it still fails."""
    what = kind_of(schedule.failure())
    assert what is not None

    def fails(simpler: Schedule) -> bool:
        return kind_of(simpler.failure()) == what

    for _ in range(rounds):
        before = schedule
        count = max(len(schedule.operations) // 2, 1)
        while count:
            at = 0
            while at < len(schedule.operations):
                fewer = schedule.operations[:at] + schedule.operations[at + count :]
                shorter = schedule._replace(operations=fewer)
                if fails(shorter):
                    schedule = shorter
                else:
                    at += count
            count //= 2
        for field in fields(Settings):
            default: dict[str, Any] = {field.name: field.default}
            simpler = schedule._replace(settings=replace(schedule.settings, **default))
            if simpler.settings != schedule.settings and fails(simpler):
                schedule = simpler
        if schedule == before:
            break
    return schedule
