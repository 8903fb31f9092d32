"""The installed programs, run as users run them, on a small random checkpoint."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from support.forked_ranks import run_program
from tiny_model.checkpoint import TINY, write_checkpoint
from tiny_model.tokenizer import write_tokenizer

COMMAND = [str(Path(sys.executable).with_name("deepseek-v32"))]
PARTS = ("projections", "indexer", "attention", "output projection")  # ranges of a layer in a profile
MODULE = [sys.executable, "-m", "deepseek_v32.inference.generate"]
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(path, TINY)
    write_tokenizer(path, TINY.vocab_size, ["the quick brown fox"] * 20)
    return path


def execute(*command, stdin=""):
    """Returns (exit code, standard output, standard error); fails on a traceback."""
    done = subprocess.run(
        [*map(str, command)], input=stdin, capture_output=True, text=True, errors="replace", timeout=120, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def execute_forked(*arguments):
    """`deepseek-v32` with these arguments, as `execute`, in a process that has imported what the command needs."""
    done = run_program("from deepseek_v32.inference.commands.cli import main; main()", *arguments)
    assert "Traceback" not in done.err
    return done.code, done.out, done.err


def test_ctrl_c_while_modules_are_imported_is_silent():
    """The finder of modules stands for a signal that comes then."""
    program = """
import sys
from deepseek_v32.inference import commands
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
commands.main()
"""
    assert execute(sys.executable, "-c", program) == (130, "", "")


def test_deepseeks_own_flags(checkpoint, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\n\ntwo\n")
    flags = [
        "--ckpt-path",
        checkpoint,
        "--config",
        checkpoint / "config.json",
        "--max-new-tokens",
        4,
        "--temperature",
        0,
    ]
    module = "import runpy; runpy.run_module('deepseek_v32.inference.generate', run_name='__main__')"
    done = run_program(module, *flags, "--input-file", prompts)
    code, out, err = done.code, done.out, done.err
    assert code == 0 and "Traceback" not in err, err
    assert out.startswith("Prompt: one\nCompletion: ") and "\n\nPrompt: two\nCompletion: " in out
    code, out, err = execute(*MODULE, *flags, "--interactive", stdin="one\n/exit\n")
    assert code == 0 and "4 tokens" in err


def test_the_same_seed_gives_the_same_answer(checkpoint):
    ask = ["generate", "one", "--model", checkpoint, "--max-new-tokens", 4, "--seed", 5, "--json"]
    first, second = execute(*COMMAND, *ask), execute_forked(*ask)
    assert first[0] == second[0] == 0, first[2]
    assert json.loads(first[1])["text"] == json.loads(second[1])["text"]
    assert "exact precision, reference kernels" in first[2]


def test_a_reader_that_leaves_is_no_error(checkpoint):
    generate = [*COMMAND, "generate", "one", "--model", checkpoint, "--max-new-tokens", 64]
    pipeline = f"({' '.join(map(str, generate))}; echo code $? >&2) | head -c 1"
    code, _, err = execute("sh", "-c", pipeline)
    assert code == 0 and "code 0" in err and "Broken" not in err and "Exception" not in err


def test_the_version():
    code, out, _ = execute(*COMMAND, "--version")
    assert (code, out) == (0, f"deepseek-v32 {version('deepseek-v32')}\n")


@pytest.mark.parametrize(
    ("name", "content", "mention"),
    [
        ("config.json", b"{", "config.json"),
        ("model.safetensors", b"not a safetensors file", "model.safetensors"),
        ("tokenizer.json", b"{}", "tokenizer.json"),
        ("tokenizer.json", None, "tokenizer.json"),
        ("config.json", None, "config.json"),
    ],
    ids=["config", "weights", "tokenizer", "no-tokenizer", "no-config"],
)
def test_a_bad_checkpoint_is_one_line_and_exit_code_2(checkpoint, tmp_path, name, content, mention):
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    code, out, err = execute_forked("generate", "one", "--model", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("deepseek-v32: ") and err.count("\n") == 1 and mention in err


def test_a_checkpoint_without_tokenizer_takes_token_ids(checkpoint, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((checkpoint / name).read_bytes())
    ids = tmp_path / "ids.jsonl"
    ids.write_text('{"token_ids": [3, 4, 5], "max_tokens": 3, "ignore_eos": true}\n')
    code, out, err = execute_forked("generate", "--model", tmp_path, "--input-file", ids)
    assert code == 0, err
    assert len(json.loads(out)["token_ids"]) == 3


def test_doctor_and_help_need_no_model():
    code, out, _ = execute(*COMMAND, "doctor")
    assert code == 0 and "sparse_mla_prefill" in out and "reference" in out
    code, out, _ = execute_forked("--help")
    assert code == 0 and "generate" in out and "doctor" in out


def test_a_profile_is_a_trace_that_viewers_open(checkpoint, tmp_path):
    trace = tmp_path / "trace.json"
    assert TINY.index_topk < 80  # so that the prompts reach the indexer
    profile = ["bench", "--model", checkpoint, "--prompt-tokens", 80, "--batch", 2, "--profile", trace]
    code, out, err = execute_forked(*profile)
    assert code == 0, err
    assert json.loads(out)["profile"] == str(trace)
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    layers = range(TINY.num_hidden_layers)
    assert {"embedding", "head"} | {f"layer {layer}/{part}" for layer in layers for part in PARTS} <= names
    assert any(name.startswith("aten::") for name in names if name)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    code, _, err = execute_forked(*profile[:-1], tmp_path / "trace.txt")
    assert code == 2 and "expected a name that ends in .json" in err
