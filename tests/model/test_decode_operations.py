"""Transformer.decode_operations against the operations that real decode steps in fp8 call."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from deepseek_v32.kernels import availability, implementations, registry
from support.decode_steps import CONFIG, model_and_caches, two_decodes

CONFIGS = {
    "shared expert": CONFIG,
    "no shared expert": replace(CONFIG, n_shared_experts=0),
    "wide shared expert": replace(CONFIG, n_shared_experts=2),
    "ragged experts": replace(CONFIG, moe_intermediate_size=20),
    "dense layers only": replace(CONFIG, first_k_dense_replace=2),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_declared_operations_are_those_that_steps_call(config, monkeypatch):
    model, caches = model_and_caches(config)
    called: dict[str, int | None] = {}
    choose = registry.choose_implementation

    def spy(operation: str, device: torch.device, dtype: torch.dtype, *rest: Any) -> implementations.Implementation:
        called[operation] = rest[1]  # the width, None where no implementation depends on it
        if any(one.dtypes for one in implementations.OPERATIONS[operation]):
            assert dtype == availability.leading_dtype(operation, "fp8"), operation
        return choose(operation, device, dtype, *rest)

    monkeypatch.setattr(registry, "choose_implementation", spy)
    reported = []
    # Every context fits in index_topk; the indexer selects; it selects and reports.
    for step in (two_decodes(20), two_decodes(50), two_decodes(50, lambda *selection: reported.append(selection))):
        assert model(*step, caches).isfinite().all()
    assert len(reported) == config.num_hidden_layers
    assert called == model.decode_operations()
