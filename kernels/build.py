"""Builds and loads the CUDA kernels. Only this module calls nvcc.

The source of library `name` is kernels/cuda/<name>/launch.cu with every header that it includes, directly or not. It becomes a
shared library with tvm-ffi entry points, which works with every version of torch and Python. `load` looks in the folder
$DEEPSEEK_V32_KERNELS (libraries built ahead of time), then in the user's cache, and otherwise builds into the cache. File names
hold a hash of the compiler flags, the source and the included headers, and one of the versions of CUTLASS and tvm-ffi. So a stale
library is never loaded, and a change rebuilds only the libraries that include the changed file.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "cuda"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-gencode=arch=compute_90a,code=sm_90a",  # WGMMA and setmaxnreg do not assemble for plain sm_90
    "--expt-relaxed-constexpr",
    "-lineinfo",
    "-shared",
    "-Xcompiler=-fPIC",
    "-cudart=static",  # so that the library does not depend on torch's copy of the runtime
)
HEADERS = ("nvidia-cutlass", "apache-tvm-ffi")  # the packages of the headers in angle brackets
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
_NVCC_PACKAGES = "nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl"
_NVCC_HINT = f"install the CUDA toolkit 13.0, or `pip install {_NVCC_PACKAGES}` (each ==13.0.*)"


def kernels() -> list[str]:
    """Return the names of all libraries."""
    return sorted(source.parent.name for source in SOURCES.glob("*/launch.cu"))


def launcher(name: str) -> Path:
    """Return the source file of library `name`."""
    return SOURCES / name / "launch.cu"


def included_files(source: Path) -> list[Path]:
    """Return `source` and all files that it includes in quotation marks, directly or not, in the order of inclusion.

    Headers in angle brackets belong to other packages (CUDA, CUTLASS, tvm-ffi) and are left out.
    """
    found: dict[Path, None] = {}

    def visit(path: Path) -> None:
        if path in found:
            return
        found[path] = None
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            visit((path.parent / name).resolve())

    visit(source.resolve())
    return list(found)


def source_hash(source: Path) -> str:
    """Return a hash of the compiler flags, `source` and the files of this repository that it includes."""
    digest = hashlib.sha256("\0".join(FLAGS).encode())
    for path in included_files(source):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def library_name(name: str, source: Path | None = None) -> str:
    """Return the file name of library `name`: it changes with all that determines the library, except the compiler's version."""
    versions = "\0".join(f"{package} {_version(package)}" for package in HEADERS)
    headers = hashlib.sha256(versions.encode()).hexdigest()[:8]
    return f"{name}-{source_hash(source or launcher(name))}-{headers}.so"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "deepseek-v32"


def find_nvcc() -> str:
    """Find nvcc on the PATH, in $CUDA_HOME, in /usr/local/cuda, or among pip's packages."""
    candidates = [shutil.which("nvcc")]
    if "CUDA_HOME" in os.environ:
        candidates.append(os.path.join(os.environ["CUDA_HOME"], "bin", "nvcc"))
    candidates.append("/usr/local/cuda/bin/nvcc")
    spec = find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        candidates += [os.path.join(root, "cu13", "bin", "nvcc"), os.path.join(root, "cuda_nvcc", "bin", "nvcc")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise RuntimeError(f"no nvcc on the PATH, in $CUDA_HOME, in /usr/local/cuda or among pip's packages: {_NVCC_HINT}")


def _package_folder(module: str, package: str, inside: str) -> Path:
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"building a CUDA kernel needs {package}: pip install {package}")
    folder = Path(next(iter(spec.submodule_search_locations))) / inside
    if not folder.is_dir():
        raise RuntimeError(f"{package} is installed without {inside}: reinstall {package}")
    return folder


def compile_command(source: Path, output: Path) -> list[str]:
    nvcc = find_nvcc()
    libraries = Path(nvcc).resolve().parent.parent / "lib"  # where pip's packages keep the static runtime
    return [
        nvcc,
        *FLAGS,
        *([f"-L{libraries}"] if (libraries / "libcudart_static.a").exists() else []),
        f"-I{_package_folder('cutlass_library', 'nvidia-cutlass', 'source/include')}",
        f"-I{_package_folder('tvm_ffi', 'apache-tvm-ffi', 'include')}",
        str(source),
        "-o",
        str(output),
    ]


def build(name: str, folder: Path | None = None) -> Path:
    """Compile library `name` into `folder` (default: the user's cache) unless it is there; return its path.

    RuntimeError with the compiler's output if that fails. Several processes may build at once: each renames a finished file.
    """
    if name not in kernels():
        raise ValueError(f"kernel is {name!r}; expected one of {', '.join(kernels())}")
    return _build(name, launcher(name), folder)


def _build(name: str, source: Path, folder: Path | None) -> Path:
    folder = cache_folder() if folder is None else folder
    library = folder / library_name(name, source)
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        unfinished = Path(scratch) / "kernel.so"
        command = compile_command(source, unfinished)
        print(f"deepseek-v32: compiling CUDA kernel {name} for sm_90a, once", file=sys.stderr)
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"compiling {name} failed:\n{' '.join(command)}\n{result.stdout}{result.stderr}")
        unfinished.replace(library)
    return library


def locate(name: str) -> Path:
    """Return the path of library `name`: prebuilt, in the cache, or built by this call."""
    prebuilt = os.environ.get("DEEPSEEK_V32_KERNELS")
    if prebuilt:
        library = Path(prebuilt) / library_name(name)
        found = [library] if library.exists() else []
        if None in map(_version, HEADERS):  # nothing can be built here, so any versions of the headers will do
            found = sorted(Path(prebuilt).glob(f"{name}-{source_hash(launcher(name))}-*.so"))
        if found:
            return found[0]
        stale = sorted(path.name for path in Path(prebuilt).glob(f"{name}-*.so"))
        if stale:
            raise RuntimeError(
                f"DEEPSEEK_V32_KERNELS={prebuilt} holds {', '.join(stale)}, which was built from other sources than these, or with "
                f"other versions of {' or '.join(HEADERS)} ({library.name}): build again, or unset DEEPSEEK_V32_KERNELS"
            )
    return build(name)


def load_source(source: Path) -> Any:
    """Build a benchmark's kernel, a source file outside kernels/cuda, into the user's cache, and load it as a tvm-ffi module."""
    return _load_library(_build(source.parent.name, source, None))


@cache
def load(name: str) -> Any:
    """Load library `name` as a tvm-ffi module; build it if necessary."""
    return _load_library(locate(name))


def _load_library(path: Path) -> Any:
    if find_spec("tvm_ffi") is None:
        raise RuntimeError("the CUDA kernels need apache-tvm-ffi: pip install apache-tvm-ffi")
    import tvm_ffi

    return tvm_ffi.load_module(str(path))


if __name__ == "__main__":  # python -m deepseek_v32.kernels.build [FOLDER] builds all libraries ahead of time
    for kernel in kernels():
        print(build(kernel, Path(sys.argv[1]) if len(sys.argv) > 1 else None))
