"""Offloaded experts: the same bits as with all weights in memory, in as few slots as one, and faults of files while requests run."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.parts import DEMO
from deepseek_v32.model.checkpoint import expert_files
from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.manifest import write_manifest
from deepseek_v32.model.errors import CheckpointError
from tiny_model.checkpoint import TINY, write_checkpoint

# Sizes that are no multiples of FP8 blocks, and an MTP layer.
ODD = replace(TINY, hidden_size=200, moe_intermediate_size=72, num_hidden_layers=3, n_routed_experts=8, num_nextn_predict_layers=1)
PARAMS = SamplingParams(temperature=0.0, max_tokens=12, logprobs=3, ignore_eos=True)
PROMPTS = [list(range(5, 95)), [17] * 20, list(range(300, 150, -1))]  # the second chunk of a step's tokens needs most experts


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("offload")
    for dtype in ("bf16", "fp8"):
        write_checkpoint(root / dtype, ODD, dtype, shards=2)
    convert(root / "fp8", root / "converted", 1)
    return root


def run(path: Path, prompts: list[list[int]], **options: Any) -> list[tuple[Any, ...]]:
    """Answers with all of their numbers, of requests that run together in the same batches for the same options."""
    with LLM(path, page_count=40, max_batch_tokens=128, **options) as llm:
        return [(each.token_ids, each.logprobs, each.finish_reason) for each in llm.generate(prompts, PARAMS)]


@pytest.mark.parametrize("slots", [1, 3, 10, 24])
@pytest.mark.parametrize(
    ("dtype", "precision", "options"),
    [
        ("bf16", "exact", {}),  # cast at its use
        ("bf16", "bf16", {}),
        ("bf16", "fp8", {"speculative_tokens": 2}),  # quantised at its use
        ("fp8", "exact", {"deterministic": True, "speculative_tokens": 2}),  # dequantised at its use
        ("fp8", "fp8", {}),
        ("converted", "fp8", {"deterministic": True}),
    ],
)
def test_the_bits_of_the_resident_model(checkpoints, dtype, precision, options, slots, resident):
    path = checkpoints / dtype
    key = (dtype, precision)
    if key not in resident:
        resident[key] = run(path, PROMPTS, precision=precision, **options)
    assert run(path, PROMPTS, precision=precision, offload="experts", expert_slots=slots, **options) == resident[key]


@pytest.fixture(scope="module")
def resident() -> dict[tuple[str, str], Any]:
    return {}
