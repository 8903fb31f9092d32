"""Several ranks as one engine, over gloo: they give the answers of one process, and their processes end together."""

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.parallel.plan import Plan
from support.forked_ranks import run_ranks
from support.job import ENVIRONMENT, PATIENT, Job, free_port, torchrun
from support.tiny import DIVISIBLE, ODD
from tiny_model.checkpoint import write_checkpoint

pytestmark = pytest.mark.heavy

# Prompts around index_topk, a long one in several chunks, so few pages that requests are preempted, the selected positions,
# teacher-forced logits, and a reused prefix.
WORK = """
import json, sys
from deepseek_v32.inference import LLM, SamplingParams

def main(path):
    llm = LLM(path, device="cpu", precision="exact", max_batch_tokens=64, page_count=7, max_model_len=320)
    vocabulary = llm.config.vocab_size
    prompts = [[(i * step + 5) % vocabulary for i in range(count)] for step, count in ((37, 3), (11, 50), (53, 62), (7, 200))]
    greedy = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    random = SamplingParams(temperature=1, seed=3, max_tokens=4, ignore_eos=True)
    answers = [each.token_ids for each in llm.generate(prompts, greedy)]
    assert llm.stats().preemptions > 0
    answers += [each.token_ids for each in llm.generate(prompts[3], random, inspect=True)]
    inspected = llm.generate(prompts, greedy, inspect=True)
    scored = llm.score_answer(prompts[3][:150], prompts[3][150:])  # rows of several ranks
    selections = [each.selection for each in inspected] + [scored.selections]
    selected = [choice.positions(1).tolist() for each in selections for choice in each]
    best = llm.logits(prompts[3], chunk=50).argmax(1).tolist()
    scores = [float(choice.scores[1].sum()) for each in selections for choice in each if 1 in choice.scores]
    cached = llm.stats().cached_tokens > 0
    return {"answers": answers, "selected": selected, "best": best, "cached": cached, "scores": scores}
"""
# Decodes in buckets without CUDA graphs, and counts the steps that are scheduled ahead.
AHEAD = """
from deepseek_v32.inference.distributed import leading_runner
from deepseek_v32.inference.engine.running import runner

ahead, broadcast = 0, leading_runner.broadcast_sampled_tokens

def count(batch, rank_runner):
    global ahead
    ahead += bool(batch.sampled_rows)
    broadcast(batch, rank_runner)

runner.can_capture, leading_runner.broadcast_sampled_tokens = lambda model: True, count
"""
PROGRAM = WORK + "print(json.dumps(main(sys.argv[1])))"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(directory / "divisible", DIVISIBLE, "fp8", seed=1)
    write_checkpoint(directory / "odd", ODD, "bf16", seed=2)
    return {"divisible": directory / "divisible", "odd": directory / "odd", "demo": DEMO}


@cache
def one_process(path: Path) -> object:
    """The results of a single process."""
    namespace: dict[str, Any] = {}
    exec(WORK, namespace)
    results = json.loads(json.dumps(namespace["main"](path)))
    return results | {"scores": pytest.approx(results["scores"], rel=1e-4)}


def test_the_cases_divide_as_intended() -> None:
    assert all(Plan(DIVISIBLE, 0, size).split[part] for size in (2, 4) for part in Plan(DIVISIBLE).split)
    assert [part for part, split in Plan(ODD, 0, 4).split.items() if split] == ["experts"]


def test_ranks_receive_tokens_that_rank_0_sampled_ahead(checkpoints: dict[str, Path]) -> None:
    """Decode steps in buckets, as on GPUs: the ranks start them before the host has read their input tokens."""
    ended = run_ranks(2, AHEAD + PROGRAM + "; assert ahead > 10, ahead", checkpoints["divisible"])
    assert [each.code for each in ended] == [0, 0], ended[0].err + ended[1].err
    assert json.loads(ended[0].out) == one_process(checkpoints["divisible"])


# Rank 0's own faults, one in each of several runs; the model works. Only a batch that was never sent ends requests.
FAULTS = """
import sys
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.distributed.batch_sync import BatchEncoder
from deepseek_v32.inference.engine import step
from deepseek_v32.inference.engine.request_state import RequestState
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler

def raise_once(owner, name, number):
    work, calls = getattr(owner, name), iter(range(10**9))

    def faulty(*arguments):
        result = work(*arguments)
        if next(calls) == number:
            setattr(owner, name, work)
            raise RuntimeError("no memory")
        return result

    setattr(owner, name, faulty)

llm = LLM(sys.argv[1], device="cpu", precision="exact", max_batch_tokens=64, page_count=4, max_model_len=128)
prompts = [[(i * step + 5) % 997 for i in range(count)] for step, count in ((37, 3), (11, 50), (53, 62))]
greedy = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
expected = [each.token_ids for each in llm.generate(prompts, greedy)]
for owner, name, errors in (
    (step, "sample_tokens", 0), (Scheduler, "schedule", 0), (Scheduler, "start", 0), (Scheduler, "commit", 0),
    (RequestState, "_push", 1), (BatchEncoder, "encode", 3),
):
    raise_once(owner, name, 2)
    found = llm.generate(prompts, greedy)
    failed = [each for each in found if each.error]
    assert len(failed) <= errors, (name, failed)
    for each, tokens in zip(found, expected):
        assert each.token_ids == tokens[:len(each.token_ids)] and (each.error or each.token_ids == tokens), name
assert llm.stats().finished["error"] >= 2 and [each.token_ids for each in llm.generate(prompts, greedy)] == expected
pool = llm.engine.pool
assert pool.used == 0 and sorted([*pool._free, *pool._cached]) == list(range(pool.page_count))
"""


