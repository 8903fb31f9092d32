"""Building the CUDA kernels, and their machine code, on any machine with nvcc: illegal encodings, and races between kernels."""

import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest

from deepseek_v32.kernels import build

ATTENTION = ("sparse_prefill", "sparse_decode", "dense_decode")
# Names by which profilers find attention: every call launches one of the first three, and the last if it merges partial results.
# Suffixes may follow. The other kernels of these libraries plan, or compute scores for the kernel that attends.
PUBLIC_NAMES = (
    "sparse_attn_fwd",
    "flash_fwd_splitkv_mla_fp8_sparse_kernel",
    "flash_fwd_splitkv_mla_kernel",
    "flash_fwd_mla_combine_kernel",
)
OTHERS = ("plan_kernel", "few_queries_scores_kernel")
# Launched without programmatic dependent launch, but let the next kernel start.
LETS_NEXT_START = ("plan_kernel", "sparse_attn_fwd_kernel")
WAITS_LATE = "swap_ab_kernel"  # waits at first or, while it runs with the previous kernel, before it writes
# They let the next kernel start only after they have waited for all earlier ones, on which early reads rely (kernels/cuda/pdl.py).
# While it runs with the previous kernel, the first wait of WAITS_LATE is skipped.
PRODUCTS = (WAITS_LATE, "large_m_kernel", "fp32_linear_kernel", "fp32_products_kernel")
# Kernel name -> what it may issue before the previous kernel has ended: of static weights, of the router's bias, of a
# plan, keys, lengths or rows that are older than the previous kernel.
EARLY = {
    "all_reduce_norm_kernel": "LDG",
    "absorb_queries_in_order_kernel": "LDG",
    "absorb_queries_many_kernel": "LDG",
    "expand_quantize_in_order_kernel": "LDGSTS",
    "expand_quantize_many_kernel": "LDGSTS",
    "swap_ab_kernel": "UTMALDG LDG",
    "sparse_kernel_few_queries": "LDG",
    "fp32_linear_kernel": "LDG",
    "fp32_products_kernel": "LDG",
    "norm_and_cache_kernel": "LDG",
    "norm_and_cache_linear_kernel": "LDG",
    "norm_and_cache_products_kernel": "LDG",
    "combine_norm_kernel": "LDG",
    "route_and_group_kernel": "LDG",
    "mla_combine_kernel": "LDG",
    "route_kernel": "LDG",
    "select_short_kernel": "LDG",
    "select_topk_kernel": "LDG",
    "paged_indexer_logits_kernel": "LDG",
}
GLOBAL = re.compile(r"\b(LDG|LDGSTS|STG|LD|ST|ATOMG?|REDG?|UTMALDG|UTMASTG|UBLKCP)\.")  # instructions on global memory


WITHOUT_KERNELS = ("file_rows",)  # code of the host only


