"""Do the bits of a request's logits depend on the rest of the batch? Compares requests under load and without it.

    python scripts/check_determinism.py --requests 500 --longest 4096                   # the demo, exact precision
    python scripts/check_determinism.py --precision fp8 --first 100 --seconds 500        # at most this many seconds
    python scripts/check_determinism.py --plain                                          # without the mode: how much differs
    python scripts/check_determinism.py --device cuda --precision bf16 --longest 16384   # on a GPU
    python scripts/check_determinism.py --device cuda --released 4 --longest 4096        # 4 random layers of released dimensions
    python scripts/check_determinism.py --first 3 --stride 8 --results 3.jsonl           # one of 8 processes, which may be ended
    python scripts/check_determinism.py --add-up *.jsonl                                 # what such files have found together

campaigns/determinism.py says what a case is. Everything follows from the seeds. Ends in one JSON line; the exit status is 1 if
anything differs (with --mutant: if nothing does), but not with --plain.
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.transformer import Transformer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the campaigns and golden answers are tests' own

from campaigns.determinism import run_case
from campaigns.determinism_models import random_layers
from campaigns.determinism_mutants import MUTANTS, Mutant, gpu_mutants


def _load(arguments: argparse.Namespace) -> Transformer:
    device, precision, mode = torch.device(arguments.device), arguments.precision, not arguments.plain
    if arguments.released:
        sizes = arguments.experts, arguments.vocabulary
        return random_layers(arguments.released, precision, device, mode, *sizes, arguments.any_scales)  # type: ignore[no-any-return]
    return load_model(arguments.model, precision, device=device, mtp=True, deterministic=mode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO, help="a checkpoint (default: the demo)")
    parser.add_argument("--precision", choices=("exact", "bf16", "fp8"), help="default: exact on a CPU, fp8 on a GPU")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--released", type=int, metavar="LAYERS", help="random weights of the released dimensions instead"
    )
    parser.add_argument("--experts", type=int, default=256, help="of each of these layers")
    parser.add_argument("--vocabulary", type=int, default=129280, help="of these layers")
    parser.add_argument(
        "--any-scales", action="store_true", help="of theirs, instead of powers of two: sums are rounded"
    )
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--stride", type=int, default=1, help="from a case's seed to the next one's")
    parser.add_argument("--requests", type=int, default=10**9, help="begin no case after this many")
    parser.add_argument("--seconds", type=float, default=60, help="begin no case after so long")
    parser.add_argument("--group", type=int, default=12, help="requests of a case")
    parser.add_argument(
        "--longest", type=int, default=256, help="tokens of the longest request; lengths are log-uniform from 2"
    )
    parser.add_argument("--plain", action="store_true", help="the model without the deterministic mode")
    parser.add_argument("--mutant", help="with this mistake put in; 'all': with each of them, one after the other")
    parser.add_argument(
        "--results", type=Path, help="a line of JSON for each case goes here; seeds found there are done"
    )
    parser.add_argument(
        "--add-up", type=Path, nargs="+", metavar="RESULTS", help="run nothing; print the totals of files"
    )
    arguments = parser.parse_args()
    if arguments.add_up:
        return _add_up(arguments.add_up)
    if arguments.results and arguments.mutant:
        parser.error(f"--results is {arguments.results}; expected none together with --mutant")
    arguments.precision = arguments.precision or ("exact" if arguments.device == "cpu" else "fp8")
    model = _load(arguments)
    mutants = MUTANTS if arguments.device == "cpu" else gpu_mutants()
    if arguments.mutant not in (None, "all", *mutants):
        parser.error(f"--mutant is {arguments.mutant!r}; expected all or one of {', '.join(mutants)}")
    chosen = mutants if arguments.mutant == "all" else [arguments.mutant]
    differ = [_run(model, arguments, name, None if name is None else mutants[name]) for name in chosen]
    if arguments.mutant:
        return 0 if all(differ) else 1
    return 1 if any(differ) and not arguments.plain else 0


def _run(model: Transformer, arguments: argparse.Namespace, name: str | None, mutant: Mutant | None) -> int:
    """How many requests differ, and cases fail with a mistake put in; prints the line of JSON."""
    total, failures, began, seed = Counter[str](), [], time.monotonic(), arguments.first
    done = _seeds(arguments.results)
    with nullcontext() if mutant is None else mutant.applied():
        while total["requests"] < arguments.requests and time.monotonic() - began < arguments.seconds:
            if seed not in done:
                try:
                    found, wrong = run_case(model, seed, arguments.group, arguments.longest)
                except RuntimeError:
                    if mutant is None:
                        raise
                    total["failed cases"] += 1  # the registry has no such implementation to offer, for example
                    break
                total.update(found)
                failures += wrong
                for failure in wrong:
                    print(failure, file=sys.stderr, flush=True)
                if arguments.results:
                    with arguments.results.open("a") as file:
                        line = json.dumps({"seed": seed, "found": found, "wrong": wrong})
                        file.write(f"\n{line}")  # on a line of its own, whatever a process that was ended has left
                gc.collect()
                torch.cuda.empty_cache()  # several processes may share a GPU
            seed += arguments.stride
    fixed = {"model": str(arguments.released or arguments.model.name), "device": arguments.device}
    fixed |= {"precision": arguments.precision, "deterministic": not arguments.plain, "mutant": name}
    numbers = {"seconds": round(time.monotonic() - began), **total, "requests that differ": len(failures)}
    print(json.dumps(fixed | {"first": arguments.first, "longest": arguments.longest} | numbers), flush=True)
    return len(failures) + total["failed cases"]


def _cases(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results; the last one may have been cut off when its process was ended."""
    cases = []
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            cases.append(json.loads(line))
    return cases


def _seeds(path: Path | None) -> set[int]:
    return {case["seed"] for case in _cases(path)} if path and path.exists() else set()


def _add_up(paths: list[Path]) -> int:
    """The totals of files of one model and precision; a seed counts once."""
    cases = {case["seed"]: case for path in paths for case in _cases(path)}
    total = sum((Counter(case["found"]) for case in cases.values()), Counter[str]())
    wrong = sum(len(case["wrong"]) for case in cases.values())
    print(json.dumps({**total, "requests that differ": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