def test_a_fault_of_rank_0_between_two_steps_leaves_the_ranks_in_step(checkpoints: dict[str, Path]) -> None:
    ended = run_ranks(2, AHEAD + FAULTS + "assert ahead > 10, ahead", checkpoints["divisible"])
    assert [each.code for each in ended] == [0, 0], ended[0].err + ended[1].err


@pytest.mark.parametrize(
    ("case", "size"),
    [("divisible", 2), ("demo", 2), ("divisible", 4), ("odd", 4)]
    + [pytest.param(case, 8, marks=pytest.mark.slow) for case in ("divisible", "demo")],  # "odd" has six experts
)
def test_ranks_answer_as_one_process(checkpoints, case, size):
    first, *rest = run_ranks(size, PROGRAM, checkpoints[case])
    assert first.code == 0, first.err
    found = json.loads(first.out)
    assert found == one_process(checkpoints[case]) and len(found["scores"]) > 9
    assert [(each.code, each.out) for each in rest] == [(0, "")] * (size - 1), rest[0].err


# Prints the address that rank 0 listens on.
APART = """
import os, sys
from deepseek_v32.inference.distributed import launch

def accept_ranks(store, size, host, accept=launch.accept_ranks):
    print(host, file=sys.stderr)
    return accept(store, size, host)

os.environ.update(LOCAL_WORLD_SIZE="1", LOCAL_RANK="0")
launch.accept_ranks = accept_ranks
"""


def test_ranks_of_several_machines_answer_as_one_process(checkpoints: dict[str, Path]) -> None:
    """Each rank is told that it is the only one on its machine, as torchrun does; so they talk over TCP."""
    first, other = run_ranks(2, APART + PROGRAM, checkpoints["divisible"])
    assert first.code == 0 and first.err == "127.0.0.1\n", first.err
    assert json.loads(first.out) == one_process(checkpoints["divisible"]) and (other.code, other.out) == (0, "")


