"""The deterministic mode over NCCL: for a given number of GPUs, bits depend on nothing else."""

import json

import pytest
import torch

from deepseek_v32.kernels.device import is_hopper
from support.job import Job

COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        COUNT < 2 or not is_hopper(torch.device("cuda", 0)), reason="needs several Hopper GPUs on one machine"
    ),
]
SIZES = [pytest.param(size, marks=pytest.mark.skipif(size > COUNT, reason=f"needs {size} GPUs")) for size in (2, 4, 8)]

# Rows of the released width: 146 of bf16 fill the 2 MB that go through memory shared by the GPUs; NCCL takes what is larger.
SUMS = """
import json
import torch
import torch.distributed as dist
from deepseek_v32.inference.distributed.launch import this_job

job = this_job()
device = torch.device("cuda", job.rank)
ranks = job.ranks(str(device))
found = []
for dtype in (torch.bfloat16, torch.float32):
    generator = torch.Generator(device).manual_seed(job.rank)
    x = torch.randn(2, 1000, 7168, device=device, generator=generator)
    x = (x[0] * x[1].mul_(2).exp_()).to(dtype)  # numbers of wide exponents
    whole = ranks.all_reduce(x.clone(), in_order=True)
    for first, count in ((0, 1), (999, 1), (7, 3), (100, 73), (100, 74), (31, 146), (31, 147), (500, 300), (1, 999)):
        rows = slice(first, first + count)
        part = ranks.all_reduce(x[rows].clone(), in_order=True)
        found.append([str(dtype), count, part.nbytes, int((part != whole[rows]).sum())])
    again = ranks.all_reduce(x.clone(), in_order=True)
    found.append([str(dtype), 1000, again.nbytes, int((again != whole).sum())])
torch.cuda.synchronize()
if job.rank == 0:
    print(json.dumps({"found": found, "shared": ranks._shared is not None}))
dist.destroy_process_group()
"""

# Logits of the demo in one step of 6,000 tokens, whose sums have 3 MB, and in smaller ones; answers in a batch and one by one.
ENGINE = """
import json, sys
import torch
from deepseek_v32.inference import LLM, SamplingParams

def main(precision, deterministic):
    limits = {"page_count": 1024, "max_sequences": 8, "max_batch_tokens": 8192, "max_model_len": 8192}
    with LLM(device="cuda", precision=precision, deterministic=deterministic, **limits) as llm:
        tokens = [3 + i * 7919 % (llm.config.vocab_size - 3) for i in range(6000)]
        whole = llm.logits(tokens, 6000)
        differ = {}
        for count, chunk in ((6000, 2500), (6000, 700), (700, 33), (40, 1)):
            rows = llm.logits(tokens[:count], chunk)
            differ[f"chunks of {chunk}"] = int((rows != whole[:count]).any(1).sum())
        prompts = [tokens[first : first + count] for first, count in ((0, 5), (9, 130), (3, 700), (0, 4500), (77, 60), (5, 1))]
        params = SamplingParams(temperature=0.7, seed=3, max_tokens=12, logprobs=1, ignore_eos=True)
        def numbers(completion):
            return completion.token_ids, [token.logprob for token in completion.logprobs]
        together = [numbers(each) for each in llm.generate(prompts, params)]
        one_by_one = [numbers(llm.generate(prompt, params)[0]) for prompt in prompts]
        differ["answers"] = sum(a != b for a, b in zip(together, one_by_one, strict=True))
        return differ

print(json.dumps(main(sys.argv[1], sys.argv[2] == "True")))
"""


def last_line(size: int, program: str, *arguments: object) -> dict[str, object]:
    """The JSON that rank 0 prints; all ranks end in order."""
    ended = Job(size, program, *arguments).wait(240)
    assert [each.code for each in ended] == [0] * size, "\n".join(each.err[-2000:] for each in ended)
    result: dict[str, object] = json.loads(ended[0].out.splitlines()[-1])
    return result


@pytest.mark.parametrize("size", SIZES)
def test_sums_depend_on_their_own_row_alone(size: int) -> None:
    """Rows have the same bits in parts of a tensor as in the whole, through shared memory and by NCCL."""
    result = last_line(size, SUMS)
    print(result)
    found = result["found"]
    assert isinstance(found, list)
    sizes = [nbytes for *_, nbytes, _ in found]
    assert min(sizes) < 1 << 21 < max(sizes)
    assert [each for each in found if each[-1]] == []


@pytest.mark.parametrize("precision", ["fp8", "bf16"])
@pytest.mark.parametrize("size", SIZES)
def test_logits_and_answers_have_the_same_bits(size: int, precision: str) -> None:
    differ = last_line(size, ENGINE, precision, True)
    print(differ)
    assert len(differ) == 5 and not any(differ.values()), differ


def test_without_the_mode_they_differ() -> None:
    """Without the mode sums differ, so the comparison can fail."""
    assert any(last_line(2, ENGINE, "fp8", False).values())
