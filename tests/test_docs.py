"""The documents name files, functions and links that exist; their commands parse, and their code runs.

A block of code has its language: `python` or `sh`. A block without one is not code: output, a picture, a layout.
"""

import argparse
import ast
import asyncio
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from deepseek_v32.inference.commands.cli import app
from support.doc_blocks import blocks

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("", "docs/", "kernels/", "model/demo/", "scripts/demo_model/")
PAGES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}*.md"))
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


# Where each Python block runs: here, or in the test named.
IN_THIS_FILE = ["docs/dsa.md 0", "docs/follow_one_query.md 0", "docs/offload.md 0", "docs/reliability.md 0"]
ELSEWHERE = {
    "README.md 0": "tests/inference/test_readme_python.py:test_the_example_runs",
    "README.md 1": "tests/inference/test_readme_python.py:test_the_clients_example_runs",
    "docs/conformance.md 0": "tests/conformance/test_trace.py:test_the_hooks_of_the_page_dump_equal_stages",
}


def named_blocks(language: str) -> dict[str, str]:
    """Every block of that language by its page and number. The blocks of docs/follow_one_query.md are one program."""
    found = {page.relative_to(ROOT).as_posix(): blocks(page, language) for page in PAGES}
    found["docs/follow_one_query.md"] = ["".join(found["docs/follow_one_query.md"])]
    return {f"{page} {number}": block for page, each in found.items() for number, block in enumerate(each)}


def test_every_block_of_code_has_a_known_language_and_a_test() -> None:
    fences = [
        (page.name, fence)
        for page in PAGES
        for fence in re.findall(r"^```(\S+)", page.read_text(encoding="utf-8"), re.M)
    ]
    assert {language for _, language in fences} == {"python", "sh"}
    assert not [
        page.name for page in PAGES if re.search(r"^    (python|deepseek-v32|make|scripts/)\b", page.read_text(), re.M)
    ]
    assert named_blocks("python").keys() == {*IN_THIS_FILE, *ELSEWHERE}
    assert not [named for named in ELSEWHERE.values() if missing_functions(named)]


@pytest.mark.parametrize("name", IN_THIS_FILE)
def test_python_runs_also_in_a_notebook(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With an event loop that runs. It prints what its comments say."""
    block = named_blocks("python")[name].replace("WEIGHTS", str(ROOT / "model" / "demo"))

    async def cell() -> None:
        exec(compile(block, name, "exec"), {})

    asyncio.run(cell())
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)


class Parsed(Exception):
    """The arguments have been read."""


def command_of(name: str) -> Any:
    """A command of `deepseek-v32`. KeyError for another name."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group.commands[name]


def parse_script(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a program of scripts/ until it has read its arguments."""
    read = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser) -> None:
        read(self, words[1:])
        raise Parsed

    with monkeypatch.context() as patch, pytest.raises(Parsed):
        patch.setattr(argparse.ArgumentParser, "parse_args", parse)
        patch.setattr(sys, "path", [str((ROOT / words[0]).parent), *sys.path])
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")


OF_OTHERS = {"hf", "your-server"}
LINES = [line for block in named_blocks("sh").values() for line in block.splitlines()]
COMMANDS = sorted({shlex.join(words) for line in LINES if (words := shlex.split(line, comments=True))})


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_parses(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    match Path(program).name:
        case "deepseek-v32":
            command_of(words[0]).make_context(words[0], words[1:])
        case "python":
            parse_script(words, monkeypatch)
        case "make":
            targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            assert set(words) <= set(targets)
        case "pip":
            extras = re.findall(r"\w+", words[-1])
            assert words[:-1] == ["install", "-e"] and set(extras) <= project["project"]["optional-dependencies"].keys()
        case "pytest":
            marks = [mark.partition(":")[0] for mark in project["tool"]["pytest"]["ini_options"]["markers"]]
            assert words[0] == "-m" and words[1] in marks
        case other:
            assert other in OF_OTHERS


SPAN = re.compile(r"`(?:\.venv/bin/)?deepseek-v32 ([^`]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_sentences_have_options_that_exist(page: Path) -> None:
    for span in SPAN.findall(page.read_text(encoding="utf-8")):
        names, *_ = words = span.split()
        if options := {word.partition("=")[0] for word in words if word.startswith("--")} - {
            "--help",
            "--install-completion",
        }:
            assert options <= {name for each in command_of(names).params for name in each.opts}, span


def test_bad_commands_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["serve", "--no-such-option"], ["probe", "--base-url"], ["probe", "--port", "1"]):
        with pytest.raises(Exception, match=r"No such option|requires an argument"):
            command_of(words[0]).make_context(words[0], words[1:])
    with pytest.raises(SystemExit):
        parse_script(["scripts/break_it.py", "--only", "nothing"], monkeypatch)
