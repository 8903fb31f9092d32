"""Several GPUs as one engine, over NCCL: one GPU's answers, the results of their collectives, and how such a job ends."""

import json
import signal
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.device import is_hopper
from support.job import Job
from support.terminal import Terminal

COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        COUNT < 2 or not is_hopper(torch.device("cuda", 0)), reason="needs several Hopper GPUs on one machine"
    ),
]
SIZES = [pytest.param(size, marks=pytest.mark.skipif(size > COUNT, reason=f"needs {size} GPUs")) for size in (2, 4, 8)]

# Questions about facts that a conversation of 100 to 16K tokens states; index_topk is 128.
WORK = """
import json, sys
from deepseek_v32.inference import LLM, SamplingParams
from demo_model.dialogues import write

def main(precision, lengths=(400, 3000, 12_000, 45_000), copies=1, **limits):
    llm = LLM(device="cuda", precision=precision, page_count=4096, max_sequences=16 * copies, **limits)
    prompts, answers, seed = [], [], 0
    while len(prompts) < 16:
        length = lengths[len(prompts) % len(lengths)]
        conversation = write(f"gpu {seed}", length=length, split="test", wording="train", thinking=0.0,
                             functions=0.0)
        seed += 1
        stated = [n for n, turn in enumerate(conversation.turns) if turn.kind == "stated"]
        if stated:  # a short conversation may hold only filler
            prompts.append(llm.chat_token_ids(conversation.messages(until=stated[-1])))
            answers.append(conversation.turns[stated[-1]].value)
    prompts, answers = prompts * copies, answers * copies
    greedy = SamplingParams(temperature=0, max_tokens=40 if copies == 1 else 150, ignore_eos=copies > 1)
    if precision == "exact":
        completions = [llm.generate(prompt, greedy)[0] for prompt in prompts]
    else:
        completions = llm.generate(prompts, greedy)
    correct = sum(each.text.strip().startswith(answer.strip()) for each, answer in zip(completions, answers))
    runner = getattr(llm.engine.runner, "_runner", llm.engine.runner)
    return {
        "tokens": [each.token_ids for each in completions],
        "correct": correct,
        "graphs": runner.graphs.captured if runner.graphs else 0,
    }
"""
PROGRAM = WORK + "print(json.dumps(main(*json.loads(sys.argv[1]), **json.loads(sys.argv[2]))))"
# Steps of up to 31 decodes and some prompt tokens: each of 2 or 4 ranks has 12 rows or more, so that several of them have decodes.
MANY_DECODES = ((200,), 2), {"max_batch_tokens": 48, "reuse_pages": False}


def arguments(precision: str, mixed: bool, **chosen: Any) -> tuple[str, str]:
    more, limits = MANY_DECODES if mixed else ((), {})
    return json.dumps([precision, *more]), json.dumps(limits | chosen)


@cache
def one_gpu(precision: str, mixed: bool = False) -> Any:
    """The results of one GPU, in a process of its own."""
    [one] = Job(1, PROGRAM, *arguments(precision, mixed)).wait(240)
    assert one.code == 0, one.err
    return json.loads(one.out.splitlines()[-1])


def answers(size: int, precision: str, mixed: bool = False, **chosen: Any) -> Any:
    """The results of several GPUs, whose processes all end in order."""
    first, *rest = Job(size, PROGRAM, *arguments(precision, mixed, **chosen)).wait(240)
    assert first.code == 0, first.err
    assert [each.code for each in rest] == [0] * (size - 1), rest[0].err
    return json.loads(first.out.splitlines()[-1])


@pytest.mark.parametrize("size", SIZES)
def test_exact_precision_answers_as_one_gpu_does(size: int) -> None:
    assert answers(size, "exact")["tokens"] == one_gpu("exact")["tokens"]


@pytest.mark.parametrize("size", SIZES)
def test_decode_graphs_with_collectives_answer_correctly(size: int) -> None:
    """The demo has 8, 4 or 2 heads on each rank: fewer than the 16 of the kernels' tiles."""
    results = answers(size, "fp8")
    assert results["graphs"] > 0
    assert results["correct"] >= one_gpu("fp8")["correct"] - 1


@pytest.mark.parametrize("size", SIZES[:2])
def test_decodes_of_divided_steps_answer_correctly(size: int) -> None:
    """A rank after the first begins within the step's lengths and block table, at any row."""
    assert answers(size, "fp8", mixed=True)["correct"] >= one_gpu("fp8", mixed=True)["correct"] - 2


