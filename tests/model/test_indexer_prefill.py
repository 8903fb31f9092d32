"""The selection of a prompt's chunk by the indexer: in one pass over the keys where that is faster, and the same in two."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.cuda import indexer_topk as one_pass
from deepseek_v32.kernels.registry import preference_of
from deepseek_v32.model.indexer import Indexer, IndexQueries
from deepseek_v32.model.layers import Compute
from deepseek_v32.model.metadata import PAGE_SIZE, LayerCache, Prefill
from deepseek_v32.model.synthetic.checkpoint import TINY

KEYS, ROWS, HEADS, WIDTH = 3000, 1000, 64, 128


def random_cache(pages: int, device: torch.device) -> LayerCache:
    codes = (torch.randn(pages, PAGE_SIZE * WIDTH) * 150).clamp_(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    scales = torch.rand(pages, PAGE_SIZE).view(torch.uint8)
    index = torch.cat([codes, scales], dim=1).view(pages, PAGE_SIZE, 1, WIDTH + 4).to(device)
    return LayerCache(torch.empty(0, device=device), index)


@pytest.mark.gpu
def test_a_long_prompt_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    torch.manual_seed(0)
    config = replace(TINY, index_n_heads=HEADS, index_head_dim=WIDTH, index_topk=512)
    indexer = Indexer(config, Compute("fp8", preference_of("auto"), device), 0)
    pages = -(-KEYS // PAGE_SIZE)
    cache = random_cache(pages, device)
    slots = (torch.randperm(pages)[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE)).flatten()[:KEYS].to(device)
    q = (torch.randn(ROWS + 7, HEADS, WIDTH, device=device) * 150).clamp_(-448, 448).to(torch.float8_e4m3fn)
    queries = IndexQueries(q, torch.randn(ROWS + 7, HEADS, device=device))
    prefill = Prefill(slice(7, ROWS + 7), KEYS - ROWS, KEYS, slots)
    calls = []
    first_attempt = one_pass.first_attempt

    def spy(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(arguments[0].shape[0])
        return first_attempt(*arguments)

    monkeypatch.setattr(one_pass, "first_attempt", spy)
    in_two = indexer.select_prefill(queries, prefill, cache)
    assert not calls
    monkeypatch.setattr(one_pass, "LEAST_KEYS", KEYS)
    with_scores = indexer.select_prefill(queries, prefill, cache, with_scores=True)
    assert not calls and with_scores.scores is not None
    in_one = indexer.select_prefill(queries, prefill, cache)
    assert calls == [ROWS] and in_one.scores is None
    assert torch.equal(in_one.positions, in_two.positions) and torch.equal(with_scores.positions, in_two.positions)
