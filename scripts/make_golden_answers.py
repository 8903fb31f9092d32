"""Make the golden answers of `deepseek-v32 probe`: questions, right answers, their noise, and what seeded bugs change.

    python scripts/make_golden_answers.py                                   # the demo and the wide checkpoint, into the package
    python scripts/make_golden_answers.py --only demo --bugs yarn-missing   # one bug of one of them; all else stays as it is

With new weights in model/demo the first command is all there is to do: it also writes the numbers of docs/conformance.md that come
from golden files. What the tests see of them is another script's (conformance_table.py).

Questions are those that right engines answer alike and by far, however they round (tests/golden/certainty.py).
The right answers are made in exact precision (fp32); tests hold them to transformers. The noise is what the same engine answers
in bf16 and in fp8, and right implementations that round in other ways (tests/golden/right_engines.py). The bugs are the ones of
tests/golden/bugs that declare "http". One that changes nothing by SHOWS times the noise is left out; one counts if it changes an
answer, or a log-probability by more than ten times the noise of all right engines.
What the wide checkpoint (scripts/make_conformance_checkpoint.py) answers is computed from its narrow twin, the same function.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deepseek_v32.inference.conformance import golden as golden_files
from deepseek_v32.inference.conformance.golden import Golden, Item
from deepseek_v32.inference.conformance.probe import Observation
from deepseek_v32.inference.conformance.verdict import judge
from deepseek_v32.inference.llm import DEMO

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the campaigns and golden answers are tests' own

from make_conformance_checkpoint import write_twin

from golden import questions as asked
from golden import store
from golden.answers import (
    RIGHT,
    answered,
    ask,
    golden_of,
    known_bug,
    logprobs_of,
    precision_of,
)
from golden.bugs import BUGS
from golden.certainty import jury
from golden.processes import Processes
from golden.servers import observe
from golden.tables import DOCUMENT, bug_tables, cost, put

SHOWS = 5  # units of the noise of engines that round as the one with the bug: least change of a bug that is stored


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("demo", "wide"), help="one of the two (default: both)")
    parser.add_argument(
        "--bugs", nargs="*", help="make these bugs anew, and leave all else as it is (default: make everything)"
    )
    parser.add_argument(
        "--demo", type=Path, default=DEMO, help="checkpoint directory of the demo (default: the package's)"
    )
    parser.add_argument(
        "--choose", type=int, metavar="N", help="compare the first N texts of each length, and write nothing"
    )
    parser.add_argument("--out", type=Path, default=golden_files.FOLDER, help="folder (default: the package's)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at a time (default: one a core)")
    arguments = parser.parse_args()
    shown = sorted(name for name, bug in BUGS.items() if "http" in bug.shows)
    if unknown := sorted(set(arguments.bugs or ()) - set(shown)):
        parser.error(f"--bugs is {' '.join(unknown)}; expected some of {' '.join(shown)}")
    bugs = shown if arguments.bugs is None else sorted(set(arguments.bugs))
    pool, began = Processes(arguments.processes), time.monotonic()
    if arguments.choose:
        return choose(arguments.demo, arguments.choose, pool)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = {
            "demo": Checkpoint("the demo checkpoint", arguments.demo, asked.DEMO),
            "wide": Checkpoint("the wide conformance checkpoint", Path(folder), asked.WIDE),
        }
        names = [arguments.only] if arguments.only else list(checkpoints)
        if "wide" in names:
            write_twin(Path(folder), arguments.demo)
        found = answers(checkpoints, names, pool) if arguments.bugs is None else {}
        for name in names:
            make(name, checkpoints[name], found.get(name), arguments.out, bugs, pool)
    seconds = time.monotonic() - began
    print(f"all done in {seconds:.0f} s; the largest process took {pool.peak / 1e9:.1f} GB")
    if arguments.out == golden_files.FOLDER:
        put(DOCUMENT, bug_tables())
        if arguments.only is None and arguments.bugs is None:
            put(DOCUMENT, cost(seconds, arguments.processes, pool.peak))
    return 0


@dataclass(frozen=True)
class Checkpoint:
    title: str
    model: Path
    sizes: asked.Sizes


def answers(
    checkpoints: Mapping[str, Checkpoint], names: Sequence[str], pool: Processes
) -> dict[str, tuple[tuple[Item, ...], Observation]]:
    """By checkpoint, its questions with their right answers, and all that the exact engine says to them."""
    parts = {name: asked.parts(checkpoints[name].sizes) for name in names}
    asking = [(name, part) for name in reversed(names) for part in parts[name]]  # the wide checkpoint's take longest
    said = pool.ask("questions", partial(questions, checkpoints), asking)
    items = {name: asked.in_order(item for part in parts[name] for item in said[name, part]) for name in names}
    exact = pool.ask("right answers", partial(right_answers, checkpoints, items), names)
    return {name: (tuple(answered(item, exact[name]) for item in items[name]), exact[name]) for name in names}


def questions(checkpoints: Mapping[str, Checkpoint], asking: tuple[str, asked.Part]) -> list[Item]:
    """A part of a checkpoint's questions."""
    name, part = asking
    return list(asked.questions(jury(checkpoints[name].model), checkpoints[name].sizes, part))


