"""Index scores of all sequences at once, as a GPU without a kernel for their dtype computes them, against one row at a time."""

import pytest
import torch

from deepseek_v32.kernels.reference import indexer_logits as module
from deepseek_v32.kernels.types import PagedIndexerOperands

HEADS, WIDTH, PAGES = 4, 32, 12


@pytest.mark.parametrize("block_bytes", [64 << 20, 40_000], ids=["one block", "several"])
@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize(("sequences", "pages", "longest"), [(5, 4, 256), (3, 2, 100), (1, 1, 64)], ids=str)
def test_against_one_row_at_a_time(
    sequences: int, pages: int, longest: int, new: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(sequences)
    cache = torch.randn(PAGES, 64, 1, WIDTH, generator=generator)
    q = torch.randn(sequences, new, HEADS, WIDTH, generator=generator)
    weights = torch.randn(sequences, new, HEADS, generator=generator)
    table = torch.randint(0, PAGES - 1, (sequences, pages), dtype=torch.int32, generator=generator)
    lengths = torch.randint(new, longest + 1, (sequences,), dtype=torch.int32, generator=generator)
    lengths[0] = min(longest, 40)  # after which its first page, and pages that no one has, hold anything
    cache[table[0, 0].item(), 40:] = float("nan")
    table[0, 1:] = torch.tensor([99, -1, PAGES - 1], dtype=torch.int32)[: pages - 1]
    cache[PAGES - 1] = float("nan")
    lengths[1:2] = 0  # a padding sequence
    table[2:] = torch.where(table[2:] == table[0, 0], (table[0, 0] + 1) % (PAGES - 1), table[2:])
    given = PagedIndexerOperands(q, cache, weights, table, lengths, longest)
    expected = module.paged_indexer_logits(given)
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    out = torch.full((sequences * new, longest), float("-inf"))
    found = module._all_rows(given, out)
    assert found.isneginf().equal(expected.isneginf()) and not found.isnan().any()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
