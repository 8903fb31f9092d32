"""Transformer.decode_operations against the operations that real decode steps in fp8 call."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from deepseek_v32.inference.engine.cache import allocate
from deepseek_v32.kernels import registry
from deepseek_v32.model.metadata import PAGE_SIZE, AttentionMetadata
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.checkpoint import TINY
from deepseek_v32.model.synthetic.weights import fill_synthetic

BASE = replace(TINY, num_hidden_layers=2, index_topk=32, weight_block=(128, 128))
CONFIGS = {
    "shared expert": BASE,
    "no shared expert": replace(BASE, n_shared_experts=0),
    "wide shared expert": replace(BASE, n_shared_experts=2),
    "ragged experts": replace(BASE, moe_intermediate_size=20),
    "dense layers only": replace(BASE, first_k_dense_replace=2),
}


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


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_declared_operations_are_those_that_steps_call(config, monkeypatch):
    model = build_model(config, "fp8", "auto", "cpu")
    fill_synthetic(model, Plan(config))
    caches = allocate(config, "fp8", 2)
    for cache in caches:
        cache.latent.zero_()
        cache.index.zero_()
    called: dict[str, int | None] = {}
    choose = registry.choose_implementation

    def spy(operation: str, device: torch.device, dtype: torch.dtype, *rest: Any) -> registry.Implementation:
        called[operation] = rest[1]  # the width, None where no implementation depends on it
        if any(one.dtypes for one in registry.OPERATIONS[operation]):
            assert dtype == registry.leading_dtype(operation, "fp8"), operation
        return choose(operation, device, dtype, *rest)

    monkeypatch.setattr(registry, "choose_implementation", spy)
    reported = []
    # Every context fits in index_topk; the indexer selects; it selects and reports.
    for step in (two_decodes(20), two_decodes(50), two_decodes(50, lambda *selection: reported.append(selection))):
        assert model(*step, caches).isfinite().all()
    assert len(reported) == config.num_hidden_layers
    assert called == model.decode_operations()
