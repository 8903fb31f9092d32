"""Every TileLang kernel compiles for sm_90a on any machine with nvcc: in its first configuration; in the others as slow tests."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.kernels import build, registry


def cannot_compile() -> str:
    if find_spec("tilelang") is None:
        return "TileLang kernels need tilelang: pip install 'deepseek-v32[kernels]'"
    try:
        build.find_nvcc()
    except RuntimeError as error:
        return str(error)
    return ""


def configurations() -> list[Any]:
    if cannot_compile():
        return []
    for path in sorted(Path(registry.__file__).parent.glob("tile/[!_]*.py")):
        import_module(f"deepseek_v32.kernels.tile.{path.stem}")
    from deepseek_v32.kernels.tile.factory import KERNELS

    return [
        pytest.param(
            *(factory, arguments),
            id=f"{name}-{'-'.join(map(str, arguments))}",
            marks=[pytest.mark.slow] if number else [],
        )
        for name, (factory, uses) in KERNELS.items()
        for number, arguments in enumerate(uses)
    ]


@pytest.mark.skipif(bool(cannot_compile()), reason=cannot_compile())
@pytest.mark.parametrize(("factory", "arguments"), configurations())
@pytest.mark.heavy
def test_compiles(factory: Any, arguments: tuple[Any, ...]) -> None:
    assert "__global__" in factory(*arguments).get_kernel_source()


COMPILE = """
from deepseek_v32.kernels.tile import quantize
from deepseek_v32.kernels.tile.factory import KERNELS
factory, configurations = next(entry for name, entry in KERNELS.items() if name.startswith("quantize."))
factory(*configurations[0])
"""


@pytest.mark.skipif(bool(cannot_compile()), reason=cannot_compile())
@pytest.mark.heavy
def test_a_first_compilation_writes_nothing_among_a_programs_answers(tmp_path: Path) -> None:
    """Into an empty cache; TileLang's notes would go to standard output."""
    environment = os.environ | {"TILELANG_CACHE_DIR": str(tmp_path / "cache")}
    result = subprocess.run([sys.executable, "-P", "-c", COMPILE], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "" and any((tmp_path / "cache").rglob("*.so"))


@pytest.mark.skipif(bool(cannot_compile()), reason=cannot_compile())
def test_every_kernel_says_what_it_is_used_for() -> None:
    configurations()
    from deepseek_v32.kernels.tile.factory import KERNELS

    assert not [name for name, (_, uses) in KERNELS.items() if not uses]
