"""Simulate the server over a model of integers (tests/simulation), for longer than a test may take.

    python tests/campaigns/simulate_engine.py schedules --count 1000000 --jobs 2     # random schedules, seeds 0 to 999,999
    python tests/campaigns/simulate_engine.py states --jobs 2                        # all reachable states of 81 small engines

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

SHARE = 250  # schedules that a process runs at a time


def run_schedules(last: int, deadline: float, first: int) -> tuple[dict[str, int], list[str]]:
    """Run a share of the schedules, unless it is too late. Returns how many ran, and the first failure's script."""
    schedule = importlib.import_module("simulation.schedule")
    ran = 0
    for seed in range(first, min(first + SHARE, last)) if time.time() < deadline else ():
        failure = schedule.make_schedule(seed).failure()
        ran += 1
        if failure is not None:
            return {"schedules": ran}, [
                f"# seed {seed}: {failure}\n{schedule.shrink(schedule.make_schedule(seed)).script()}"
            ]
    return {"schedules": ran}, []


def search_space(number: int) -> tuple[dict[str, int], list[str]]:
    """Search one of the spaces. Returns what was counted, and the violation that ended it."""
    search = importlib.import_module("simulation.search")
    space = search.all_spaces()[number]
    try:
        found = search.search(space)
    except search.Violation as violation:
        return {"spaces": 1}, [f"# {space}\n# {violation}"]
    return {"spaces": 1, "states": found.states, "transitions": found.transitions, "preempted": found.preempted}, []


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    start, first, last = time.time(), arguments.first, arguments.first + arguments.count
    work: Any = partial(run_schedules, last, start + arguments.seconds)
    shares = range(first, last, SHARE)
    if arguments.what == "states":
        work, shares = search_space, range(len(importlib.import_module("simulation.search").all_spaces()))
    counts, failures, told = Counter[str](), 0, start
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, initializer=prepare_process) as pool:
        for found, scripts in pool.imap_unordered(work, shares):
            counts.update(found)
            failures += len(scripts)
            for script in scripts:
                print(script, end="\n\n", flush=True)
            if time.time() > told + 20:
                told = time.time()
                print(f"{told - start:.0f} s: {dict(counts)}, failures: {failures}", file=sys.stderr, flush=True)
    return {
        **counts,
        "first_seed": first,
        "seconds": round(time.time() - start),
        "jobs": arguments.jobs,
        "failures": failures,
    }


def prepare_process() -> None:
    """One thread each; no log; and the garbage collector skips PyTorch's million objects."""
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
    tests = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, tests)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))  # for the pool
    # Before the pool does: it would start new processes for those that fail.
    importlib.import_module("simulation.world")
    result = run(arguments)
    print(json.dumps(result))
    sys.exit(bool(result["failures"]))


if __name__ == "__main__":
    main()