@pytest.mark.parametrize("size", SIZES)
def test_ranks_that_divide_sequences_answer_as_one_gpu_does(size: int) -> None:
    """One sequence at a time: the other ranks compute padding."""
    assert answers(size, "exact", attention="data")["tokens"] == one_gpu("exact")["tokens"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mixed", [False, True])
def test_decode_graphs_of_divided_sequences_answer_correctly(size: int, mixed: bool) -> None:
    """Graphs hold gathers and reduce-scatters of equal parts; `mixed`: other steps have prompts and decodes in unequal parts."""
    results = answers(size, "fp8", mixed=mixed, attention="data")
    assert results["graphs"] > 0
    assert results["correct"] >= one_gpu("fp8", mixed=mixed)["correct"] - (4 if mixed else 1)


COLLECTIVES = """
import json, os
import torch
import torch.distributed as dist
from deepseek_v32.inference.distributed.launch import this_job

job = this_job()
device = torch.device("cuda", job.rank)
ranks = job.ranks(str(device))
errors, same = [], []
for dtype in (torch.bfloat16, torch.float32):
    for count in (8, 7168, 7169, 16 * 7168, 1 << 19, 1 << 20):
        generator = torch.Generator(device).manual_seed(job.rank)
        x = torch.randn(3, count, device=device, generator=generator).to(dtype)
        expected = ranks.all_gather(x).double().sum(0)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            ranks.all_reduce(x[0].clone())
        torch.cuda.synchronize()
        graph, inputs = torch.cuda.CUDAGraph(), torch.empty_like(x[0])
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            total = ranks.all_reduce(inputs.clone())
        for row in range(3):  # one replay after the other
            inputs.copy_(x[row])
            graph.replay()
            result = total.clone()
            error = (result.double() - expected[row]).norm() / expected[row].norm()
            all_ranks = ranks.all_gather(result.view(torch.uint8))
            errors.append([str(dtype), count, error.item()])
            same.append(bool((all_ranks == all_ranks[0]).all()))
        del graph
torch.cuda.synchronize()
dist.destroy_process_group()
if job.rank == 0:
    print(json.dumps({"errors": errors, "same": all(same), "shared": ranks._shared is not None}))
"""


@pytest.mark.parametrize("size", SIZES)
def test_every_rank_computes_the_same_sums(size: int) -> None:
    """Sums in CUDA graphs agree on all ranks for small and large tensors, in whole vectors or not, by shared memory or NCCL."""
    first, *_ = Job(size, COLLECTIVES).wait(120)
    assert first.code == 0, first.err
    result = json.loads(first.out.splitlines()[-1])
    print("memory shared between GPUs:", result["shared"])
    assert result["same"]
    for dtype, count, error in result["errors"]:
        assert error < (1e-2 if "bfloat16" in dtype else 1e-6), (dtype, count, error)


# Prints its process id, then decodes until it is killed.
ENDLESS = """
import os
os.write(1, f"{os.getpid()}\\n".encode())
from deepseek_v32.inference import LLM, SamplingParams

llm = LLM(device="cuda", precision="fp8", page_count=64, max_sequences=4)
params = SamplingParams(temperature=0, max_tokens=2000, ignore_eos=True)
while True:
    for number, delta in enumerate(llm.stream([5] * 40, params)):
        if number == 20:
            print("generating", flush=True)
"""


@pytest.mark.parametrize(("size", "victim"), [(2, 0), (2, 1), (4, 3)])
def test_a_killed_rank_takes_the_job_with_it(size: int, victim: int) -> None:
    """A rank dies in the middle of a CUDA graph, while the others wait for it in a collective on the device, and all end."""
    if size > COUNT:
        pytest.skip(f"needs {size} GPUs")
    with Job(size, ENDLESS) as job:
        for rank in range(size):
            job.read_line(rank)
        assert "generating" in iter(partial(job.read_line, 0), ""), "NCCL may print its version before that"
        time.sleep(1)
        job.processes[victim].send_signal(signal.SIGSTOP)
        time.sleep(1)  # the others reach the collective that it does not join
        start = time.monotonic()
        job.processes[victim].send_signal(signal.SIGKILL)
        ended = job.wait(30)
        print(f"ended after {time.monotonic() - start:.1f} s")
    assert all(each.code != 0 for each in ended)
    if victim:
        assert f"deepseek-v32: rank {victim} of {size} has died, and the job with it" in ended[0].err.splitlines()
    else:
        for rank, each in enumerate(ended[1:], 1):
            assert f"deepseek-v32: rank 0 of {size} has died, and rank {rank} with it" in each.err.splitlines()


def test_ctrl_c_stops_an_answer_of_a_chat_on_two_gpus(tmp_path: Path) -> None:
    """The program starts the second rank by itself, and the terminal's signal reaches both. The chat goes on, and ends in order."""
    facts = " ".join(f"The code of Hall {number} is {1000 + number}." for number in range(500))
    talk = tmp_path / "talk.json"
    talk.write_text(json.dumps([{"role": "user", "content": facts}, {"role": "assistant", "content": "Thank you."}]))
    used = max(1 - free / total for free, total in (torch.cuda.mem_get_info(gpu) for gpu in range(2)))  # by others
    options = ["--device", "cuda", "--tensor-parallel-size", "2", "--memory-fraction", f"{used + 0.15:.3f}"]
    command = [sys.executable, "-P", "-m", "deepseek_v32.inference.generate", *options, "--no-history"]
    with Terminal(command) as terminal:
        terminal.wait_for(">>>", 90)
        terminal.send(f"/load {talk}\r")
        terminal.wait_for("2 messages loaded")
        for setting in ("temperature 0", "max_tokens 8000", "min_tokens 8000"):  # an answer of many seconds
            terminal.send(f"/set {setting}\r")
            terminal.wait_for(f"{setting.split()[0]} is {setting.split()[1]}")
        terminal.send("What is the code of Hall 8?\r")
        terminal.wait_for("You said")
        terminal.send("\x03")
        terminal.wait_for("stopped")
        terminal.send("/set min_tokens 0\r")
        terminal.send("/clear\r")
        terminal.wait_for("is forgotten")
        terminal.send("The code of Hall 5 is 1005. What is the code of Hall 5?\r")
        terminal.wait_for("1005. You said")
        terminal.wait_for("tokens/s")
        terminal.wait_for(">>>")
        terminal.send("\x04")
        assert terminal.process.wait(30) == 0
