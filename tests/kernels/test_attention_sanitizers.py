"""The attention kernels under compute-sanitizer.

racecheck of compute-sanitizer 2025.3 reports hazards that barriers do order: accesses to six fields of shared memory that one
group of warps writes and another reads. For all but `sums`, each group signals the other by a one-sided arrival (bar.arrive,
mbarrier.arrive, or bytes that complete on an mbarrier); releases after 2025.3 fix false reports of this kind. Any other hazard
fails the test.

reference  softmax: written before bar.arrive; add_others_values: read after bar.sync; the next write comes after the
           reader's own arrival on the other named barrier. follow_maxima of few queries: written before a bar.sync, read after
           it, and not written again
mask       of a block of keys: written before an arrival on mask_full (few heads: full), read after waiting there; the next
           write comes after waiting for `empty`, where the reader arrives when it is done
sums       finish: written, then a bar.sync of both groups, read, then the same bar.sync again before the next write. In the machine
           code the reported stores and loads are on the two sides of those barriers
added      few queries: written before an arrival on kProbabilitiesFull, read after waiting there; the next write comes after
           waiting for kProbabilitiesFree, where the reader arrives when it is done
top        few queries: written before the writer's first arrival on kProbabilitiesFull, read after waiting there, and not written
           again. A list without keys has such an arrival, too, for an empty chunk
records    few heads: bulk copies, and zeros in place of invalid records, come after waiting for `empty`, reads after `full`. A lane
           stores zeros before __syncwarp, after which its warp's first lane arrives on `full`

In about one run of three racecheck reports names of other functions and files, or none, at the right offsets and line numbers.
Such a run is repeated.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from deepseek_v32.kernels import build
from deepseek_v32.kernels.device import is_hopper

RUNS = 6  # of racecheck, at most, until its names can be read
ACCESS = re.compile(r" access at (.*)\+0x\w+ in (\S+):(\d+)")


def names_are_right(output: str) -> bool:
    """Whether each reported access names a source file of attention, and a function that this file has."""
    for line in output.splitlines():
        if " access at" not in line:
            continue
        match = ACCESS.search(line)
        found = [] if match is None else list(build.SOURCES.glob(f"*/{match[2]}"))
        name = None if match is None else re.search(r"(\w+)[<(]", match[1])
        if name is None or len(found) != 1 or name[1] not in found[0].read_text():
            return False
    return True


def race_field(access: str) -> str:
    """The field of shared memory that an access of a report belongs to; the access itself if that is not known."""
    match = ACCESS.search(access)
    if match is None:
        return access
    function, file, number = match.groups()
    found = list(build.SOURCES.glob(f"*/{file}"))
    if len(found) != 1:  # reports name no folder
        return access
    source = found[0].read_text().splitlines()[int(number) - 1]
    if "s.reference[" in source:
        return "reference"
    if "s.added[" in source:
        return "added"
    if "s.mask[" in source:
        return "mask"
    if file == "results.cuh" and ("s.sum[" in source or "s.top[" in source):
        return "sums"
    if file == "values.cuh" and "s.top[" in source:
        return "top"
    if file == "few_heads.cuh" and "load_shared" in function:
        return "records"
    if file == "ptx.cuh" and re.search(r"\b(copy_bulk|store_shared16)\(", function):
        return "records"
    return access


def unknown_races(output: str) -> list[str]:
    """The reported pairs of accesses, except those to the same known field."""
    found, first = [], ""
    for line in output.splitlines():
        if "Race reported between" in line:
            first = line
        elif first and " access at " in line and (race_field(line) != race_field(first) or race_field(line) == line):
            found.append(f"{first}\n{line}")
    return found


def test_files_with_known_races_have_names_of_their_own() -> None:
    """Reports name no folder, so a second file of that name would make a known race an unknown one."""
    names = Counter(path.name for path in build.SOURCES.glob("*/*.cuh"))
    fields = re.compile(r"\bs\.(reference|added|mask|sum|top)\[")
    users = [path.name for path in build.SOURCES.glob("*/*.cuh") if fields.search(path.read_text())]
    assert "core.cuh" in users and [name for name in [*users, "ptx.cuh"] if names[name] > 1] == []


def test_a_new_race_is_not_taken_for_a_known_one() -> None:
    lines = (build.SOURCES / "attention" / "core.cuh").read_text().splitlines()
    texts = ("s.reference[kParity][line]", "shared_address(s.p1)")
    known, other = (next(i for i, line in enumerate(lines, 1) if text in line) for text in texts)

    def report(*numbers: int) -> str:
        first, second = (f"access at void mla::math<(int)1>(int)+0x10 in core.cuh:{number}" for number in numbers)
        return f"========= Error: Race reported between Write {first}\n=========     and Read {second} [8 hazards]\n"

    assert unknown_races(report(known, known)) == []
    assert len(unknown_races(report(known, other))) == len(unknown_races(report(other, other))) == 1


def test_wrong_names_are_noticed() -> None:
    """Lines of two runs of one library, each first with the right names."""
    zeros = "store_shared16(unsigned int, unsigned int, unsigned int, unsigned int, unsigned int)+0x1250 in ptx.cuh:124"
    first = f"========= Error: Race reported between Write access at common::{zeros}\n=========     and Read access at "
    right = "mla::load_shared16(unsigned int)+0x4aa0 in few_heads.cuh:37 [528 hazards]"
    others = "/src/few_heads.cuh+0x4aa0 in _ZN3mla17load_shared_floatEj:37 [480 hazards]", " [32 hazards]"
    assert names_are_right(first + right) and not any(names_are_right(first + other) for other in others)
    copy = "common::copy_bulk(unsigned int, const void *, unsigned int, unsigned int)+0x1760 in ptx.cuh:105"
    shifted = "mla::load_shared16(unsigned int)+0x1760 in ptx.cuh:105"
    assert names_are_right(f"Write access at {copy}") and not names_are_right(f"Write access at {shifted}")
    lambdas = (
        "void mla::add_probabilities<mla::ValueTile<(int)16>>(int)::[lambda(int) (instance 1)]::operator ()(int) const"
    )
    assert names_are_right(f"Read access at {lambdas}+0x690 in values.cuh:35 [16384 hazards]")


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer on the PATH")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_compute_sanitizer(tool: str) -> None:
    """A small call of every kernel. torch's caching of memory is off, because it would hide accesses past the end."""
    if not torch.cuda.is_available() or not is_hopper(torch.device("cuda", 0)):
        pytest.skip("no Hopper GPU")
    program = Path(__file__).parents[1] / "support" / "small_attention.py"
    command = ["compute-sanitizer", "--tool", tool, "--kernel-name", "kns=mla", sys.executable, str(program)]
    for _ in range(RUNS):
        result = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        )
        if tool == "memcheck":
            assert "ERROR SUMMARY: 0 errors" in result.stdout, result.stdout[-4000:] + result.stderr[-2000:]
            return
        assert "RACECHECK SUMMARY" in result.stdout and "Traceback" not in result.stderr, result.stderr[-2000:]
        if names_are_right(result.stdout):
            unknown = unknown_races(result.stdout)
            assert not unknown, "\n".join(unknown[:20])
            return
    pytest.fail(f"{RUNS} runs of racecheck with wrong names, the last:\n{result.stdout[-4000:]}")
