"""The indexer's selection for a prompt's chunk, in blocks of rows whose scores fit in memory."""

from dataclasses import replace

import pytest
import torch

from deepseek_v32.kernels import indexer_topk
from deepseek_v32.kernels.registry import preference_of
from deepseek_v32.model.indexer import Indexer, IndexQueries
from deepseek_v32.model.layers import Compute
from deepseek_v32.model.metadata import PAGE_SIZE, LayerCache, Prefill
from tiny_model.checkpoint import TINY

KEYS, ROWS, HEADS, WIDTH = 3000, 1000, 64, 128


def random_cache(pages: int, device: torch.device) -> LayerCache:
    codes = (torch.randn(pages, PAGE_SIZE * WIDTH) * 150).clamp_(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    scales = torch.rand(pages, PAGE_SIZE).view(torch.uint8)
    index = torch.cat([codes, scales], dim=1).view(pages, PAGE_SIZE, 1, WIDTH + 4).to(device)
    return LayerCache(torch.empty(0, device=device), index)


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_blocks_of_rows_select_what_all_rows_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device(name)
    rows, keys, heads = (ROWS, KEYS, HEADS) if name == "cuda" else (50, 600, 4)
    torch.manual_seed(0)
    config = replace(TINY, index_n_heads=heads, index_head_dim=WIDTH, index_topk=512)
    indexer = Indexer(config, Compute("fp8", preference_of("auto"), device), 0)
    pages = -(-keys // PAGE_SIZE)
    cache = random_cache(pages, device)
    slots = (torch.randperm(pages)[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE)).flatten()[:keys].to(device)
    q = (torch.randn(rows + 7, heads, WIDTH, device=device) * 150).clamp_(-448, 448).to(torch.float8_e4m3fn)
    queries = IndexQueries(q, torch.randn(rows + 7, heads, device=device))
    prefill = Prefill(slice(7, rows + 7), keys - rows, keys, slots)
    whole = indexer.select_prefill(queries, prefill, cache, with_scores=True)
    assert whole.scores is not None
    monkeypatch.setattr(indexer_topk, "LOGITS_BYTES", 4 * keys * 13)
    blocks = indexer.select_prefill(queries, prefill, cache)
    scored = indexer.select_prefill(queries, prefill, cache, with_scores=True)
    assert torch.equal(blocks.positions, whole.positions) and blocks.scores is None
    assert scored.scores is not None and torch.equal(scored.scores, whole.scores)
