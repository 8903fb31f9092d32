"""From a prompt and its parameters to a checked Request."""

import itertools
import secrets
from collections.abc import Sequence

from ...model.config import ModelConfig
from ...model.selection_policy import SelectionPolicy
from ..params import Request, SamplingParams
from ..text.grammar import GrammarCompiler
from ..text.tokenizer import Tokenizer
from .limits import Limits
from .prompt_check import check_prompt


class RequestFactory:
    """Makes the requests of one engine. Any thread may call it at any time."""

    def __init__(self, config: ModelConfig, limits: Limits, tokenizer: Tokenizer | None) -> None:
        """An answer ends at the end-of-sentence tokens of both the tokenizer and the configuration."""
        self.eos_ids = frozenset(config.eos_token_ids) | frozenset(tokenizer.eos_ids if tokenizer else ())
        self.ids = itertools.count()
        self.grammars = GrammarCompiler(tokenizer, config.vocab_size, sorted(self.eos_ids))
        self._config, self._limits, self._has_tokenizer = config, limits, tokenizer is not None

    def make(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        inspect: bool = False,
        min_new_tokens: int = 1,
        policy: SelectionPolicy | None = None,
    ) -> Request:
        """Check a prompt of token ids against the limits, without queueing it.

        min_new_tokens: how many tokens must fit after the prompt; 0 for a prompt of which only logits are computed. policy: what
        its queries attend to instead of the model's own selection; none of the entries so computed is reused. ValueError
        names the value and the limit; it is PromptTooLong if the context cannot hold the prompt.
        """
        params = params or SamplingParams()
        tokens = check_prompt(prompt, params, self._config, self._limits, self._has_tokenizer, min_new_tokens)
        remaining = self._limits.max_model_len - len(tokens)
        max_tokens = remaining if params.max_tokens is None else min(params.max_tokens, remaining)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        if policy is not None:
            policy.check(self._config.index_topk, len(tokens))
        end_ids = tuple(self.eos_ids.union(params.stop_token_ids)) if params.min_tokens else ()
        grammar = self.grammars.compile(params.structured_outputs) if params.structured_outputs else None
        return Request(next(self.ids), tokens, params, max_tokens, seed, inspect, policy, end_ids, grammar)
