"""A runner that drafts, driven step by step with answers that a test gives."""

from dataclasses import replace

import torch

from deepseek_v32.inference.engine.drafting.drafter import Drafter
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running.cache import SCRATCH_PAGES, allocate
from deepseek_v32.inference.engine.running.decode_graph import DecodeGraphs
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.running.selection import SelectionRecorder
from deepseek_v32.inference.engine.sampling.noise import DraftNoise
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.step import Choices
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.model.transformer import Transformer

PAGES = 12
LENGTHS = (150, 5, 70)  # tokens of three requests' prompts


def make_runner(model: Transformer, sequences: int = 3, graphs: bool = False) -> Runner:
    """Make a runner over caches that are poison where no step has written."""
    device = model.compute.device
    caches = allocate(model.config, model.compute.precision, PAGES + SCRATCH_PAGES, device, mtp=True)
    for cache in caches:
        for tensor in (cache.latent, cache.index):
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0x7F)
    drafter, decode_graphs = Drafter(model, caches[-1]), None
    if graphs:  # on a CPU, the same tensors without a graph
        sizes = (PAGES, sequences, 256, model.config.index_topk, device, (), 5 * sequences)
        decode_graphs = DecodeGraphs(model.forward_with_hidden, caches, *sizes)
    return Runner(model, caches, device, decode_graphs, None, drafter, sequences, PAGES)


def greedy(count: int, device: torch.device) -> DraftNoise:
    zeros = torch.zeros(count, dtype=torch.int64, device=device)
    return DraftNoise(False, zeros.double(), zeros, zeros)


def make_requests(vocab: int) -> list[Request]:
    """Three, with random prompts and pages in no order, enough for twelve tokens more."""
    generator = torch.Generator().manual_seed(1)
    requests = []
    pages = iter([7, 2, 9, 0, 4, 11, 1])
    for id, length in enumerate(LENGTHS):
        tokens = tuple(torch.randint(vocab, (length,), generator=generator).tolist())
        requests.append(Request(id, tokens, SamplingParams(), max_tokens=50, seed=0))
        requests[-1].cache.pages = [next(pages) for _ in range(-(-(length + 12) // 64))]
    return requests


class Driver:
    """Runs steps by hand, as the engine does. Answers are tokens that it is given."""

    def __init__(self, runner: Runner, requests: list[Request]) -> None:
        self.runner, self.requests = runner, requests
        self.recorder: SelectionRecorder | None = None  # of the next steps

    def step(self, batch: Batch, sampled: list[int], accepted: list[int], drafts: int) -> torch.Tensor:
        """The drafts that the step makes, int64 [M, drafts]."""
        batch = replace(batch, draft_tokens=drafts)
        launched = self.runner.run(batch, self.recorder)
        self.logits = launched.logits
        count, device = len(batch.sampling), self.runner.device
        tokens, right = (torch.tensor(each, dtype=torch.int64, device=device) for each in (sampled, accepted))
        launched.draft(Choices(tokens, right, greedy(count, device)))
        return self.runner.drafts[:count, :drafts].clone()

    def prompts(self, chunk: int, drafts: int) -> torch.Tensor:
        """Compute all prompts, `chunk` tokens of each a step; then give each a first token, 3. Returns their first drafts."""
        found: list[torch.Tensor] = [torch.empty(0)] * len(self.requests)
        while active := [each for each in self.requests if each.cache.computed < len(each.prompt)]:
            batch = Batch.of([(each, min(chunk, each.remaining)) for each in active])
            made = self.step(batch, [3] * len(batch.sampling), [0] * len(batch.sampling), drafts)
            for request, count in zip(batch.requests, batch.counts, strict=True):
                request.cache.computed += count
            for request, row in zip(batch.sampling, made, strict=True):
                found[request.id] = row
        for request in self.requests:
            request.tokens.append(3)
        return torch.stack(found)

    def verify(self, rows: list[int], answers: list[list[int]], accepted: list[int], drafts: int) -> torch.Tensor:
        """Run a step of decodes. Each verifies one draft for every answer token after the first, in rows of the table."""
        requests, counts = tuple(self.requests), tuple(len(answer) for answer in answers)
        batch = Batch(
            requests=requests,
            starts=tuple(each.cache.computed for each in requests),
            counts=counts,
            decodes=len(requests),
            logit_counts=counts,
            draft_counts=tuple(count - 1 for count in counts),
            draft_rows=tuple(rows),
        )
        made = self.step(batch, [token for answer in answers for token in answer], accepted, drafts)
        for request, answer, right in zip(requests, answers, accepted, strict=True):
            request.tokens += answer[: right + 1]
            request.cache.computed += right + 1
        return made
