"""Split-KV plans, which kernels make on the device."""

import pytest
import torch

from deepseek_v32.kernels.cuda.sparse_mla_decode import parts_of_queries, plan_decode
from deepseek_v32.kernels.device import is_hopper


@pytest.mark.parametrize(
    ("rows", "most", "pieces"),
    [
        (128, 66, {1: 32, 2: 16, 3: 16, 4: 16, 5: 11, 6: 11, 7: 8, 8: 8, 9: 7, 10: 6, 12: 5, 14: 4, 16: 4}),
        (64, 132, {1: 32, 2: 32, 3: 16, 4: 16, 5: 16, 6: 16, 8: 16, 10: 11, 12: 11, 16: 8, 24: 5}),
    ],
    ids=["pairs of CTAs", "single CTAs"],
)
def test_2048_keys_are_divided_as_was_measured_to_be_the_fastest(rows: int, most: int, pieces: dict[int, int]) -> None:
    """On an H200, of 132 multiprocessors: parts of a query for each number of queries."""
    assert {n: parts_of_queries(n, rows, 2048, most) / n for n in pieces} == pieces


@pytest.mark.parametrize("most", [1, 33, 66, 132])
@pytest.mark.parametrize("topk", [0, 1, 64, 1100, 2048, 8192])
def test_no_more_parts_than_run_at_once(topk: int, most: int) -> None:
    for queries in range(300):
        assert 1 <= parts_of_queries(queries, 128, topk, most) <= most


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch", "new", "heads", "columns"),
    [(1, 1, 128, 2048), (16, 1, 128, 2048), (128, 2, 128, 2048), (3, 1, 192, 128), (7, 3, 64, 1984), (100, 1, 16, 640)],
)
@pytest.mark.parametrize("lengths", ["equal", "ragged", "empty"])
def test_plans_cover_every_block_once(batch: int, new: int, heads: int, columns: int, lengths: str) -> None:
    """The parts of a plan in the order of the kernels: every block of every query once, splits numbered without gaps."""
    device = torch.device("cuda", 0)
    if not torch.cuda.is_available() or not is_hopper(device):
        pytest.skip("no Hopper GPU")
    generator = torch.Generator(device).manual_seed(batch)
    counts = torch.full((batch,), columns, dtype=torch.int32, device=device)
    if lengths != "equal":
        counts = torch.randint(0, columns + 1, (batch,), generator=generator, device=device).int()
    if lengths == "empty":
        counts.zero_()
    plan = plan_decode(batch, new, heads, columns, device, counts)
    blocks = [-(-count // 64) for count in counts.tolist() for _ in range(new)]
    pieces: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    for first, first_block, last, end_block, split, *_ in plan.parts.tolist():
        for query in range(first, last + 1):
            begin = first_block if query == first else 0
            end = min(blocks[query], end_block) if query == last else blocks[query]
            pieces[query].append((split if query == first else 0, begin, end))
    offsets = plan.split_offset.tolist()
    for query, found in enumerate(pieces):
        found.sort()
        assert [split for split, _, _ in found] == list(range(offsets[query + 1] - offsets[query]))
        assert [begin for _, begin, _ in found] == [0, *(end for _, _, end in found[:-1])]
        assert found[-1][2] == blocks[query]
