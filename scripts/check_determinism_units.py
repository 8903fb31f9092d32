"""Are the operations of the deterministic mode batch-invariant on this GPU? One line for each: rows compared and rows that differ.

    python scripts/check_determinism_units.py            # the implementations of the mode
    python scripts/check_determinism_units.py --plain    # those without it: how much differs

campaigns/determinism_units.py says what is compared. Ends in one JSON line; the exit status is 1 if anything differs, unless plain.
"""

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the campaigns and golden answers are tests' own

from campaigns.determinism_units import GROUPS, Source, differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="the implementations without the mode")
    parser.add_argument("--only", default="", help="units whose name contains this")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    total, wrong, failed = 0, 0, []
    for group in GROUPS:
        source = Source(torch.device("cuda"), arguments.seed, not arguments.plain)
        try:
            for unit in group(source):
                if arguments.only not in unit.name:
                    continue
                began = time.monotonic()
                try:
                    found, compared, where = differing(unit)
                except (RuntimeError, ValueError) as error:
                    failed.append(unit.name)
                    traceback.print_exc()
                    print(f"{unit.name:42} {type(error).__name__}: {str(error).splitlines()[0][:200]}", flush=True)
                    continue
                total, wrong = total + compared, wrong + found
                failed += [unit.name] * bool(found)
                seconds = time.monotonic() - began
                print(
                    f"{unit.name:42} {found:7} of {compared:7} rows {seconds:6.1f} s {'; '.join(where[:3])}", flush=True
                )
        except (RuntimeError, ValueError):
            traceback.print_exc()
            failed.append(group.__name__)
        torch.cuda.empty_cache()
    print(json.dumps({"deterministic": not arguments.plain, "rows": total, "rows that differ": wrong, "units": failed}))
    return 1 if failed and not arguments.plain else 0


if __name__ == "__main__":
    sys.exit(main())
