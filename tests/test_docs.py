"""The documents name files, functions and links that exist, and the code of docs/dsa.md runs."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path for pattern in ("*.md", "docs/*.md", "kernels/*.md", "model/demo/*.md") for path in ROOT.glob(pattern)
)
FUNCTION = re.compile(r"\b((?:model|kernels|inference|scripts|tests)/[\w/]+\.py):([\w.]+\w)")
LINK = re.compile(r"\]\(([^)#\s]+)")


def defined(path: Path) -> set[str]:
    """The functions and classes of a file, methods as Class.method."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return names


def missing_functions(text: str) -> list[str]:
    """Every `path.py:function` of a text that the tree does not have."""
    return [
        f"{path}:{name}"
        for path, name in FUNCTION.findall(text)
        if not (ROOT / path).exists() or name not in defined(ROOT / path)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_functions_exist(page: Path) -> None:
    assert not missing_functions(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_checks_can_fail() -> None:
    assert missing_functions("see model/attention.py:no_such_function and model/nowhere.py:forward") == [
        "model/attention.py:no_such_function",
        "model/nowhere.py:forward",
    ]
    assert not missing_functions("model/attention.py:MultiHeadLatentAttention.forward")


def test_the_function_table_of_dsa_is_read() -> None:
    assert len(FUNCTION.findall((ROOT / "docs" / "dsa.md").read_text(encoding="utf-8"))) >= 15


CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_code_of_dsa_runs_and_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = CODE.findall((ROOT / "docs" / "dsa.md").read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/dsa.md", "exec"), {})
        said = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == said
