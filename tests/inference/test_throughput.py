"""The benchmark of the whole model runs on one rank and on two; its random contexts are valid and the same on every rank."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deepseek_v32.inference import LLM
from deepseek_v32.inference.distributed.leading_runner import fill_caches_on_all_ranks
from deepseek_v32.inference.engine.running.cache import allocate
from deepseek_v32.kernels.cache_write import gather_index_keys, gather_latents
from deepseek_v32.model.checkpoint.config_json import config_json
from deepseek_v32.model.config import Precision
from deepseek_v32.model.metadata import PAGE_SIZE
from deepseek_v32.model.synthetic.caches import fill_synthetic_caches
from support.job import ENVIRONMENT, torchrun
from tiny_model.checkpoint import TINY

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench" / "throughput.py"


@pytest.mark.parametrize(("ranks", "attention"), [(1, None), (2, None), (2, "data")])
@pytest.mark.heavy
def test_every_case_is_measured(tmp_path: Path, ranks: int, attention: str | None) -> None:
    """Thirteen sequences of 256 tokens do not fit in 26 pages, of each rank or of all: the benchmark measures as many as fit."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(config_json(replace(TINY, index_topk=64))))
    program = [sys.executable] if ranks == 1 else torchrun(ranks)
    options = ["--model", str(config), "--layers", "2", "--device", "cpu", "--precision", "exact", "--steps", "4"]
    options += ["--attention", attention] if attention else []
    options += ["--decode", "1x128", "13x256", "--prefill", "100", "300", "--page-count", "26"]
    done = subprocess.run(
        [*program, str(SCRIPT), *options], env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["ranks"], result["layers"], result["of_layers"]) == (ranks, 2, TINY.num_hidden_layers)
    assert [(case["batch"], case["context"]) for case in result["decode"]] == [(1, 128), (12 if attention else 6, 256)]
    assert [case["prompt"] for case in result["prefill"]] == [100, 300]
    assert "the largest batch that fits" in done.stdout


def test_checked_caches_are_not_filled() -> None:
    """No token could be named for their entries: every request would end with a mismatch."""
    llm = LLM(device="cpu", precision="exact", page_count=4, check_cache=True, speculative_tokens=0)
    with pytest.raises(ValueError, match="check_cache is True; expected False"):
        fill_caches_on_all_ranks(None, llm.engine.runner, llm.model)


@pytest.mark.parametrize("precision", ["exact", "bf16", "fp8"])
def test_random_contexts_are_complete_and_the_same_on_every_rank(precision: Precision) -> None:
    config = replace(TINY, num_hidden_layers=2)
    caches = [allocate(config, precision, 3) for _ in range(2)]
    for each in caches:
        for layer in each:  # so that an entry that is not written shows
            layer.latent.view(torch.uint8).fill_(0xFF)
            layer.index.view(torch.uint8).fill_(0xFF)
        fill_synthetic_caches(config, each, seed=5)
    slots = torch.arange(3 * PAGE_SIZE)
    seen = []
    for one, other in zip(*caches, strict=True):
        assert torch.equal(one.latent.view(torch.uint8), other.latent.view(torch.uint8))
        assert torch.equal(one.index.view(torch.uint8), other.index.view(torch.uint8))
        latents = gather_latents(one.latent, slots, config.kv_lora_rank, torch.float32)
        keys, scales = gather_index_keys(one.index, slots)
        keys = keys.float() if scales is None else keys.float() * scales[:, None]
        for rows in (latents, keys):
            assert rows.isfinite().all() and 0.9 < rows.std() < 1.1
            assert len(rows.unique(dim=0)) == len(rows)
        seen.append(latents)
    assert not torch.equal(*seen)
