"""How often drafts are right with a temperature: by the coupling of the same noise, and by rejection sampling. A table, then JSON.

    python scripts/bench/coupling.py --conversations 12 --drafts 3

With p the model's probabilities of a token and q the draft layer's, rejection sampling accepts a draft with probability
Σ min(p, q), the most that is possible. Two argmax of log p and log q plus the same Gumbel noise agree with probability
Σᵢ 1 / Σⱼ max(pⱼ / pᵢ, qⱼ / qᵢ). Both are averaged over the drafts of sampled answers behind which all earlier ones were right; the
share that was right is what the second predicts.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.engine.drafting.policy import FixedDrafts
from deepseek_v32.inference.engine.limits import MAX_DRAFT_TOKENS
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.step import LaunchedStep
from deepseek_v32.inference.llm import DEMO

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of these packages

from bench.drafts import CELLS, open_engine, prompts

_ROWS = 256  # tokens of the sum at a time


def coupling(p: torch.Tensor, q: torch.Tensor) -> float:
    """Σᵢ 1 / Σⱼ max(pⱼ / pᵢ, qⱼ / qᵢ) of log-probabilities, fp64 [V] each."""
    total = 0.0
    for one, other in zip(p.split(_ROWS), q.split(_ROWS), strict=True):
        ratios = torch.maximum(p - one[:, None], q - other[:, None])
        total += (-ratios.logsumexp(-1)).exp().sum().item()
    return total


def rejection(p: torch.Tensor, q: torch.Tensor) -> float:
    """Σ min(p, q) of log-probabilities, fp64 [V] each."""
    return torch.minimum(p, q).exp().sum().item()


class Recorder(FixedDrafts):
    """The drafts of one request at a time: what both rules make of them, and which were right."""

    def __init__(self, runner: Runner, count: int, temperature: float) -> None:
        super().__init__(count)
        assert runner.drafter is not None
        self._run, self._draft, self._temperature = runner.run, runner.drafter.model.draft, temperature
        runner.run = self._record_model  # type: ignore[assignment, method-assign]
        runner.drafter.model.draft = self._record_layer  # type: ignore[assignment, method-assign]
        self._made: list[torch.Tensor] = []  # [V] of each of the latest drafts
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []  # of the drafts that the latest step has verified
        self.found: list[list[tuple[float, float, bool]]] = [[] for _ in range(count)]  # by place

    def _probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        return (logits.double() / self._temperature).log_softmax(-1)

    def _record_model(self, batch: Batch, *arguments: Any) -> LaunchedStep:
        step = self._run(batch, *arguments)
        logits = step.logits
        count = sum(batch.draft_counts)
        self._pairs = [(self._probabilities(logits[i]), self._made[i]) for i in range(count)]
        self._made = []
        return step

    def _record_layer(self, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits, hidden = self._draft(*arguments)
        self._made += [self._probabilities(row) for row in logits]
        return logits, hidden

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        for place, (p, q) in enumerate(self._pairs[: sum(accepted) + 1]):
            self.found[place].append((rejection(p, q), coupling(p, q), place < sum(accepted)))


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO, help="the demo's format (default: the shipped one)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="exact", choices=("exact", "bf16"))
    parser.add_argument("--conversations", type=int, default=12, help="of each cell (default: %(default)s)")
    parser.add_argument("--cells", nargs="+", default=["1K chat", "1K two hops"], choices=CELLS, metavar="CELL")
    parser.add_argument("--drafts", type=int, default=3, choices=range(1, MAX_DRAFT_TOKENS + 1))
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--tokens", type=int, default=100, help="of an answer at most")
    parser.add_argument("--pages", type=int, default=512)
    arguments = parser.parse_args()
    llm = open_engine(arguments, arguments.precision, 1)
    asked = prompts(llm, arguments.model, arguments.conversations, arguments.cells)
    recorder = Recorder(cast(Runner, llm.engine.runner), arguments.drafts, arguments.temperature)
    llm.engine.scheduler.speculation.policy = recorder
    for seed, prompt in enumerate(asked):
        llm.generate(
            [prompt], SamplingParams(temperature=arguments.temperature, seed=seed, max_tokens=arguments.tokens)
        )
    results = []
    for place, found in enumerate(recorder.found, 1):
        means = torch.tensor([list(map(float, each)) for each in found]).mean(0).tolist()
        results.append(
            {"place": place, "drafts": len(found), **dict(zip(("rejection", "coupling", "right"), means, strict=True))}
        )
        print(f"draft {place}: rejection {means[0]:.3f}, coupling {means[1]:.3f}, right {means[2]:.3f} of {len(found)}")
    print(json.dumps({"answers": len(asked), "torch": torch.__version__, "places": results}))


if __name__ == "__main__":
    main()
