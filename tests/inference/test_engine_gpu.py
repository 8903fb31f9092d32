"""The engine on a Hopper GPU: compiled kernels, decode graphs, and the CPU's answers in exact precision."""

import random
import time

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.model.demo.conversations import write

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and is_hopper(torch.device("cuda", 0))), reason="needs a Hopper GPU"
    ),
]

GREEDY = SamplingParams(temperature=0, max_tokens=40)
PAGES = 4096
LENGTHS = (300, 3000, 12_000, 45_000)  # characters: about 100, 1K, 4K and 16K tokens; index_topk is 128


def questions(llm: LLM, count: int) -> tuple[list[list[int]], list[str]]:
    """Prompts that end in a question about something told in them, and the right answers."""
    prompts, answers = [], []
    for i in range(count):
        talk = write(f"gpu {i}", length=LENGTHS[i % 4], split="test", wording="train", density=0.7, not_told=0.0)
        number = max(n for n, turn in enumerate(talk.turns) if turn.kind == "told")
        prompts.append(llm.chat_token_ids(talk.messages(until=number)))
        answers.append(talk.turns[number].assistant)
    return prompts, answers


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(DEMO, device="cuda", precision="fp8", page_count=PAGES, max_sequences=64)


def test_decode_runs_as_graphs_and_remembers(llm: LLM) -> None:
    graphs = llm.engine.runner.graphs
    assert graphs is not None
    prompts, answers = questions(llm, 64)
    said = llm.generate(prompts, GREEDY)
    assert graphs._captured
    assert sum(c.text.strip() == a.strip() for c, a in zip(said, answers, strict=True)) >= 60


def test_graphs_change_no_token(llm: LLM) -> None:
    """The same steps with and without graphs, alone in the batch, where both run the same kernels on the same shapes."""
    prompts, _ = questions(llm, 8)
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    captured = [llm.generate(prompt, params)[0].token_ids for prompt in prompts]
    graphs, llm.engine.runner.graphs = llm.engine.runner.graphs, None
    try:
        eager = [llm.generate(prompt, params)[0].token_ids for prompt in prompts]
    finally:
        llm.engine.runner.graphs = graphs
    same = sum(a == b for one, other in zip(captured, eager, strict=True) for a, b in zip(one, other, strict=True))
    assert (
        same >= 0.95 * 8 * 40
    )  # a bound on the context (a bucket's) may change how keys are split, so sums may round apart


def test_an_open_inspector_sees_what_graphs_select(llm: LLM) -> None:
    prompts, _ = questions(llm, 4)
    for completion, prompt in zip(llm.generate(prompts, GREEDY, inspect=True), prompts, strict=True):
        assert completion.selection is not None and len(completion.selection) == len(completion.token_ids)
        for selection in completion.selection:
            for layer in range(llm.config.num_hidden_layers):
                positions = selection.positions(layer)
                assert len(set(positions.tolist())) == min(selection.position + 1, llm.config.index_topk)
                assert positions.min() >= 0 and positions.max() <= selection.position
        assert completion.selection[0].position == len(prompt) - 1


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_backends_remember(backend: str) -> None:
    llm = LLM(DEMO, device="cuda", precision="fp8", backend=backend, page_count=PAGES)
    prompts, answers = questions(llm, 16)
    said = llm.generate(prompts, GREEDY)
    assert sum(c.text.strip() == a.strip() for c, a in zip(said, answers, strict=True)) >= 15


def test_exact_precision_answers_as_the_cpu_does() -> None:
    on_gpu = LLM(DEMO, device="cuda", precision="exact", page_count=PAGES)
    on_cpu = LLM(DEMO, device="cpu", precision="exact", page_count=PAGES)
    prompts, _ = questions(on_gpu, 12)
    for prompt in prompts:
        assert on_gpu.generate(prompt, GREEDY)[0].token_ids == on_cpu.generate(prompt, GREEDY)[0].token_ids


def test_thirty_seconds_of_mixed_requests_leak_nothing(llm: LLM) -> None:
    chance = random.Random(0)
    prompts, _ = questions(llm, 16)
    engine = llm.engine
    llm.generate(prompts, GREEDY)
    memory, finished = 0, 0
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for _ in range(chance.randint(0, 3)):
            prompt = chance.choice(prompts)[: chance.randint(2, 6000)]
            params = SamplingParams(
                temperature=chance.choice([0, 1]), max_tokens=chance.randint(1, 60), ignore_eos=True
            )
            request = engine.add_request(prompt, params)
            if chance.random() < 0.2:
                engine.abort(request.id)
        finished += sum(delta.finish_reason is not None for delta in engine.step())
        if finished > 100 and not memory:
            memory = torch.cuda.memory_allocated()
    while engine.has_work:
        engine.step()
    engine.pool.check()
    assert engine.pool.used == 0 and finished > 200
    assert torch.cuda.memory_allocated() <= memory + 64 * 2**20  # graphs of buckets met later
