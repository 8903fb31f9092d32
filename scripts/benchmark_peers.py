"""Compare the kernels with public ones on one card: a table, then one line of JSON.

Each case first compares the results of our kernel and theirs. Then both run in turns (A B A B) as CUDA graphs, and the L2 cache
is overwritten before each sample. The ratio is our median time over theirs: below 1, we are faster. FlashMLA is the package
`flash_mla` where it can be imported, or a shared library by path.
"""

import argparse
import json
import math
import re
from collections.abc import Iterator

import torch
from peers import attention, flash_mla  # type: ignore[import-not-found]
from peers.samples import Case, Result, compare_all  # type: ignore[import-not-found]


def cases(groups: list[str], pattern: str, peer: flash_mla.Peer) -> Iterator[Case]:
    selected = re.compile(pattern)
    for group in groups:
        for case in attention.GROUPS[group](peer):
            if selected.search(case.name):
                yield case


def table_line(result: Result) -> str:
    times = result.microseconds
    return f"{result.name:66} {times['ours']:9.1f} {times['theirs']:9.1f} {result.ratio:6.3f} {result.difference:8.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=flash_mla.SIGNATURES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", help=f"any of {', '.join(attention.GROUPS)}; all by default")
    parser.add_argument(
        "--flash-mla", metavar="PATH", help="a library with the functions below, instead of the package"
    )
    parser.add_argument("--match", default="", help="a regular expression that the names of cases are searched for")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each kernel a case (%(default)s)")
    arguments = parser.parse_args()
    groups = arguments.groups or list(attention.GROUPS)
    unknown = [group for group in groups if group not in attention.GROUPS]
    if unknown:
        parser.error(f"group is {unknown[0]!r}; expected any of {', '.join(attention.GROUPS)}")
    if not torch.cuda.is_available():
        raise SystemExit("the number of CUDA GPUs is 0; expected one to compare kernels on")
    peer = flash_mla.find(arguments.flash_mla)
    if peer is None:
        raise SystemExit("flash_mla cannot be imported and --flash-mla is not given; expected one of them")
    torch.manual_seed(0)
    device = torch.cuda.get_device_name()
    print(
        f"{device}, torch {torch.__version__}\n{'case':66} {'ours us':>9} {'theirs us':>9} {'ratio':>6} {'differ':>8}"
    )
    results = []
    for result in compare_all(cases(groups, arguments.match, peer), arguments.rounds):
        results.append(result)
        print(table_line(result), flush=True)
    lines = [
        {"name": r.name, "ratio": round(r.ratio, 4)} | {name: round(t, 2) for name, t in r.microseconds.items()}
        for r in results
    ]
    assert all(math.isfinite(result.ratio) for result in results)
    print(json.dumps({"benchmark": "peers", "device": device, "torch": torch.__version__, "cases": lines}))


if __name__ == "__main__":
    main()
