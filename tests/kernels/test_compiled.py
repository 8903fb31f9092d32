"""The CUDA kernels' machine code, on any machine that has nvcc: what a GPU would refuse, and what would be a race on it."""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from deepseek_v32.kernels import build

ATTENTION = ("sparse_prefill", "sparse_decode", "dense_decode")
PROGRAMMATIC = ("dense_decode", "fp32_ops", "fp8_gemm", "kv_up_projection", "routing", "sparse_decode")
# What kernels may ask for before the one launched before them has ended, by names within theirs: static weights, the
# router's bias, a plan that is older than the kernel before.
EARLY = {
    "absorb_queries_kernel": "LDG",
    "expand_quantize_kernel": "LDG",
    "swap_ab_kernel": "UTMALDG",
    "fp32_linear_kernel": "LDG",
    "mla_combine_kernel": "LDG",
    "mla_combine_tasks_kernel": "LDG",
    "route_kernel": "LDG",
}
GLOBAL = re.compile(r"\b(LDG|LDGSTS|STG|LD|ST|ATOMG?|REDG?|UTMALDG|UTMASTG|UBLKCP)\.")  # instructions on global memory


def cannot_build() -> str:
    """What is missing to compile, in one line; empty if nothing is."""
    try:
        build.compile_command(build.launcher(ATTENTION[0]), Path("kernel.so"))
    except RuntimeError as error:
        return str(error)
    return ""


def disassembler() -> str | None:
    """cuobjdump on the PATH or among pip's packages."""
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations or () if spec else ()
    return shutil.which("cuobjdump") or next(
        (path for folder in folders if (path := shutil.which("cuobjdump", path=f"{folder}/cu13/bin"))), None
    )


def machine_code(library: Path) -> str:
    program = disassembler()
    if program is None:
        pytest.skip("no cuobjdump: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    return subprocess.run([program, "-sass", str(library)], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(bool(cannot_build()), reason=cannot_build())
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    library = build.build(name)
    assert library.read_bytes()[:4] == b"\x7fELF"
    code = machine_code(library)
    assert "sm_90a" in code and "HGMMA" in code
    broken = [line for line in code.splitlines() if "LDGSTS" in line and "+UR" in line]
    assert not broken, f"an encoding that Hopper calls illegal: {broken[0]}"


@pytest.mark.skipif(bool(cannot_build()), reason=cannot_build())
@pytest.mark.parametrize("name", PROGRAMMATIC)
def test_nothing_is_read_or_written_before_the_kernel_before_has_ended(name: str) -> None:
    """Compilers may move loads across griddepcontrol.wait (ACQBULK); PREEXIT lets the next kernel in."""
    programmatic = 0
    for function in machine_code(build.build(name)).split("Function : ")[1:]:
        kernel, *lines = function.splitlines()
        if "ACQBULK" not in function:  # launched without the attribute: it starts when all before it has ended
            assert "PREEXIT" not in function or "plan_kernel" in kernel, kernel
            continue
        programmatic += 1
        waits = [number for number, line in enumerate(lines) if "ACQBULK" in line]
        before = {match[1] for line in lines[: waits[-1]] if (match := GLOBAL.search(line))}
        allowed = {early for part, early in EARLY.items() if part in kernel}
        assert before <= allowed, f"{kernel}: {before - allowed} before the wait"
    assert programmatic


def test_an_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="sparse_decode"):
        build.build("flash_attention_9")


def test_a_stale_prebuilt_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sparse_decode-0123456789abcdef.so").touch()
    monkeypatch.setenv("DEEPSEEK_V32_KERNELS", str(tmp_path))
    with pytest.raises(RuntimeError, match="built from other sources"):
        build.locate("sparse_decode")
