"""Compare the kernels with public ones on one card: a table, then one line of JSON.

Each case first compares the results of our kernel and theirs. Then both run in turns (A B A B) as CUDA graphs, and the L2 cache
is overwritten before each sample. The ratio is our median time over theirs: below 1, we are faster. FlashMLA is the package
`flash_mla` where it can be imported, or a shared library by path; so are DeepGEMM, `deep_gemm`, and FlashInfer, `flashinfer`.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of these packages

from bench.peers import attention, deep_gemm, flash_mla, gemm, scores, topk
from bench.peers.samples import Case, Result, compare_all


@dataclass(frozen=True)
class Library:
    """A public library, and the groups of cases that compare with it."""

    module: Any  # of peers: SIGNATURES, and the same peer as a Library of a path and as a Package
    groups: Mapping[str, Callable[[Any], Iterator[Case]]]

    def find(self, path: str | None) -> Any:
        """The library at `path`, else the package, else None."""
        if path is not None:
            return self.module.Library(path)
        try:
            return self.module.Package()
        except ImportError:
            return None

    def cases(self, peer: Any, chosen: list[str], pattern: str) -> Iterator[Case]:
        for name, group in self.groups.items():
            if name in chosen:
                yield from (case for case in group(peer) if re.search(pattern, case.name))


LIBRARIES = {
    "flash_mla": Library(flash_mla, attention.GROUPS),
    "deep_gemm": Library(deep_gemm, gemm.GROUPS),
    "deep_gemm_mqa": Library(scores, scores.GROUPS),
    "flashinfer": Library(topk, topk.GROUPS),
}


def option(library: str) -> str:
    return "--" + library.replace("_", "-")


def table_line(result: Result) -> str:
    times = result.microseconds
    return f"{result.name:66} {times['ours']:9.1f} {times['theirs']:9.1f} {result.ratio:6.3f} {result.difference:8.1e}"


def main() -> None:
    known = [group for library in LIBRARIES.values() for group in library.groups]
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(library.module.SIGNATURES for library in LIBRARIES.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", help=f"any of {', '.join(known)}; by default all whose library is there")
    for name in LIBRARIES:
        parser.add_argument(
            option(name), metavar="PATH", help=f"a library with the functions below, instead of the package {name}"
        )
    parser.add_argument("--match", default="", help="a regular expression that the names of cases are searched for")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each kernel a case (%(default)s)")
    arguments = parser.parse_args()
    unknown = [group for group in arguments.groups if group not in known]
    if unknown:
        parser.error(f"group is {unknown[0]!r}; expected any of {', '.join(known)}")
    if not torch.cuda.is_available():
        raise SystemExit("the number of CUDA GPUs is 0; expected one to compare kernels on")
    peers = {name: library.find(getattr(arguments, name)) for name, library in LIBRARIES.items()}
    for name, library in LIBRARIES.items():
        needed = [group for group in arguments.groups if group in library.groups]
        if needed and peers[name] is None:
            raise SystemExit(
                f"{name} cannot be imported and {option(name)} is not given; {needed[0]} needs one of them"
            )
    if all(peer is None for peer in peers.values()):
        options = " or ".join(map(option, LIBRARIES))
        raise SystemExit(
            f"none of {', '.join(LIBRARIES)} can be imported, and neither {options} is given; expected one"
        )
    torch.manual_seed(0)
    device = torch.cuda.get_device_name()
    print(
        f"{device}, torch {torch.__version__}\n{'case':66} {'ours us':>9} {'theirs us':>9} {'ratio':>6} {'differ':>8}"
    )
    results = []
    for name, library in LIBRARIES.items():
        if peers[name] is None:
            continue
        cases = library.cases(peers[name], arguments.groups or known, arguments.match)
        for result in compare_all(cases, arguments.rounds):
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
