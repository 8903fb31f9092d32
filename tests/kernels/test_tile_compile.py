"""Every TileLang kernel compiles for sm_90a on any machine with nvcc: in its first configuration; in the others as slow tests."""

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


@pytest.mark.skipif(bool(cannot_compile()), reason=cannot_compile())
def test_every_kernel_says_what_it_is_used_for() -> None:
    configurations()
    from deepseek_v32.kernels.tile.factory import KERNELS

    assert not [name for name, (_, uses) in KERNELS.items() if not uses]
