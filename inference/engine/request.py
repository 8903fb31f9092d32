"""One prompt on its way through the engine, and what each part of the engine keeps about it. No tensors."""

from dataclasses import dataclass, field

from ...kernels.errors import ArgumentError
from ...model.selection_policy import SelectionPolicy
from ..params import SamplingParams
from ..text.grammar import Grammar


@dataclass
class CachePlace:
    """A request's pages and entries in the caches, owned by the scheduler. Empty while the request waits, except `admission`."""

    pages: list[int] = field(default_factory=list)
    rank: int = 0  # whose caches they are, where sequences are divided among ranks
    admission: int = 0  # raised at each admission, during which `pages` is only appended to
    computed: int = 0  # leading tokens whose entries are written, or will be by the steps in flight
    drafted: int = 0  # leading tokens whose entries in the draft layer's caches are written; at most `computed`
    pending: int = 0  # tokens that steps in flight sample for this request, and that `tokens` therefore lacks
    cached_pages: int = 0  # leading pages that other requests can reuse
    prefix_id: int = 0  # PagePool's name for the contents of those pages


@dataclass
class QueuePlace:
    """A request's waiting time (`in_turn` in scheduler.py), owned by the scheduler."""

    reusable: int = 0  # leading tokens that were found in the cache when the request began to wait; 0 once it runs
    skipped: int = 0  # steps in a row that computed nothing of its prompt
    cached_tokens: int | None = None  # tokens found in reused pages at the first admission; None before it


@dataclass(eq=False)
class Request:
    """One prompt on its way through the engine."""

    # Set once, by RequestMaker.
    id: int  # rises with the order of arrival
    prompt: tuple[int, ...]
    params: SamplingParams
    max_tokens: int  # params.max_tokens, or fewer if the context holds fewer
    seed: int  # params.seed, or a random one
    inspect: float = 0  # the number of tokens for which to record what DSA selects; infinite for all
    policy: SelectionPolicy | None = None  # an experiment with what DSA selects
    end_ids: tuple[int, ...] = ()  # the tokens that may not come among the first params.min_tokens ones
    grammar: Grammar | None = None  # params.structured_outputs, compiled
    takes_likeliest: bool = field(init=False)  # asks only for the likeliest tokens by the model's logits
    samples_in_graph: bool = field(init=False)  # only a grammar, temperature and noise choose its tokens
    # Starts as the prompt. RequestState.push appends each sampled token once it has arrived on the host.
    tokens: list[int] = field(default_factory=list)
    cache: CachePlace = field(default_factory=CachePlace)
    queue: QueuePlace = field(default_factory=QueuePlace)

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)
        params = self.params
        plain = params.logprobs is None and not (params.penalised or params.logit_bias)
        free, early = self.grammar is None and not params.structured_outputs, params.min_tokens > 0
        self.takes_likeliest = plain and params.greedy and free and not early
        self.samples_in_graph = plain and not (params.filters and not params.greedy) and not (early and free)

    @property
    def remaining(self) -> int:
        """Tokens that still have to go through the model before the next one can be sampled."""
        return len(self.tokens) + self.cache.pending - self.cache.computed

    @property
    def shareable(self) -> int:
        """The number of leading tokens with ordinary cache entries: all, or the ones before an experiment begins."""
        return len(self.tokens) if self.policy is None else min(self.policy.start, len(self.tokens))

    @property
    def is_inspected(self) -> bool:
        """Tell whether the next step that is launched records the selection of its token."""
        return self.output_count + self.cache.pending < self.inspect

    @property
    def output_count(self) -> int:
        return len(self.tokens) - len(self.prompt)

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]


class PromptTooLong(ArgumentError):
    """The context cannot hold the prompt and its answer. Clients look for "maximum context length is" in the message."""
