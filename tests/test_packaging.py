"""The package is found under its name, by Python and by type checkers, and a wheel holds what it must."""

import ast
import importlib.util
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.doc_blocks import blocks
from support.imports import FOLDERS, ROOT, sources
from support.quick import quick_share

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DATA = ["cuda/**/*.cu", "cuda/**/*.cuh"]


def test_the_folders_are_linked_under_the_names_they_are_installed_by():
    links = {path.name: path.resolve() for path in (ROOT / "src" / "deepseek_v32").iterdir()}
    assert links == {folder: ROOT / folder for folder in FOLDERS}


@pytest.mark.heavy
def test_nothing_shadows_the_public_kernels_package():
    """transformers probes for a top-level package called kernels; neither our folder nor our tests may pass for it."""
    assert not (ROOT / "kernels" / "__init__.py").exists()
    assert not (ROOT / "tests" / "kernels" / "__init__.py").exists()
    spec = importlib.util.find_spec("kernels")
    assert spec is None or spec.origin is None or "site-packages" in spec.origin
    from transformers.utils import is_kernels_available

    probe = "import sys; from transformers.utils import is_kernels_available as f; sys.exit(f())"
    elsewhere = subprocess.run([sys.executable, "-P", "-c", probe], cwd="/", check=False).returncode
    assert is_kernels_available() == bool(elsewhere)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Names in a wheel built from a copy of the sources, so that nothing stale from build/ gets in."""
    copy = tmp_path_factory.mktemp("sources")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "src", copy / "src", symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), "."]
    built = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    [path] = out.glob("*.whl")
    return set(zipfile.ZipFile(path).namelist())


@pytest.mark.heavy
def test_the_wheel_holds_every_module_kernel_and_demo_file(wheel):
    expected = set(sources(*FOLDERS))
    expected |= {path for pattern in DATA for path in (ROOT / "kernels").glob(pattern)}
    expected |= {ROOT / folder / "py.typed" for folder in FOLDERS}
    expected |= {path for pattern in ("*.json", "*.safetensors") for path in (ROOT / "model" / "demo").glob(pattern)}
    assert {f"deepseek_v32/{path.relative_to(ROOT).as_posix()}" for path in expected} <= wheel


@pytest.mark.heavy
def test_the_wheel_holds_nothing_else(wheel):
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"deepseek_v32"}
    assert any(name.endswith("LICENSE") for name in wheel)
    assert not [name for name in wheel if "__pycache__" in name or "/tests/" in name]


TYPED = ("README.md", "docs/dsa.md")
# Other packages' annotations take ten seconds to read, and say nothing about ours.
MYPY = """\
[mypy]
strict = true
[mypy-torch.*,numpy.*,transformers.*,fastapi.*,pydantic.*,prompt_toolkit.*,rich.*]
follow_imports = skip
"""


@pytest.mark.heavy
def test_users_code_passes_strict_type_checks_outside_the_repository(tmp_path):
    """mypy finds the package in the environment that it was installed into, with its annotations (py.typed)."""
    examples = [block for page in TYPED for block in blocks(ROOT / page, "python")]
    files = [f"example{number}.py" for number in range(len(examples))]
    for name, example in zip(files, examples, strict=True):
        reveal = "reveal_type(llm)\n" if "LLM(" in example else ""
        (tmp_path / name).write_text(example + reveal, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(MYPY, encoding="utf-8")
    command = [sys.executable, "-P", "-m", "mypy", *files]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 'Revealed type is "deepseek_v32.inference.llm.LLM"' in checked.stdout, checked.stdout + checked.stderr
    assert checked.returncode == 0, checked.stdout


def test_the_command_is_declared_where_it_stands():
    module, function = PROJECT["project"]["scripts"]["deepseek-v32"].split(":")
    path = ROOT / Path(*module.split(".")[1:]) / "__init__.py"
    defined = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert function in defined


def marks(path: Path) -> list[str]:
    """The decorators of each test of a file, with the marks of the whole file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    whole = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    ]
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [" ".join([*whole, *map(ast.unparse, test.decorator_list)]) for test in tests]


def test_make_quick_runs_a_share_of_every_folders_tests(request):
    files = list((ROOT / "tests").rglob("test_*.py"))
    represented = {
        path.parent for path in files for text in marks(path) if "mark.heavy" not in text and "mark.gpu" not in text
    }
    assert represented == {path.parent for path in files}
    share = quick_share(request.session.items)
    assert not [item.nodeid for item in share if item.get_closest_marker("heavy")]
    assert len(share) == len({item.nodeid.partition("[")[0] for item in share})