def cannot_build() -> str:
    """The reason why nothing can be compiled here, in one line; empty if there is none."""
    try:
        build.compile_command(build.launcher("sparse_decode"), Path("kernel.so"))
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
@pytest.mark.parametrize("name", build.kernels())
@pytest.mark.heavy
def test_library(name: str) -> None:
    """It compiles, for Hopper; no instruction is one that Hopper calls illegal; and nothing is read or written too early.

    Compilers may move loads across griddepcontrol.wait (ACQBULK in SASS). PREEXIT lets the next kernel start.
    """
    library = build.build(name)
    assert library.read_bytes()[:4] == b"\x7fELF"
    code = machine_code(library)
    assert name in WITHOUT_KERNELS or ("sm_90a" in code and ("HGMMA" in code or name not in ATTENTION))
    broken = [line for line in code.splitlines() if "LDGSTS" in line and "+UR" in line]
    assert not broken, f"an encoding that Hopper calls illegal: {broken[0]}"
    if name in (*ATTENTION, "sparse_few_queries"):
        for function in re.findall(r"Function : (\S+)", code):
            assert sum(part in function for part in (*PUBLIC_NAMES, *OTHERS)) == 1, function
    programmatic = 0
    for function in code.split("Function : ")[1:]:
        kernel, *lines = function.splitlines()
        if "ACQBULK" not in function:  # launched without PDL: it starts after all earlier kernels have ended
            assert "PREEXIT" not in function or any(name in kernel for name in LETS_NEXT_START), kernel
            continue
        programmatic += 1
        waits = [number for number, line in enumerate(lines) if "ACQBULK" in line]
        assert len(waits) == 2 or WAITS_LATE not in kernel, kernel
        before = {match[1] for line in lines[: waits[-1]] if (match := GLOBAL.search(line))}
        allowed = {load for part, loads in EARLY.items() if part in kernel for load in loads.split()}
        assert before <= allowed, f"{kernel}: {before - allowed} before the wait"
        if any(part in kernel for part in PRODUCTS):
            starts = [number for number, line in enumerate(lines) if "PREEXIT" in line]
            waited = waits[0 if WAITS_LATE in kernel else -1]
            assert starts and min(starts) > waited, f"{kernel} lets the next one start before it has waited"
    assert programmatic > 0 or name in WITHOUT_KERNELS


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the CUDA sources that `build` uses."""
    copy = tmp_path / "cuda"
    shutil.copytree(build.SOURCES, copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    monkeypatch.setattr(build, "SOURCES", copy)
    return copy


def hashes() -> dict[str, str]:
    return {name: build.source_hash(build.launcher(name)) for name in build.kernels()}


HEADERS = {  # header: the libraries that include it
    "attention/core.cuh": {"dense_decode", "sparse_decode", "sparse_prefill"},
    "routing/kernels.cuh": {"routing"},
    "common/lane_sums.cuh": set(build.kernels()) - {"file_rows"},
    "common/groups.cuh": {"all_reduce", "kv_up_projection", "norm_and_cache", "routing"},
    "common/cluster.cuh": {"fp32_ops", "fp8_gemm", "norm_and_cache", "routing", "sparse_few_queries"},
    "common/launch.cuh": set(build.kernels()),
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_comment_in_a_header_rebuilds_the_libraries_that_include_it(header: str, sources: Path) -> None:
    before = hashes()
    with (sources / header).open("a", encoding="utf-8") as file:
        file.write("// one more comment\n")
    after = hashes()
    assert {name for name in before if before[name] != after[name]} == HEADERS[header]


def test_included_files_are_found_through_other_headers(sources: Path) -> None:
    names = [path.relative_to(sources).as_posix() for path in build.included_files(build.launcher("fp8_gemm"))]
    assert names[0] == "fp8_gemm/launch.cu" and len(names) == len(set(names))
    assert {"fp8_gemm/product.cuh", "common/pdl.cuh", "common/ptx.cuh"} <= set(names)
    assert not any(name.startswith("attention/") for name in names)


def test_every_included_file_is_there(sources: Path) -> None:
    """`included_files` reads every file, so a missing header would be an error."""
    for name in build.kernels():
        assert all(path.is_relative_to(sources) for path in build.included_files(build.launcher(name)))
    root = Path(__file__).parents[2]
    for other in (*root.glob("scripts/**/launch.cu"), *root.glob("tests/**/launch.cu")):
        assert len(build.included_files(other)) > 1


def test_flags_are_a_part_of_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = hashes()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-G"))
    assert all(before[name] != changed for name, changed in hashes().items())


@pytest.mark.parametrize("package", build.HEADERS)
def test_another_version_of_a_package_of_headers_builds_again(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.library_name("sparse_decode")
    version = build.version
    monkeypatch.setattr(build, "version", lambda name: "99" if name == package else version(name))
    assert build.library_name("sparse_decode") != before
    assert build.library_name("sparse_decode").split("-")[:2] == before.split("-")[:2]


def test_prebuilt_libraries_serve_a_machine_that_cannot_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CUTLASS here, its version at build time does not matter; with it, another version is stale."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    library = tmp_path / build.library_name("sparse_decode")
    library.touch()
    monkeypatch.setenv("DEEPSEEK_V32_KERNELS", str(tmp_path))
    assert build.locate("sparse_decode") == library
    monkeypatch.setattr(build, "version", missing)
    assert build.locate("sparse_decode") == library
    monkeypatch.setattr(build, "version", lambda name: "99")
    with pytest.raises(RuntimeError, match="other versions of nvidia-cutlass"):
        build.locate("sparse_decode")


def test_an_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="sparse_decode"):
        build.build("flash_attention_9")


def test_a_stale_prebuilt_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sparse_decode-0123456789abcdef.so").touch()
    monkeypatch.setenv("DEEPSEEK_V32_KERNELS", str(tmp_path))
    with pytest.raises(RuntimeError, match="built from other sources"):
        build.locate("sparse_decode")