def test_the_command_under_torchrun(tmp_path):
    """Only rank 0 reads the command line and answers."""
    questions = [
        "The wifi password of the bakery is amber-kettle-7. What is the wifi password of the bakery?",
        "The meeting is on Tuesday at 14:30 in room 204. Where is the meeting?",
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"id": text, "prompt": text}) + "\n" for text in questions))
    options = ["--input-file", path, "--temperature", "0", "--max-new-tokens", "24"]
    command = torchrun(2, "-m", "deepseek_v32.inference.generate", *options)
    done = subprocess.run(
        command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answers = {answer["id"]: answer["text"] for answer in map(json.loads, done.stdout.splitlines())}
    assert "amber-kettle-7" in answers[questions[0]] and "room 204" in answers[questions[1]]
    assert len(done.stdout.splitlines()) == 2
    assert "2 ranks, 4 of 8 experts on each, 8 of 16 heads, prompts divided by tokens; not divisible" in done.stderr


# Prints its process id, then generates until it is killed.
ENDLESS = """
import os, sys
os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: several ranks may share the pipe
from deepseek_v32.inference import LLM, SamplingParams

llm = LLM(sys.argv[1], device="cpu", precision="exact", page_count=16)
for number, delta in enumerate(llm.stream([5] * 40, SamplingParams(temperature=0, max_tokens=900, ignore_eos=True))):
    if number == 3:
        print("generating", flush=True)
"""


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_takes_the_job_with_it(checkpoints, victim):
    """No agent watches these processes; they watch each other."""
    with Job(4, PATIENT + ENDLESS, checkpoints["demo"]) as job:
        for rank in range(4):
            job.read_line(rank)
        assert job.read_line(0) == "generating"
        job.processes[victim].send_signal(signal.SIGKILL)
        start = time.monotonic()
        ended = job.wait(30)
        assert time.monotonic() - start < 30
    assert all(each.code != 0 for each in ended)
    if victim:
        assert ended[0].err.splitlines() == [f"deepseek-v32: rank {victim} of 4 has died, and the job with it"]
    else:
        for rank, each in enumerate(ended[1:], 1):
            assert each.err.splitlines() == [f"deepseek-v32: rank 0 of 4 has died, and rank {rank} with it"]


def test_torchrun_ends_with_a_killed_rank(checkpoints, tmp_path):
    """As above, under torchrun's agent, which ends when its ranks end."""
    program = tmp_path / "endless.py"
    program.write_text(ENDLESS)
    command = torchrun(2, program, checkpoints["demo"])
    with subprocess.Popen(
        command, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        lines = [agent.stdout.readline().split() for _ in range(3)]
        assert lines[2] == ["generating"]
        ranks = [int(pid) for pid, *_ in lines[:2]]
        os.kill(ranks[1], signal.SIGKILL)
        _, errors = agent.communicate(timeout=30)
        assert agent.returncode != 0
        assert "has died" in errors or "SIGKILL" in errors or "Signal 9" in errors


CAUGHT = """
import sys
from deepseek_v32.inference import LLM

try:
    LLM(sys.argv[1], device="cpu", **eval(sys.argv[2]))
except ValueError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    "name, content, arguments, mention",
    [
        ("model.safetensors", b"broken", {}, "CheckpointError: "),
        ("config.json", b"{", {}, "ConfigError: "),
        ("tokenizer.json", b"{}", {}, "TokenizerError: "),
        ("generation_config.json", b"[]", {}, "TokenizerError: "),
        (None, b"", {"speculative_tokens": 9}, "ArgumentError: speculative_tokens is 9; expected 0 to 4, or 'auto'"),
        (None, b"", {"max_batch_tokens": 0}, "ArgumentError: max_batch_tokens is 0; expected"),  # after the weights
    ],
    ids=["weights", "config", "tokenizer", "defaults", "drafts", "limits"],
)
def test_an_error_in_loading_ends_all(tmp_path, name, content, arguments, mention):
    """Rank 0's error is the only line, and no rank waits."""
    write_checkpoint(tmp_path, DIVISIBLE)
    if name is not None:
        (tmp_path / name).write_bytes(content)
    first, *rest = run_ranks(2, CAUGHT, tmp_path, arguments)
    assert first.code == 1 and first.err.startswith(mention) and len(first.err.splitlines()) == 1
    assert [(each.code, each.out, each.err) for each in rest] == [(1, "", "")]


def test_an_error_of_the_command_ends_all(tmp_path):
    program = "from deepseek_v32.inference.commands.cli import main; main()"
    first, *rest = run_ranks(2, program, "generate", "hello", "--model", tmp_path / "nowhere")
    assert first.code == 2 and first.err.startswith("deepseek-v32: --model") and len(first.err.splitlines()) == 1
    assert [(each.code, each.out, each.err) for each in rest] == [(1, "", "")]


FAILING = """
import os, sys
from deepseek_v32.inference import LLM
from deepseek_v32.model import transformer

if os.environ["RANK"] == sys.argv[2]:
    def broken(self, h):
        raise RuntimeError("the cable\\nis broken")
    transformer.Embedding.logits = broken
llm = LLM(sys.argv[1], device="cpu", precision="exact", page_count=16)
llm.generate([[1, 2, 3]])
"""


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_failing_step_ends_the_job(checkpoints, culprit):
    """No rank knows how far the others got, so none goes on. The one line names the rank that failed."""
    ended = run_ranks(2, FAILING, checkpoints["demo"], culprit)
    assert [each.code for each in ended] == [1, 1]
    assert ended[0].err.splitlines() == [f"deepseek-v32: rank {culprit}: RuntimeError: the cable is broken"]
    assert ended[1].err == ""


@pytest.mark.parametrize(
    "size, settings, message",
    [
        (3, {}, "number of ranks is 3; expected 1, 2, 4 or 8"),
        (2, {"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE is '3'; expected 1 to 2, the WORLD_SIZE"),
        ("many", {}, "WORLD_SIZE is 'many'; expected a number of processes"),
    ],
    ids=["three ranks", "more than all", "not a number"],
)
def test_invalid_jobs_are_refused(size, settings, message):
    program = "from deepseek_v32.inference.commands.cli import main; main()"
    count, settings = size if size == 3 else 1, {"WORLD_SIZE": str(size), **settings}
    first, *_ = run_ranks(count, program, "generate", "hello", "--device", "cpu", settings=settings)
    assert first.code == 2
    assert first.err.startswith(f"deepseek-v32: {message}") and len(first.err.splitlines()) == 1


def test_a_server_is_ended_in_order(checkpoints):
    """SIGTERM to all ranks, as torchrun sends it: rank 0 finishes its open requests, then all ranks end without an error."""
    port = free_port()
    options = ["serve", "--model", str(checkpoints["demo"]), "--port", str(port), "--no-chat", "--device", "cpu"]
    options += ["--model-name", "shared"]
    with Job(2, "from deepseek_v32.inference.commands.cli import main; main()", *options) as job:
        address = f"http://127.0.0.1:{port}"
        while not _is_ready(address):
            assert not any(process.poll() for process in job.processes), job.wait(30)
            time.sleep(0.2)
        body = {"model": "shared", "prompt": "The altitude of", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(httpx.post, f"{address}/v1/completions", json=body, timeout=60)
            while not (answer.done() or httpx.get(f"{address}/health").json()["running"]):
                time.sleep(0.05)
            for process in reversed(job.processes):
                process.send_signal(signal.SIGTERM)
            ended = job.wait(60)
            assert answer.result().status_code == 200
    assert [each.code for each in ended] == [143, 0]
    assert "deepseek-v32:" not in ended[0].err + ended[1].err


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready").status_code == 200
    except httpx.TransportError:
        return False
