"""Time the operations of a layer and compare them with their targets: a table, then one line of JSON.

    python scripts/bench/kernels.py                            # every group
    python scripts/bench/kernels.py quantize topk --only 4096  # cases of two groups that have 4096 in their names

Times are medians of CUDA events around CUDA graphs that rotate through inputs, so that the L2 cache is cold if the inputs exceed it
(column `L2`). `roofline` is the time that the bytes need at the rate of a copy, which is measured first, or the FLOPs at the rate
that an H100 sustains, divided by the measured time.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # which PYTHONSAFEPATH leaves out

from bench.kernel_parts.harness import Case, copy_rate, measure

FOLDER = Path(__file__).parent / "kernel_parts"
GROUPS = sorted(path.stem for path in FOLDER.glob("[!_]*.py") if path.stem != "harness")


def driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def cases(group: str, only: str, device: torch.device) -> Iterator[Case]:
    for case in import_module(f"bench.kernel_parts.{group}").cases(device):
        if only in case.name:
            yield case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=GROUPS, metavar="GROUP", help=f"any of {', '.join(GROUPS)}")
    parser.add_argument("--only", default="", help="only cases whose names contain this")
    arguments = parser.parse_args()
    unknown = [group for group in arguments.groups if group not in GROUPS]
    if unknown:
        raise SystemExit(f"group is {unknown[0]!r}; expected any of {', '.join(GROUPS)}")
    if not torch.cuda.is_available():
        raise SystemExit("device is cpu; expected a CUDA GPU, on which kernels are timed")
    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device())
    copy = copy_rate(device)
    machine = {
        "device": torch.cuda.get_device_name(),
        "driver": driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": time.strftime("%Y-%m-%d"),
        "copy_gigabytes_per_second": round(copy / 1e9),
    }
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"{'case':56} {'L2':4} {'us':>9} {'achieved':>9} {'required':>8} {'aim':>8} {'unit':9} {'roofline':>8}")
    results = []
    for group in arguments.groups:
        for case in cases(group, arguments.only, device):
            taken = measure(case)
            achieved, roofline = case.achieved(taken, copy), case.roofline(taken, copy)
            print(
                f"{case.name:56} {'cold' if case.cold else 'warm'} {taken:9.2f} {achieved:9.1f} {case.must:>8} "
                f"{case.aim:>8} {case.unit:9} {roofline:8.2f}",
                flush=True,
            )
            results.append(
                {
                    "group": group,
                    "case": case.name,
                    "microseconds": round(taken, 2),
                    "achieved": round(achieved, 2),
                    "required": case.must,
                    "aim": case.aim,
                    "unit": case.unit,
                    "roofline": round(roofline, 3),
                    "cold": case.cold,
                }
            )
    print(json.dumps({"benchmark": "kernels", **machine, "cases": results}))


if __name__ == "__main__":
    main()
