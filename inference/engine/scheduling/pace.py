"""How many prompt tokens a step takes, so that it lasts about as long as it should. The clock is an argument."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....kernels.errors import ArgumentError
from ....model.config import ModelConfig
from ...config import MAX_DRAFT_TOKENS


@dataclass(frozen=True)
class StepTimes:
    """How long a step with prompt tokens should last, in seconds."""

    beside_answers: float  # while the step also advances or begins answers, which wait for its end
    alone: float
    least_tokens: int = 1  # prompt tokens that a step takes even if it lasts longer
    first_tokens: int = 256  # assumed to last for `alone` until something has been measured
    most_drafts: int = MAX_DRAFT_TOKENS  # that it makes for each request

    def __post_init__(self) -> None:
        for name in ("beside_answers", "alone"):
            if not getattr(self, name) > 0:
                raise ArgumentError(name, getattr(self, name), "a number of seconds above 0")
        for name in ("least_tokens", "first_tokens", "most_drafts"):
            if getattr(self, name) < 1:
                raise ArgumentError(name, getattr(self, name), "at least 1")


UNBOUNDED = StepTimes(math.inf, math.inf)
# On a CPU every step costs the demo 0.02 s in addition to its tokens, and each decode as much again: about 5 % of 0.35 s. A GPU
# needs large chunks: 1,024 tokens are enough work for one read of a large model's weights. Without answers that wait, steps are
# longer; a question that comes then waits for the end of one. A step with prompt tokens runs without a graph, so that on a GPU each
# draft after the first takes as long as the host needs to launch the draft layer once more: 3 to 6 ms on an H200's host.
DEVICE_TIMES = {"cpu": StepTimes(0.35, 0.8, 32), "cuda": StepTimes(0.015, 0.25, 1024, 1024, most_drafts=1)}


class Pace:
    """Predicts the time of prompt tokens: one at position p costs rate · (fixed + p), for itself and for the indexer's scores.

    A step costs some time besides, its overhead: launching 61 layers takes the host 0.2 s, whatever the number of tokens. Tokens
    get the rest of the time that a step should last, and at least half as long as the overhead, or it would be most of the work.
    """

    def __init__(
        self, times: StepTimes = UNBOUNDED, fixed: float = 2**12, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most_drafts = times.most_drafts  # of a step with prompt tokens
        self._times, self._fixed, self._clock = times, fixed, clock
        self._rate = min(times.alone, 1.0) / self._work(0, times.first_tokens)
        self._fewest, self._shortest = math.inf, math.inf  # tokens of a step, and seconds, so far
        self._overhead = 0.0
        self._warm = self._learnt = False  # there was a step; steps of different sizes have been measured
        self._since = clock()
        self._allowed = math.inf

    def begin(self, answers: bool) -> float:
        """A step is being scheduled, with or without answers in it. Returns the seconds that its prompt tokens may take."""
        self._allowed = self.for_tokens(self._times.beside_answers if answers else self._times.alone)
        if self._fewest < math.inf and not self._learnt and self._times.least_tokens >= self._times.first_tokens:
            # On a GPU, where the least step is no smaller than the first, one of four times the fewest tokens tells the overhead.
            self._allowed = max(self._allowed, self._rate * self._work(0, 4 * self._fewest))
        self._since = self._clock()
        return self._allowed

    def begin_answer(self) -> float:
        """A prompt ends in the step that is being scheduled, and its reader waits. Returns what `begin` would."""
        self._allowed = min(self._allowed, self.for_tokens(self._times.beside_answers))
        return self._allowed

    def end(self, prompts: Iterable[tuple[int, int]]) -> None:
        """A step's tokens are on the host; steps end in the order in which they were scheduled. prompts: as in `seconds`."""
        now = self._clock()
        seconds, self._since = now - self._since, now
        prompts = list(prompts)
        tokens = sum(count for _, count in prompts)
        if not tokens:
            return
        if not self._warm:  # the first step compiles kernels
            self._warm = True
            return
        self._learn_overhead(tokens, seconds)
        expected, seconds = sum(self.seconds(*each) for each in prompts), seconds - self._overhead
        # A small step says little about the rate.
        if tokens >= self._times.least_tokens and max(seconds, expected) >= self._allowed / 2:
            self._rate *= min(max(seconds / expected, 0.5), 2.0)

    def seconds(self, start: int, count: int) -> float:
        """Predict the seconds for `count` tokens from position `start` on."""
        return self._rate * self._work(start, count)

    def tokens(self, start: int, seconds: float) -> int:
        """Return the number of tokens from position `start` on that fit in this time, at least `least_tokens`."""
        if math.isinf(seconds):
            return 2**62
        base, work = self._fixed + start, seconds / self._rate
        count = int(2 * work / (base + math.sqrt(base * base + 2 * work)))  # work = base · count + count² / 2
        return max(count, self._times.least_tokens)

    def for_tokens(self, seconds: float) -> float:
        """Return the seconds for the tokens of a step that should last this long."""
        return max(seconds - self._overhead, self._overhead / 2)

    def _learn_overhead(self, tokens: int, seconds: float) -> None:
        """Continue a line to a step without tokens: through this step and one of the fewest tokens that took the shortest time."""
        self._fewest, self._shortest = min(self._fewest, tokens), min(self._shortest, seconds)
        if tokens > 3 * self._fewest:
            rest = self._shortest * tokens - seconds * self._fewest
            self._overhead, self._learnt = max(rest / (tokens - self._fewest), 0.0), True
        self._overhead = min(self._overhead, self._shortest)

    def _work(self, start: int, count: float) -> float:
        return count * (self._fixed + start + count / 2)


def fixed_cost(config: ModelConfig) -> float:
    """Divide a token's position-independent multiplications by the indexer's multiplications for one earlier token."""
    c = config
    query = c.qk_nope_head_dim + c.qk_rope_head_dim
    absorbed = (c.qk_nope_head_dim + c.v_head_dim) * c.kv_lora_rank
    attention = c.index_topk * (2 * c.kv_lora_rank + c.qk_rope_head_dim)
    heads = c.num_attention_heads * (c.q_lora_rank * query + absorbed + attention + c.v_head_dim * c.hidden_size)
    experts = 3 * c.hidden_size * c.moe_intermediate_size * (c.num_experts_per_tok + c.n_shared_experts)
    return (heads + experts) / (c.index_n_heads * c.index_head_dim)
