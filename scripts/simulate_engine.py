"""Simulate the server over a model of integers (tests/simulation), for longer than a test may take.

    python scripts/simulate_engine.py schedules --count 1000000 --jobs 2     # random schedules, seeds 0 to 999,999
    python scripts/simulate_engine.py states --jobs 2                        # all reachable states of 81 small engines

A schedule that breaks a promise is shrunk and printed as a script. The last line is JSON. The exit status is 1 if a promise was
broken. The simulation lives with the tests: this script is the one that puts tests/ on the import path.
"""

import argparse
import gc
import importlib
import json
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

CHUNK = 1000  # schedules


def run_schedules(first: int, end: int) -> tuple[int, list[str]]:
    """How many schedules ran, and the first failure's script."""
    schedule = importlib.import_module("simulation.schedule")
    for seed in range(first, end):
        failure = schedule.make_schedule(seed).failure()
        if failure is not None:
            script = schedule.shrink(schedule.make_schedule(seed)).script()
            return seed - first + 1, [f"# seed {seed}: {failure}\n{script}"]
    return end - first, []


def run_chunk(last: int, deadline: float, first: int) -> tuple[int, list[str]]:
    return (0, []) if time.time() > deadline else run_schedules(first, min(first + CHUNK, last))


def search_space(number: int) -> tuple[dict[str, Any], list[str]]:
    """What the search of one space has counted, and the violation that it ended in."""
    states = importlib.import_module("simulation.search")
    space = states.all_spaces()[number]
    try:
        found = states.search(space)
    except states.Violation as violation:
        return {}, [f"# {space}\n# {violation}"]
    counts = {"states": found.states, "transitions": found.transitions, "preempted": found.preempted}
    return counts, []


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    start, failures, counts = time.time(), [], Counter[str]()
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, initializer=prepare_process) as pool:
        if arguments.what == "schedules":
            last = arguments.first + arguments.count
            chunk = partial(run_chunk, last, start + arguments.seconds)
            for ran, scripts in pool.imap_unordered(chunk, range(arguments.first, last, CHUNK)):
                counts["schedules"] += ran
                failures += scripts
                if counts["schedules"] % 20_000 < CHUNK:
                    print(f"{counts['schedules']} schedules, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
            counts["first_seed"] = arguments.first
        else:
            spaces = importlib.import_module("simulation.search").all_spaces()
            for found, scripts in pool.imap_unordered(search_space, range(len(spaces))):
                counts.update({"spaces": 1, **found})
                failures += scripts
                print(f"{counts['spaces']} spaces, {counts['states']} states", file=sys.stderr, flush=True)
    return {**counts, "seconds": round(time.time() - start), "jobs": arguments.jobs, "failures": failures}


def prepare_process() -> None:
    """One thread each; no log; and the garbage collector leaves PyTorch's million objects alone."""
    importlib.import_module("torch").set_num_threads(1)
    importlib.import_module("simulation.world")
    logging.disable(logging.CRITICAL)
    gc.freeze()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["schedules", "states"])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1_000_000, help="schedules")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no further schedules after this time"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    sys.path.insert(0, tests)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))  # for the pool
    importlib.import_module(
        "simulation.world"
    )  # before the pool does: it would start new processes for those that fail
    result = run(arguments)
    for failure in result["failures"]:
        print(failure, end="\n\n")
    print(json.dumps({**result, "failures": len(result["failures"])}))
    sys.exit(bool(result["failures"]))


if __name__ == "__main__":
    main()
