"""Sparse prefill over the FP8 cache: keys converted one by one, or the whole context once."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM
from deepseek_v32.kernels import sparse_mla_prefill
from deepseek_v32.model import attention, prefill_form
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.weights import fill_synthetic
from tiny_model.checkpoint import TINY


def test_both_conversions_read_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """FP8 codes times scales that are powers of two are exact in bf16. Releasing early pages makes the order of pages random."""
    config = replace(TINY, num_hidden_layers=2, index_topk=32, weight_block=(128, 128))
    model = build_model(config, "fp8", "auto", "cpu")
    fill_synthetic(model, Plan(config))
    monkeypatch.setattr(prefill_form, "REFERENCE_GATHER_COST", -1e9)  # never masked
    calls = []
    gather = attention.gather_latents

    def spy(*arguments: Any, **named: Any) -> torch.Tensor:
        calls.append(arguments)
        return gather(*arguments, **named)

    monkeypatch.setattr(attention, "gather_latents", spy)
    prompt = [i * 7919 % config.vocab_size for i in range(300)]
    results = []
    for heads in (1, 10**9):
        monkeypatch.setattr(sparse_mla_prefill, "MANY_HEADS", heads)
        llm = LLM.from_model(model, config, precision="fp8", page_count=12)
        llm.engine.pool.release(llm.engine.pool.allocate(5)[::2])
        results.append(llm.logits(prompt, chunk=70))
        if heads == 1:
            assert len(calls) == 2 * 5  # layers, chunks
            calls.clear()
    assert not calls
    assert torch.equal(*results)