def right_answers(
    checkpoints: Mapping[str, Checkpoint], items: Mapping[str, tuple[Item, ...]], name: str
) -> Observation:
    """What the exact engine says to a checkpoint's questions."""
    return observe(checkpoints[name].model, items[name], "exact")


def make(
    name: str,
    checkpoint: Checkpoint,
    found: tuple[tuple[Item, ...], Observation] | None,
    folder: Path,
    bugs: Sequence[str],
    pool: Processes,
) -> None:
    """Write the golden files of a checkpoint to a folder: with what was found everything anew, without it the bugs."""
    began, of_forward_passes = time.monotonic(), checkpoint.sizes.of_forward_passes
    items = found[0] if found else golden_files.load(name, folder).items
    # The longest first: what a single process still does at the end, the others wait for.
    who = [*(RIGHT if found else ()), *sorted(bugs, key=lambda bug: precision_of(BUGS[bug]) == "exact")]
    said = pool.ask(name, partial(ask, checkpoint.model, items, of_forward_passes), who)
    golden: Golden = (
        golden_of(checkpoint.title, *found, {each: said[each] for each in RIGHT})
        if found
        else golden_files.load(name, folder)
    )
    known = [known_bug(golden, BUGS[bug], of_forward_passes, said[bug]) for bug in bugs]
    kept = [bug for bug in known if bug.fields or shows(golden, bug.change) > SHOWS]
    others = [bug for bug in golden.bugs if bug.name not in bugs]
    left_out = {bug: times for bug, times in golden.left_out.items() if bug not in bugs}
    left_out |= {bug.name: golden.times_the_noise(bug) for bug in known if bug not in kept}
    golden = replace(golden, bugs=tuple(sorted((*others, *kept), key=lambda bug: bug.name)), left_out=left_out)
    store.save(golden, folder, name)
    describe(golden, known, {each: said[each] for each in RIGHT if each in said})
    print(f"{name}: {len(golden.logprobs)} log-probabilities, {time.monotonic() - began:.0f} s", flush=True)


def shows(golden: Golden, change: np.ndarray) -> float:
    """The largest change in units of the noise of engines that round so."""
    return float(np.nanmax(np.abs(change) / golden.noise_of(golden.logprobs + change)))


def choose(model: Path, count: int, pool: Processes) -> int:
    """Print how well texts tell the bugs apart that change least."""
    texts = [(length, number) for length, _ in asked.DEMO.score for number in range(count)]
    for text, found in pool.ask("texts", partial(asked.discrimination, model), texts).items():
        print(f"text {text}: {' '.join(f'{value:.2f}' for value in found)}; {np.prod(found) ** (1 / len(found)):.3f}")
    return 0


def describe(golden: Golden, known: Sequence[Any], right: dict[str, Any]) -> None:
    for who, said in right.items():
        rows = logprobs_of(golden.items, said) if isinstance(said, Observation) else said
        distances = np.abs(rows - golden.logprobs)
        line = f"  {who}: median distance {np.nanmedian(distances):.4f}, largest {np.nanmax(distances):.2f}"
        if isinstance(said, Observation):
            verdict = judge(golden, said)
            line += (
                f"; {verdict.kind}, {', '.join(f'{group} {value:.2f}' for group, value in verdict.deviations.items())}"
            )
        print(line)
    stored = {bug.name for bug in golden.bugs}
    for bug in known:
        mark = "counts" if golden.counts(bug) else "does not count" if bug.name in stored else "does not show, left out"
        times = (
            f"{golden.times_the_noise(bug):.1f} times the noise ({shows(golden, bug.change):.1f} of its precision's)"
        )
        print(f"  {bug.name}: {times}, {len(bug.fields)} items say something else: {mark}")
    print(f"  {len(stored)} bugs stored, {sum(map(golden.counts, golden.bugs))} count")


if __name__ == "__main__":
    sys.exit(main())
