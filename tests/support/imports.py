"""The project's modules and which of them import which, read from the sources: nothing is imported to find out."""

import ast
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "deepseek_v32"
# The folders of the package. Each may import itself and the folders before it.
FOLDERS = ("kernels", "model", "inference")


def sources(*folders: str, root: Path = ROOT) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def find_modules(*folders: str, root: Path = ROOT) -> dict[str, Path]:
    """Modules by the name that others import them by; a package's `__init__` has the package's name.

    Scripts import each other, and tests import support, by the path inside their folder.
    """
    modules = {}
    for path in sources(*folders, root=root):
        folder, *parts = path.relative_to(root).with_suffix("").parts
        parts = [PACKAGE, folder, *parts] if folder in FOLDERS else parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported_names(module: str, path: Path) -> list[tuple[str, str]]:
    """(module, name) of every import in a file, those in functions and for type checkers included.

    `name` is empty in `import module`. Relative imports are resolved.
    """
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [(origin, alias.name) for alias in node.names]
    return found


def import_graph(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules in `modules` that it imports. `from a import b` imports a.b if that is a module, else a."""
    graph = {}
    for module, path in modules.items():
        names = imported_names(module, path)
        graph[module] = {whole if (whole := f"{origin}.{name}") in modules else origin for origin, name in names}
        graph[module] &= modules.keys()
    return graph


def import_circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The modules of one import circle, the first of them again at the end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
