"""--help on a terminal of 80 columns, and the names by which options are called in errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from deepseek_v32.inference.commands import cli, loading
from deepseek_v32.inference.commands.batch import read_requests
from support.chain_model import make_llm

GROUP = typer.main.get_command(cli.app)
COMMANDS = GROUP.commands
TEXT = 40  # columns of a text that reads well


def help_of(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(cli.app, [*name, "--help"])
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_readable_at_80_columns(name, monkeypatch):
    shown = help_of([name], monkeypatch)
    assert max(map(len, shown.splitlines())) <= 80
    for parameter in COMMANDS[name].params:
        for option in filter(lambda text: text.startswith("--"), [*parameter.opts, *parameter.secondary_opts]):
            assert re.search(rf"(^|[\s,/]){re.escape(option)}($|[\s,])", shown, re.MULTILINE), f"{option} is cut"
    body = shown.partition("\nExamples:")[0].partition("Options:")[2]
    columns = [len(line) - len(line.lstrip()) for line in body.splitlines() if re.match(r" {6,}\S", line)]
    assert max(columns, default=0) <= 80 - TEXT, "the column in which texts go on"
    examples = shown.partition("\nExamples:\n")[2].splitlines()
    assert 2 <= sum(line.startswith("  deepseek-v32 ") for line in examples) <= 3


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_survive_copying(name, monkeypatch, tmp_path):
    """A shell runs the lines as --help shows them: each call of the program has options that it knows."""
    examples = help_of([name], monkeypatch).partition("\nExamples:\n")[2]
    stub = 'deepseek-v32() { printf "%s\\0" "$#" "$@" >> calls; }; curl() { :; };'
    subprocess.run(["bash", "-ec", f"{stub}\n{examples}"], cwd=tmp_path, check=True, env={"KEY": "12345678"})
    words = (tmp_path / "calls").read_bytes().decode().split("\0")[:-1]
    while words:
        count = 1 + int(words[0])
        command, *arguments = words[1:count]
        words = words[count:]
        COMMANDS[command].make_context(command, arguments).close()
    if name == "batch":
        assert [request.body for request in read_requests(tmp_path / "requests.jsonl")] == [{"prompt": "Hi"}]


@pytest.mark.parametrize(
    ("command", "arguments", "name", "value"),
    [
        ("generate", ["--max-tokens", "7"], "max_new_tokens", 7),
        ("bench", ["--max-tokens", "7"], "max_new_tokens", 7),
        ("bench", ["--new-tokens", "7"], "max_new_tokens", 7),
        ("serve", ["--max-num-seqs", "7"], "max_sequences", 7),
        ("serve", ["--max-num-batched-tokens", "7"], "max_batch_tokens", 7),
        ("serve", ["--gpu-memory-utilization", "0.5"], "memory_fraction", 0.5),
        ("serve", ["/weights"], "checkpoint", Path("/weights")),
    ],
)
def test_names_that_other_programs_use(command, arguments, name, value):
    with COMMANDS[command].make_context(command, arguments) as context:
        assert context.params[name] == value


def test_serve_takes_one_model():
    error = CliRunner().invoke(cli.app, ["serve", "/one", "--model", "/other"]).exception
    assert str(error) == "the model is /one and --model /other; expected one of them"
    error = CliRunner().invoke(cli.app, ["serve", "/nowhere"]).exception
    assert str(error).startswith("--model: '/nowhere'")


def test_ranks_without_a_gpu_are_not_silent(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    error = CliRunner().invoke(cli.app, ["generate", "Hi", "--tensor-parallel-size", "8"]).exception
    expected = "expected 1 where no GPU is visible, or device cpu for 8 processes on this machine's CPU"
    assert str(error) == f"--tensor-parallel-size is 8; {expected}"


def test_options_stand_in_groups(monkeypatch):
    shown = help_of(["generate"], monkeypatch)
    titles = re.findall(r"^(\w.*):$", shown, re.MULTILINE)
    assert titles == [
        *("Arguments", "Options", "Sampling", "Model", "Hardware", "Diagnosis", "Limits of the engine", "Examples"),
    ]
    sampling = shown.partition("\nSampling:\n")[2].partition("\nModel:\n")[0]
    assert all(
        re.search(f"  --{name}[ ,]", sampling) for name in ("top-k", "min-p", "presence-penalty", "max-new-tokens")
    )
    assert "--max-model-len" not in sampling and "--max-model-len" in shown
    shown = help_of([], monkeypatch)
    assert "--install-completion" in shown and "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-new-tokens", "0"], "--max-new-tokens is 0; expected at least 1"),
        (["--top-p", "2"], "--top-p is 2.0; expected above 0 and at most 1"),
        (["--stop", ""], "--stop holds ''; expected non-empty strings"),
        (["--max-model-len", "1"], "--max-model-len is 1; expected 2 to"),
        (["--memory-fraction", "2"], "--memory-fraction is 2.0; expected above 0"),
        (["--speculative-tokens", "9"], "--speculative-tokens is 9; expected 0 to 4"),
        (["--device", "toaster"], "--device is 'toaster'; expected"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_name_the_option_that_was_typed(arguments, message):
    error = CliRunner().invoke(cli.app, ["generate", "Hi", *arguments]).exception
    assert isinstance(error, ValueError) and str(error).startswith(message)


def test_an_argument_keeps_its_name(monkeypatch):
    monkeypatch.setattr(loading, "load_llm", lambda *_, **__: make_llm())
    error = CliRunner().invoke(cli.app, ["generate", "abc " * 600]).exception
    assert str(error).startswith("prompt has ")


def test_sampling_options_replace_the_checkpoints_defaults(monkeypatch):
    llm, seen = make_llm(("</think>", "Hey")), []
    llm.default_params = type(llm.default_params)(temperature=0.6, top_p=0.9, max_tokens=9)
    monkeypatch.setattr(loading, "load_llm", lambda *_, **__: llm)
    queue = llm.engine.queue
    monkeypatch.setattr(llm.engine, "queue", lambda request: seen.append(request.params) or queue(request))
    options = ["--top-p", "0.5", "--top-k", "7", "--min-p", "0.1", "--repetition-penalty", "1.2", "--seed", "3"]
    assert CliRunner().invoke(cli.app, ["generate", "Hi", *options]).exit_code == 0
    llm.requests.max_new_tokens = 9  # the checkpoint states it
    assert CliRunner().invoke(cli.app, ["generate", "Hi"]).exit_code == 0
    params, stated = seen
    assert stated.max_tokens == 9
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.6, 0.5, 7, 0.1)
    assert (params.repetition_penalty, params.seed, params.max_tokens) == (1.2, 3, 1024)


@pytest.mark.parametrize(
    ("chosen", "cores", "load", "spins"),
    [
        ({}, 2, 0.0, cli.SPINS),
        ({}, 16, 9.0, cli.SPINS),
        ({}, 16, 7.0, None),
        ({"GOMP_SPINCOUNT": "7"}, 2, 9.0, "7"),
        ({"OMP_WAIT_POLICY": "active"}, 2, 9.0, None),
    ],
)
def test_threads_wait_briefly_on_few_or_busy_cores(monkeypatch, chosen, cores, load, spins):
    monkeypatch.setattr(os, "environ", chosen)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    cli.run(lambda: None)
    assert os.environ.get("GOMP_SPINCOUNT") == spins


def test_the_program_does_not_wait_for_torch():
    """--help comes at once, and the number of spins is chosen before torch reads it."""
    program = "import sys; from deepseek_v32.inference.commands import cli; print('torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert seen.stdout == "False\n"
