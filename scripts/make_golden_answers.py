"""Make the golden answers of `deepseek-v32 probe`: questions, right answers, their noise, and what seeded bugs change.

    python scripts/make_golden_answers.py                                   # the demo and the wide checkpoint, into the package
    python scripts/make_golden_answers.py --only demo --bugs yarn-missing   # one bug of one of them; all else stays as it is

The right answers are those of exact precision (fp32); tests hold them to transformers. The noise is what the same engine answers
in bf16 and in fp8. The bugs are those of tests/conformance/bugs that declare "http". A bug that changes nothing by five times the
noise is left out, and named. What the wide checkpoint (scripts/make_conformance_checkpoint.py) answers is computed from its narrow
twin, which is the same function.
"""

import argparse
import importlib
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from golden import questions as asked  # type: ignore[import-not-found]
from golden.servers import SIZES, observe  # type: ignore[import-not-found]
from make_conformance_checkpoint import write_twin  # type: ignore[import-not-found]

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance import golden as golden_files
from deepseek_v32.inference.conformance.golden import FIELDS, Golden, Item, KnownBug, aligned, fields_of
from deepseek_v32.inference.conformance.probe import Observation
from deepseek_v32.inference.llm import DEMO

TESTS = Path(__file__).resolve().parent.parent / "tests"
OTHERS = 3  # beside each token of an answer
CHAT = "chat-"  # how the names of those bugs begin that change nothing but the chat format and its parsers
SHOWS = 5  # units of noise that a bug has to change


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("demo", "wide"), help="one of the two (default: both)")
    parser.add_argument(
        "--bugs", nargs="*", help="make these bugs anew, and leave all else as it is (default: make everything)"
    )
    parser.add_argument("--no-bugs", action="store_true", help="make everything but the bugs")
    parser.add_argument("--out", type=Path, default=golden_files.FOLDER, help="folder (default: the package's)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "wide":
            make("demo", DEMO, asked.DEMO, "the demo checkpoint", arguments)
        if arguments.only != "demo":
            twin = Path(folder)
            write_twin(twin)
            make("wide", twin, asked.WIDE, "the wide conformance checkpoint", arguments)
    return 0


def make(name: str, model: Path, sizes: Any, title: str, arguments: argparse.Namespace) -> None:
    began = time.monotonic()
    if arguments.bugs is None:
        golden = right_answers(model, sizes, title)
        golden_files.save(golden, arguments.out, name)
        noise = np.median(golden.noises[-1])
        print(
            f"{name}: {len(golden.items)} questions, {len(golden.logprobs)} log-probabilities, noise {noise:.3f}",
            flush=True,
        )
    else:
        golden = golden_files.load(name, arguments.out)
    for bug in [] if arguments.no_bugs else seeded(arguments.bugs):
        known = see(golden, model, bug)
        others = [each for each in golden.bugs if each.name != bug.name]
        bugs = sorted((*others, *([known] if known else [])), key=lambda each: each.name)
        golden = replace(golden, bugs=tuple(bugs))
        golden_files.save(golden, arguments.out, name)
    print(f"{name}: {len(golden.bugs)} bugs, {time.monotonic() - began:.0f} s", flush=True)


def right_answers(model: Path, sizes: Any, title: str) -> Golden:
    """Golden answers without bugs."""
    items = tuple(asked.questions(LLM(model, device="cpu", precision="exact", **SIZES), sizes))
    right = observe(model, items, "exact")
    items = tuple(answered(item, right) for item in items)
    rounded = [observe(model, items, precision) for precision in ("bf16", "fp8")]
    items = tuple(stable(item, rounded) for item in items)
    logprobs = changes(items, right)
    return Golden(title, items, logprobs, np.array([changes(items, seen) for seen in rounded]), ())


def answered(item: Item, seen: Observation) -> Item:
    reply = seen.replies[item.name]
    fields = {name: getattr(reply, name) for name in FIELDS if getattr(reply, name) is not None}
    if item.group == "score":
        return replace(item, answer=reply.tokens)
    others = []
    for token, top in zip(reply.tokens, reply.top, strict=True):
        likeliest = sorted(top, key=lambda other: -top[other])
        others.append(tuple(other for other in likeliest if other != token)[:OTHERS])
    return replace(item, answer=reply.tokens, others=tuple(others), fields=fields)


def stable(item: Item, rounded: list[Observation]) -> Item:
    """The item without fields that rounding changes."""
    fields = item.fields
    return replace(
        item,
        fields={n: v for n, v in fields.items() if all(getattr(seen.replies[item.name], n) == v for seen in rounded)},
    )


def changes(items: tuple[Item, ...], seen: Observation) -> np.ndarray:
    return np.concatenate([aligned(item, seen.replies.get(item.name)) for item in items])


def seeded(wanted: list[str] | None) -> list[Any]:
    sys.path.insert(0, str(TESTS))
    bugs = [bug for bug in importlib.import_module("conformance.bugs").BUGS.values() if "http" in bug.shows]
    names = {bug.name for bug in bugs}
    if wanted and (unknown := set(wanted) - names):
        raise SystemExit(f"--bugs is {' '.join(sorted(unknown))}; expected some of {' '.join(sorted(names))}")
    return [bug for bug in bugs if wanted is None or bug.name in wanted]


def see(golden: Golden, model: Path, bug: Any) -> KnownBug | None:
    """What a bug changes, in the most exact precision in which it shows; None if it does not show."""
    began = time.monotonic()
    precision = next(each for each in ("exact", "bf16", "fp8") if each in bug.precisions)
    about_chat = bug.name.startswith(CHAT)
    with bug.seed():
        seen = observe(model, [item for item in golden.items if (item.group == "chat") == about_chat], precision)
    change = changes(golden.items, seen) - golden.logprobs
    if about_chat:  # the rest is as it should be
        lengths = [item.size for item in golden.items]
        change[np.repeat([item.group != "chat" for item in golden.items], lengths)] = 0
    said = {item.name: fields_of(item, seen.replies.get(item.name)) for item in golden.items}
    fields = {
        item.name: different
        for item in golden.items
        if (different := {name: value for name, value in said[item.name].items() if value != item.fields[name]})
    }
    largest = float(np.nanmax(np.abs(change) / golden.noise_of(golden.logprobs + change)))
    line = f"  {bug.name}: {largest:.0f} times the noise, {len(fields)} items say something else"
    print(f"{line}, {time.monotonic() - began:.0f} s", flush=True)
    if largest < SHOWS and not fields:
        print(f"  {bug.name} does not show here and is left out", flush=True)
        return None
    groups = dict.fromkeys(item.group for item in golden.items if about_chat or item.group != "chat")
    return KnownBug(bug.name, bug.reference, change, fields, tuple(groups))


if __name__ == "__main__":
    sys.exit(main())
