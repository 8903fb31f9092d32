"""Do the bits of a request's logits depend on what runs beside it? Requests under load against the same requests alone.

    python scripts/check_determinism.py --requests 500 --longest 4096                   # the demo, exact precision
    python scripts/check_determinism.py --precision fp8 --first 100 --seconds 500        # a slice of at most so many seconds
    python scripts/check_determinism.py --plain                                          # without the mode: how much differs

campaigns/determinism.py says what a case is. Everything follows from the seeds. Ends in one JSON line; the exit status is 1 if
anything differs, unless that is expected (--plain, --mutant).
"""

import argparse
import json
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from campaigns.determinism import run_case  # type: ignore[import-not-found]
from campaigns.determinism_mutants import MUTANTS  # type: ignore[import-not-found]

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.checkpoint.load import load_model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO, help="a checkpoint (default: the demo)")
    parser.add_argument("--precision", default="exact", choices=("exact", "bf16", "fp8"))
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--requests", type=int, default=10**9, help="begin no case after so many")
    parser.add_argument("--seconds", type=float, default=60, help="begin no case after so long")
    parser.add_argument("--group", type=int, default=12, help="requests of a case")
    parser.add_argument(
        "--longest", type=int, default=256, help="tokens of the longest request; lengths are log-uniform from 2"
    )
    parser.add_argument("--plain", action="store_true", help="the model without the deterministic mode")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this mistake put in")
    arguments = parser.parse_args()
    load = {"precision": arguments.precision, "mtp": True, "deterministic": not arguments.plain}
    model = load_model(arguments.model, **load)
    total, failures, began, seed = Counter[str](), [], time.monotonic(), arguments.first
    with ExitStack() as stack:
        if arguments.mutant:
            stack.enter_context(MUTANTS[arguments.mutant].applied())
        while total["requests"] < arguments.requests and time.monotonic() - began < arguments.seconds:
            found, wrong = run_case(model, seed, arguments.group, arguments.longest)
            total.update(found)
            failures += wrong
            for failure in wrong:
                print(failure, file=sys.stderr, flush=True)
            seed += 1
    fixed = {"precision": arguments.precision, "deterministic": not arguments.plain, "mutant": arguments.mutant}
    numbers = {"seconds": round(time.monotonic() - began), **total, "requests that differ": len(failures)}
    print(json.dumps(fixed | {"first": arguments.first, "longest": arguments.longest} | numbers))
    return 1 if failures and not (arguments.plain or arguments.mutant) else 0


if __name__ == "__main__":
    sys.exit(main())
