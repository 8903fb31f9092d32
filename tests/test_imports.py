"""The structure of the sources: imports point one way, between folders, packages and modules, and each file has one subject."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from deepseek_v32.inference import extensions
from support.imports import FOLDERS, PACKAGE, find_modules, import_circle, import_graph, imported_names

MODULES = find_modules(*FOLDERS)
# A folder's packages and modules, by level: each may import itself and the lines above it.
LEVELS = {
    "model": """
        __init__ errors host_step profiling selection_policy stages
        config
        layers rope weight_map
        metadata
        indexer moe prefill_form launch_order
        experiment expert_slots
        attention
        block
        mtp
        transformer
        parallel
        checkpoint
        synthetic
        demo
    """,
    "inference": """
        extensions passages text token_selection trace
        config offload_speed recording
        completion params
        chat prompts
        engine
        distributed inspection
        answers parts
        llm
        cache_check conformance report server server.service
        server.async_llm
        __init__
        server.api
        chat_app server.app
        commands
        generate
    """,
}
# The packages that stand on the core of `inference`. The others are the core, but for its façade and DeepSeek's program.
SATELLITES = {
    *("__init__", "generate", "server", "server.service", "server.async_llm", "server.api", "server.app", "chat_app"),
    *("commands", "report", "conformance", "cache_check"),
}
# What variables that hold an object of the engine are called.
ENGINE_OBJECTS = {"llm", "engine", "scheduler", "pool", "runner", "graphs", "driver", "speculation", "pace", "model"}
LEVEL_OF = {
    (folder, name): number
    for folder, levels in LEVELS.items()
    for number, line in enumerate(levels.strip().splitlines())
    for name in line.split()
}


@cache
def graph() -> dict[str, set[str]]:
    return import_graph(MODULES)


def place_of(module: str) -> tuple[str, str]:
    """(folder, name in LEVELS) of a module."""
    _, folder, *rest = module.split(".")
    if rest[:1] == ["server"]:
        rest = [".".join(rest[:2])]
    return folder, rest[0] if rest else "__init__"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way_between_the_folders(module):
    folder, _ = place_of(module)
    above = FOLDERS[FOLDERS.index(folder) + 1 :]
    for origin, name in imported_names(module, MODULES[module]):
        head, second, *_ = f"{origin}.{name}.".split(".")
        assert head not in (*FOLDERS, "scripts", "tests", "support"), f"{origin}: import relatively"
        assert head != PACKAGE or second not in above, f"{folder} imports {origin}"


def test_imports_point_one_way_between_the_packages_of_a_folder():
    arrows = {(place_of(module), place_of(target)) for module, targets in graph().items() for target in targets}
    inside = [(one, other) for one, other in arrows if one[0] == other[0] and {one, other} <= LEVEL_OF.keys()]
    wrong = [f"{one} imports {other}" for one, other in inside if one != other and LEVEL_OF[one] <= LEVEL_OF[other]]
    assert not wrong


@pytest.mark.parametrize("module", MODULES)
def test_the_core_imports_no_satellite(module):
    """The core imports no satellite, neither inside a function nor for a type checker."""
    folder, place = place_of(module)
    if folder != "inference" or place in SATELLITES:
        return
    satellites = {target for target in graph()[module] if place_of(target) in {(folder, name) for name in SATELLITES}}
    assert not satellites, f"{module} belongs to the core"


@pytest.mark.parametrize("module", MODULES)
def test_satellites_set_no_fields_of_the_engine(module):
    """They call its methods: an object of the engine has one owner. Fields with an underscore are not read either."""
    folder, place = place_of(module)
    if folder != "inference" or place not in SATELLITES:
        return
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        owner = ast.unparse(node.value).split(".")[-1].lstrip("_")
        if owner in ENGINE_OBJECTS:
            assert isinstance(node.ctx, ast.Load), f"{module}:{node.lineno} sets {ast.unparse(node)}"
            assert not node.attr.startswith("_"), f"{module}:{node.lineno} reads {ast.unparse(node)}"


def test_what_the_facade_attaches_exists():
    for name, module in extensions._modules.items():
        assert callable(getattr(import_module(f"{PACKAGE}.inference.{module}"), name))


def test_programs_in_folders_of_scripts_find_the_folders_next_to_theirs():
    """Python puts a program's own folder on the path, and not the one above it."""
    scripts = Path(__file__).parents[1] / "scripts"
    folders = "|".join(path.parent.name for path in scripts.glob("*/__init__.py"))
    assert "serving" in folders
    for path in (each for folder in scripts.iterdir() for each in folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "__main__" in source and re.search(rf"^from ({folders})\b", source, re.MULTILINE):
            assert re.search(r"^sys\.path\.insert\(", source, re.MULTILINE), path


def test_every_package_has_a_level():
    places = {place for module in MODULES if (place := place_of(module))[0] in LEVELS}
    assert not places ^ LEVEL_OF.keys(), "only here, or only in the table"


# What a backend may know of the modules next to it in kernels/: how libraries are built, what a device is, alignment and types.
SHARED = {"alignment", "build", "device", "types"}
# The operations that a fused one calls for shapes that its own kernel does not take.
FUSED = {
    "cuda.norm_and_cache": {"cache_write", "fp32_ops", "quantize"},
    "cuda.kv_up_projection": {"quantize"},
    "cuda.routing": {"quantize"},
}


@pytest.mark.parametrize("backend", ["reference", "tile", "cuda"])
def test_backends_know_types_and_the_reference_at_most(backend):
    """A specification imports only types and other specifications."""
    modules = [module for module in MODULES if place_of(module) == ("kernels", backend)]
    assert modules
    allowed = {"reference", backend, "types"} | (SHARED if backend != "reference" else set())
    for module in modules:
        used = {place_of(target)[1] for target in graph()[module] if place_of(target)[0] == "kernels"}
        assert used - {"__init__"} <= allowed | FUSED.get(module.split(".kernels.")[1], set()), module


def test_scripts_import_no_tests():
    for module, path in find_modules("scripts").items():
        heads = {origin.split(".")[0] for origin, _ in imported_names(module, path)}
        assert not heads & {"tests", "support", "conftest", *FOLDERS}, path


@pytest.mark.parametrize("folders", [(*FOLDERS, "scripts"), ("tests",)], ids=["product", "tests"])
def test_no_import_circle(folders):
    """Imports inside functions and for type checkers count: a reader has to follow them too."""
    circle = import_circle(import_graph(find_modules(*folders)))
    assert not circle, " -> ".join(circle)


A, B = f"{PACKAGE}.model.a", f"{PACKAGE}.model.b"


@pytest.mark.parametrize(
    "package, a, b, circle",
    [
        ("", "def f():\n    from .b import x", f"import {A}", {A, B}),
        (
            "",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import b",
            "from ..model.a import x",
            {A, B},
        ),
        ("from .a import x", "from . import x", "", {f"{PACKAGE}.model", A}),
        ("from .a import x", "from . import b", "import a, sys", set()),
    ],
    ids=["in a function", "for type checkers", "through a package", "none"],
)
def test_a_made_up_circle_is_found(tmp_path, package, a, b, circle):
    (tmp_path / "model").mkdir()
    for name, source in {"__init__": package, "a": a, "b": b}.items():
        (tmp_path / "model" / f"{name}.py").write_text(source)
    assert set(import_circle(import_graph(find_modules("model", root=tmp_path)))) == circle


@pytest.mark.parametrize("module", MODULES)
def test_files_have_one_subject(module):
    lines = len(MODULES[module].read_text(encoding="utf-8").splitlines())
    assert lines <= 500, f"{lines} lines: what is its second subject?"
