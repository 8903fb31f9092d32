"""Profiler ranges of an eager step: every part of every layer, and nothing without a profiler."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from deepseek_v32.inference import LLM
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.profiling import profiler_range
from deepseek_v32.model.synthetic.weights import fill_synthetic
from tiny_model.checkpoint import TINY

PARTS = {"norm", "projections", "indexer", "selection", "attention", "output projection"}


def test_a_profiled_step_names_the_parts_of_layers():
    config = replace(TINY, num_hidden_layers=2, index_topk=16)
    model = build_model(config, "bf16", "auto", "cpu")
    fill_synthetic(model, Plan(config))
    llm = LLM.from_model(model, config, precision="bf16", page_count=4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        llm.logits(list(range(50)))
    events = [
        event for event in profile.events() if event.name.startswith("layer ") or event.name in ("embedding", "head")
    ]
    expected = {"embedding", "head", "layer 0/mlp", "layer 1/router", "layer 1/experts"}
    expected |= {f"layer {layer}/{part}" for layer in range(2) for part in PARTS}
    assert {event.name for event in events} == expected
    # Ranges do not overlap, so that the times of parts add up.
    intervals = sorted((event.time_range.start, event.time_range.end) for event in events)
    assert all(end <= start for (_, end), (start, _) in pairwise(intervals))


@pytest.mark.skipif(torch.cuda.is_available(), reason="with CUDA, ranges are NVTX ranges")
def test_without_a_profiler_ranges_are_one_shared_null_context():
    assert profiler_range("layer 0/indexer") is profiler_range("head")
