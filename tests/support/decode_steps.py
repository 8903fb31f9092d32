"""Decode steps of a small model on a CPU in fp8 precision."""

from dataclasses import replace
from typing import Any

import torch

from deepseek_v32.inference.engine.running.cache import allocate
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import PAGE_SIZE, AttentionMetadata, LayerCache
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.weights import fill_synthetic
from deepseek_v32.model.transformer import Transformer
from tiny_model.checkpoint import TINY

CONFIG = replace(TINY, num_hidden_layers=2, index_topk=32, weight_block=(128, 128))


def model_and_caches(config: ModelConfig, deterministic: bool = False) -> tuple[Transformer, list[LayerCache]]:
    """A model with random weights, and empty caches of two pages."""
    model = build_model(config, "fp8", "auto", "cpu", deterministic=deterministic)
    fill_synthetic(model, Plan(config))
    caches = allocate(config, "fp8", 2)
    for cache in caches:
        cache.latent.zero_()
        cache.index.zero_()
    return model, caches


def two_decodes(length: int, on_selection: Any = None) -> tuple[torch.Tensor, torch.Tensor, AttentionMetadata]:
    """Tokens, positions and metadata of sequences with `length` and 3 tokens, in pages 0 and 1."""
    lengths = torch.tensor([length, 3])
    table = torch.tensor([[0], [1]])
    slots = table[:, 0] * PAGE_SIZE + lengths - 1
    rows = torch.arange(2)
    metadata = AttentionMetadata(
        (1, 1), (length, 3), 2, table.int(), lengths.int(), slots, rows, length, on_selection=on_selection
    )
    return torch.tensor([5, 6]), lengths - 1, metadata
