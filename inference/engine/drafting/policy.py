"""How many drafts a step makes: a fixed number, or with `auto` as many as four rules say. No rule reads a clock.

1. The table says how many, by device, layers of the model and requests of the step. Where it has no row, the step leaves the draft
   layer out, and its requests get no drafts any more.
2. A prompt that is too long for its answer is not drafted for: the draft layer would take longer than drafts can save.
3. A request whose two latest steps had no right draft verifies one draft, until one is right.
4. Drafts have an allowance of tokens. A step with drafts adds its tokens, and takes away what plain steps would have given in its
   time, by the table. Plain steps add a small share of their tokens. Once it is empty, drafting waits until it is half full.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...config import AUTO, MAX_DRAFT_TOKENS, Limits
from ..request import Request
from ..scheduling.batch import Batch

_ALLOWANCE, _SHARE = 20.0, 0.015  # tokens, at most and at the start: 2 % of 1,000; and for each token of plain steps
_PROMPTS_COST = 1.5  # of a step with prompts, in place of the table's, for each request whose drafts it verifies
_MISSES = 2  # steps without a right draft; of the demo's natural answers, 0.05 % of all steps follow such two


class Row(NamedTuple):
    device: str
    layers: int  # at most, of the model; the first rows that fit count
    requests: int  # at most, of a step; likewise
    # Cost of a step relative to a plain step, by the number of drafts per request (index 0: none). The last index is the number
    # that is made.
    costs: tuple[float, ...]


_CPU, _GPU, _GRAPHS, _ANY = "CPU", "GPU", "GPU with CUDA graphs", 1 << 30
TABLE = (  # docs/speculation.md has the sources
    Row(_CPU, _ANY, 4, (1.33, 1.57, 2.1, 2.55)),
    Row(_CPU, _ANY, 16, (1.4, 1.9, 2.65)),
    Row(_GRAPHS, 8, 1, (1.5, 1.86, 2.5, 3.1)),
    Row(_GRAPHS, 8, 8, (1.6, 2.6, 3.0, 3.4)),
    Row(_GRAPHS, _ANY, 2, (1.02, 1.44, 1.87)),
    Row(_GRAPHS, _ANY, 8, (1.03, 1.69)),
    Row(_GRAPHS, _ANY, 32, (1.03, 1.57, 2.0, 2.16)),
    Row(_GRAPHS, _ANY, 64, (1.04, 1.22, 1.34, 1.36)),
    Row(_GPU, _ANY, 4, (1.4, 1.65, 2.05, 2.4, 2.75)),
    Row(_GPU, _ANY, 16, (1.4, 1.7)),
)
# Tokens of a prompt for each token of its longest answer and each layer: half as many as a device computes in a decode step's time.
_PROMPT = {_CPU: 8, _GPU: 64, _GRAPHS: 64}


class DraftPolicy:
    """A fixed number of drafts."""

    def __init__(self, count: int) -> None:
        self._count = count

    def choose(self, sequences: int, ready: Sequence[Request]) -> int | None:
        """Return how many drafts a step makes for its ready requests. 0: the draft layer only writes its entries.
        None: it does nothing, and these requests get no drafts any more."""
        return self._count

    def most(self, request: Request) -> int:
        """The most drafts that the request's next step verifies."""
        return MAX_DRAFT_TOKENS

    def pays(self, prompt: int, answer: int) -> bool:
        """Decide whether to draft for an answer of at most `answer` tokens, with `prompt` tokens to compute before it."""
        return True

    def observe(self, batch: Batch) -> None:
        """The tokens of a step are in its requests."""


class TableDrafts(DraftPolicy):
    """Decides the number of drafts by the rules of `auto`."""

    def __init__(self, device: str, layers: int) -> None:
        super().__init__(MAX_DRAFT_TOKENS)
        most = min(row.layers for row in TABLE if row.device == device and row.layers >= layers)
        self.rows = [row for row in TABLE if (row.device, row.layers) == (device, most)]
        self._longest_prompt = _PROMPT[device] * layers
        self._allowance, self._drafts = _ALLOWANCE, True
        self._misses: dict[Request, int] = {}  # of the latest step's requests: how many steps have had no right draft

    def costs(self, sequences: int) -> tuple[float, ...] | None:
        return next((row.costs for row in self.rows if sequences <= row.requests), None)

    def choose(self, sequences: int, ready: Sequence[Request]) -> int | None:
        costs = self.costs(sequences) if self._drafts else None
        return None if costs is None else min(len(costs) - 1, max(self.most(request) for request in ready))

    def most(self, request: Request) -> int:
        return int(self._drafts) * (1 if self._misses.get(request, 0) >= _MISSES else MAX_DRAFT_TOKENS)

    def pays(self, prompt: int, answer: int) -> bool:
        return prompt <= self._longest_prompt * answer

    def observe(self, batch: Batch) -> None:
        count = len(batch.requests)
        if batch.draft_tokens is None and not batch.draft_counts:
            self._allowance += _SHARE * count
        else:
            costs, has_prompts = self.costs(count) or self.rows[-1].costs, batch.decodes < count
            cost = _PROMPTS_COST if has_prompts else costs[min(batch.most_drafts, len(costs) - 1)]
            before, self._misses = self._misses, {}
            for request, start, drafts in zip(
                batch.requests, batch.starts, batch.draft_counts or [0] * count, strict=True
            ):
                given = len(request.tokens) - start - 1
                if drafts or not has_prompts:
                    self._allowance += given - cost
                if drafts and given == 1:
                    self._misses[request] = before.get(request, 0) + 1
        self._allowance = min(self._allowance, _ALLOWANCE)
        self._drafts = self._allowance > (0 if self._drafts else _ALLOWANCE / 2)


def make_policy(limits: Limits, layers: int, on_cpu: bool, graphs: bool) -> DraftPolicy | None:
    """None: no drafts. graphs: whether decode steps are CUDA graphs."""
    if limits.speculative_tokens != AUTO:
        return DraftPolicy(limits.speculative_tokens) if limits.speculative_tokens else None
    table = TableDrafts(_CPU if on_cpu else _GRAPHS if graphs else _GPU, layers)
    return None if graphs and limits.observers else table  # observed steps with drafts may run without graphs
