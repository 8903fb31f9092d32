"""A model with a fixed answer: each token determines the next one."""

from collections.abc import Callable
from typing import Any

import torch

from deepseek_v32.inference import LLM
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import AttentionMetadata, LayerCache, Selection
from support.tokenizers import make_tokenizer


class ChainModel:
    """After a token comes the one that ``following`` has for it, else ``end``. `before_step` may wait."""

    def __init__(self, vocab_size: int, following: dict[int, int], end: int):
        self.next = torch.tensor([following.get(token, end) for token in range(vocab_size)])
        self.vocab_size = vocab_size
        self.before_step: Callable[[], object] = lambda: None

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor:
        self.before_step()
        if metadata.on_selection is not None:  # it selects all of its context
            context = torch.arange(int(positions.max()) + 1, dtype=torch.int32)
            selected = torch.where(context <= positions[:, None], context, -1)
            mass = torch.ones(len(tokens), 1)
            metadata.on_selection(0, torch.arange(len(tokens)), Selection(selected, mass=mass))
        return torch.nn.functional.one_hot(self.next[tokens[metadata.logit_rows]], self.vocab_size) * 100.0


def make_llm(*after: tuple[str, str], tokenized: bool = True, **limits: Any) -> LLM:
    """An LLM that continues a control token with the text given for it, and then ends or goes on with the next one."""
    tokenizer = make_tokenizer()
    eos = tokenizer.eos_ids[0]
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        num_hidden_layers=1,
        kv_lora_rank=4,
        qk_rope_head_dim=2,
        index_head_dim=4,
        yarn=None,
        max_position_embeddings=512,
        index_topk=16,
        eos_token_ids=(eos,),
    )
    following: dict[int, int] = {}
    for control, text in after:
        chain = [tokenizer.special_ids[control], *tokenizer.encode(text, parse_special=True)]
        assert len(set(chain)) == len(chain) and not set(chain[:-1]) & set(following), (
            "a token would need two successors"
        )
        following |= zip(chain, [*chain[1:], following.get(chain[-1], eos)], strict=True)
    model = ChainModel(tokenizer.vocab_size, following, eos)
    return LLM.from_model(model, config, tokenizer if tokenized else None, **limits)
