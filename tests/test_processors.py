"""Answers, named bugs and bounds hold on any x86-64 processor, whichever code its libraries choose.

PyTorch multiplies by MKL and oneDNN and computes the rest by its own loops. Each chooses code for the processor, and with it the
last bits. Their environment variables choose code for an older one, in a process of its own.
"""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
MKL, ONEDNN, LOOPS = "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"
KINDS = ("DEFAULT", "AVX2", "AVX512")  # of code, as torch.backends.cpu.get_cpu_capability names them
CHOSEN = (  # of each kind of test that was seen to depend on the processor
    "tests/conformance/test_bugs.py::test_a_bug_changes_the_log_probabilities[hadamard-on-one-side, fp8]",
    "tests/conformance/test_golden.py::test_transformers_gives_the_golden_log_probabilities[demo, some]",
    "tests/conformance/test_probe_servers.py::test_this_engine_is_right",
    "tests/conformance/test_probe_servers.py::test_a_bug_is_named[index-rope-interleaved]",
    "tests/inference/test_determinism.py::test_chunks_and_steps_of_one_token[bf16]",
    "tests/inference/test_determinism.py::test_each_mistake_is_caught_under_load[library sigmoid]",
)
ALL = (
    *("tests/conformance", "tests/kernels/test_determinism.py", "tests/kernels/test_determinism_products.py"),
    *("tests/model/test_against_transformers.py", "tests/model/test_fp8_simulation.py"),
    *("tests/model/demo/test_checkpoint.py", "tests/model/demo/test_recall.py"),
    *("tests/inference/test_determinism.py", "tests/inference/test_greedy.py"),
)
# Without AVX2, bits of MKL's products depend on the number of threads (docs/determinism.md), and these tests use three.
WITHOUT_AVX2 = tuple(name for name in ALL if name != "tests/kernels/test_determinism_products.py")
# Takes the processor's code before the tests, so that a variable without effect shows.
RUN = "import sys, pytest, torch; print(torch.backends.cpu.get_cpu_capability()); sys.exit(pytest.main(sys.argv[1:]))"


@dataclass(frozen=True)
class Setting:
    """Variables, and the kind of code that the processor has to have so that they choose other code than an older processor's."""

    needs: str
    variables: dict[str, str]
    tests: tuple[str, ...] = CHOSEN

    @property
    def loops(self) -> str | None:
        """The kind of torch's own code; None: the processor's."""
        named = self.variables.get(LOOPS)
        return named.upper() if named else None


def setting(name: str, needs: str, tests: tuple[str, ...] = CHOSEN, **variables: str) -> object:
    mark = [pytest.mark.slow] if tests is not CHOSEN else [pytest.mark.heavy]
    return pytest.param(Setting(needs, variables, tests), id=name, marks=mark)


SSE = {MKL: "SSE4_2", ONEDNN: "SSE41", LOOPS: "default"}
AVX2 = {MKL: "AVX2", ONEDNN: "AVX2", LOOPS: "avx2"}
WITHOUT_AMX = {MKL: "AVX512", ONEDNN: "AVX512_CORE"}
SETTINGS = [
    setting("AVX2", "AVX2", **AVX2),
    setting("SSE, all", "DEFAULT", WITHOUT_AVX2, **SSE),
    setting("AVX2, all", "AVX2", ALL, **AVX2),
    setting("AVX-512 without AMX, all", "AVX512", ALL, **WITHOUT_AMX),
    *(
        setting(
            f"oneDNN {product}, loops {loops}", needs, ALL, **({ONEDNN: product} if product != "any" else {}), **own
        )
        for product, needs in (("AVX2", "AVX2"), ("AVX512_CORE", "AVX512"), ("any", "DEFAULT"))
        for loops, own in (("default", {LOOPS: "default"}), ("avx2", {LOOPS: "avx2"}), ("any", {}))
        if (product, loops) != ("any", "any")  # as all other tests
    ),
]


@pytest.mark.timeout(0)  # each test has its own, in the process that runs it
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_tests_hold_holds_on_other_processors(setting: Setting) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip(f"{platform.machine()} is not x86-64")
    here = torch.backends.cpu.get_cpu_capability()
    needed = max((setting.needs, setting.loops or "DEFAULT"), key=KINDS.index)
    if here not in KINDS or KINDS.index(here) < KINDS.index(needed):
        pytest.skip(f"needs a processor with {needed}; PyTorch finds {here}")
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", MKL, ONEDNN, LOOPS))
    }
    command = [sys.executable, "-c", RUN, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rfE", *setting.tests]
    done = subprocess.run(command, cwd=ROOT, env=inherited | setting.variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    first, _, rest = done.stdout.partition("\n")
    assert first == (setting.loops or here) and " passed" in rest
