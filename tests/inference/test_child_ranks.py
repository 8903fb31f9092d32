"""LLM(tensor_parallel_size=2): one program starts its other ranks, over gloo, and they end with it, however it ends.

Most tests take as long as it takes to start processes that import torch.
"""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.distributed.connection import Children
from deepseek_v32.inference.distributed.job import Leader
from support.job import ENVIRONMENT, PATIENT

pytestmark = pytest.mark.heavy
# More than five steps can give with drafts, however many are right: Ctrl-C in the fifth comes before any answer's end.
GREEDY = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
PROMPTS = [[(i * step + 5) % 997 for i in range(count)] for step, count in ((37, 3), (11, 130), (53, 190))]
OPTIONS: dict[str, Any] = {"device": "cpu", "precision": "exact", "max_batch_tokens": 64, "page_count": 16}


def processes_of(llm: LLM) -> list[subprocess.Popen[bytes]]:
    job = llm._job
    assert isinstance(job, Leader) and job.children is not None
    return job.children.processes


def tokens(llm: LLM) -> list[list[int]]:
    return [each.token_ids for each in llm.generate(PROMPTS, GREEDY)]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    with LLM(**OPTIONS) as llm:
        return tokens(llm)


def test_ranks_answer_as_one_process_also_after_ctrl_c(
    expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a forward pass, as a terminal sends it: the answer ends, and no rank is left in a collective."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads = torch.get_num_threads()
    with LLM(**OPTIONS, tensor_parallel_size=2) as llm:
        assert torch.get_num_threads() == max(threads // 2, 1)
        assert llm.tensor_parallel_size == 2 and "2 ranks" in repr(llm)
        assert tokens(llm) == expected
        calls = iter(range(1000))

        def interrupt(*_: Any) -> None:
            if next(calls) in (1, 6):
                signal.raise_signal(signal.SIGINT)

        llm.model.layers[1].register_forward_pre_hook(interrupt)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                llm.generate(PROMPTS, GREEDY)
        assert tokens(llm) == expected and llm.stats().finished == {"length": 6, "abort": 6}
        with pytest.raises(
            ValueError, match=r"tensor_parallel_size is 2; expected 1 while .*: close\(\) the other LLM"
        ):
            LLM(**OPTIONS, tensor_parallel_size=2)
        [child] = processes_of(llm)
        stream = llm.stream(PROMPTS[0], GREEDY)
        next(stream)
    assert child.returncode == 0  # in order
    assert torch.get_num_threads() == threads and repr(llm) == "LLM(closed)"
    with pytest.raises(ValueError, match="LLM is closed; expected an open one"):
        next(stream)
    with pytest.raises(ValueError, match="LLM is closed; expected an open one"):
        llm.generate(PROMPTS, GREEDY)
    llm.close()


def test_children_end_with_an_llm_that_nobody_closes_but_not_before_its_streams() -> None:
    llm = LLM(**OPTIONS, tensor_parallel_size=2)
    [child] = processes_of(llm)
    stream = llm.stream(PROMPTS[0], GREEDY)
    next(stream)
    del llm
    gc.collect()
    assert child.poll() is None and len(list(stream)) == GREEDY.max_tokens - 1
    del stream
    gc.collect()
    assert child.returncode == 0  # in order


@pytest.mark.parametrize(
    "bad, message",
    [({"speculative_tokens": 9}, "speculative_tokens is 9"), ({"max_model_len": 10**9}, "max_model_len is 1000000000")],
    ids=["before the weights", "after them"],
)
def test_an_error_in_loading_ends_the_children(
    bad: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error leaves nothing that the next LLM could find."""
    started: list[subprocess.Popen[bytes]] = []

    class Watched(Children):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            started.extend(self.processes)

    monkeypatch.setattr("deepseek_v32.inference.distributed.launch.Children", Watched)
    with pytest.raises(ValueError, match=message):
        LLM(**OPTIONS | bad, tensor_parallel_size=2)
    assert [each.returncode for each in started] != [None] and not torch.distributed.is_initialized()


def test_an_error_in_closing_leaves_no_alarm_and_no_children() -> None:
    """An armed alarm would kill the caller's process later."""

    def fail() -> None:
        raise RuntimeError("a graph cannot be freed")

    llm = LLM(**OPTIONS, tensor_parallel_size=2)
    [child] = processes_of(llm)
    assert llm._job is not None
    llm._job.before_end.append(fail)
    earlier = signal.alarm(0)
    try:
        with pytest.raises(RuntimeError, match="a graph cannot be freed"):
            llm.close()
        assert signal.alarm(0) == 0 and child.returncode is not None
    finally:
        signal.alarm(earlier)
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("value", [3, 0, 16, -2, True, "2", 2.0, [2]])
def test_other_sizes_are_refused(value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        LLM(**OPTIONS, tensor_parallel_size=value)
    assert str(caught.value) == f"tensor_parallel_size is {value!r}; expected 1, 2, 4 or 8"


@pytest.mark.parametrize("value", [1, 2])
def test_torchrun_and_the_argument_exclude_each_other(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    message = f"tensor_parallel_size is {value}; expected none under torchrun, which has started 4 ranks"
    with pytest.raises(ValueError, match=message):
        LLM(**OPTIONS, tensor_parallel_size=value)


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("deepseek_v32.inference.distributed.model_source.check_backend", lambda *_: None)
    with pytest.raises(ValueError, match=r"^tensor_parallel_size is 4; expected at most 2, the number of GPUs$"):
        LLM(**OPTIONS | {"device": "cuda"}, tensor_parallel_size=4)
    with pytest.raises(ValueError, match=r"^device is 'cuda:1'; expected cuda or cpu: each of the 2 ranks has a GPU"):
        LLM(**OPTIONS | {"device": "cuda:1"}, tensor_parallel_size=2)


# No `if __name__ == "__main__"`. It prints the child's process id, then what the arguments say.
SCRIPT = """
import json, os, sys, time
from deepseek_v32.inference import LLM, SamplingParams

llm = LLM(device="cpu", precision="exact", max_batch_tokens=64, page_count=16, tensor_parallel_size=2)
print(llm._job.children.processes[0].pid, flush=True)
if "fork" in sys.argv and os.fork() == 0:  # a copy, which keeps rank 0's end of the channel open
    os.closerange(0, 3)
    time.sleep(60)
    os._exit(0)
"""
ENDLESS = """
for delta in llm.stream([5] * 40, SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)):
    if delta.token_ids:
        print("generating", flush=True)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts a script as a program of its own, in a session of its own; returns it and its child's process id."""
    programs: list[subprocess.Popen[str]] = []

    def start(*command: object) -> tuple[subprocess.Popen[str], int]:
        program = subprocess.Popen(
            [sys.executable, *map(str, command)],
            **{"env": os.environ | ENVIRONMENT, "cwd": tmp_path, "text": True, "start_new_session": True},
            **dict.fromkeys(("stdout", "stderr"), subprocess.PIPE),
        )
        programs.append(program)
        assert program.stdout is not None
        return program, int(program.stdout.readline() or 0)

    yield start
    for program in programs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def ends(process: int, seconds: float = 30.0) -> bool:
    """Tell whether a process that is not ours ends in this time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_script_needs_no_guard_and_its_own_error_ends_all(
    started: Any, expected: list[list[int]], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"{SCRIPT}\nanswers = llm.generate({PROMPTS}, SamplingParams(temperature=0, max_tokens=32, ignore_eos=True))\n"
        "print(json.dumps([each.token_ids for each in answers]), flush=True)\nraise RuntimeError('my own')"
    )
    program, child = started(script)
    out, errors = program.communicate(timeout=60)
    assert json.loads(out) == expected
    assert program.returncode == 1 and errors.splitlines()[-1] == "RuntimeError: my own"
    assert errors.count("Traceback") == 1 and "deepseek-v32" not in errors
    assert ends(child)


def test_children_end_with_a_killed_parent_even_if_it_has_forked(started: Any) -> None:
    program, child = started("-c", SCRIPT + ENDLESS, "fork")
    assert program.stdout.readline() == "generating\n"
    program.kill()
    assert ends(child)


def test_a_killed_child_ends_the_program_with_one_line(started: Any) -> None:
    program, child = started("-c", PATIENT + SCRIPT + ENDLESS)
    assert program.stdout.readline() == "generating\n"
    os.kill(child, signal.SIGKILL)
    _, errors = program.communicate(timeout=30)
    assert program.returncode == 1
    assert errors.splitlines() == ["deepseek-v32: rank 1 of 2 has died, and the job with it"]
