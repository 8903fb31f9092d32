"""Sparse prefill of few queries, whose keys are divided into pieces: every result against the whole query and a float64 formula."""

import pytest
import torch

from deepseek_v32.kernels import sparse_mla_decode, sparse_mla_prefill
from deepseek_v32.kernels.cuda.sparse_mla_prefill import blocks_of_a_piece
from deepseek_v32.kernels.cuda.split_plan import BLOCK
from support.compare import BF16_OUT, LSE, assert_close

SCALE = 0.1352337788608801


def pieces_of(queries: int, heads: int, topk: int, most: int) -> int:
    return -(-topk // (BLOCK * blocks_of_a_piece(queries, heads, topk, most)))


@pytest.mark.parametrize("most", [1, 78, 132])
def test_all_pieces_run_at_once_and_none_is_empty_by_its_place(most):
    for queries in (1, 2, 3, 5, 16, 31, 33, 66, 67, 132, 133, 5000):
        for heads in (16, 64, 65, 128):
            for topk in (1, 64, 65, 128, 576, 2047, 2048, 8192):
                size, blocks = blocks_of_a_piece(queries, heads, topk, most), -(-topk // BLOCK)
                pieces = -(-blocks // size)
                assert (pieces - 1) * size < blocks <= pieces * size
                assert pieces == 1 or pieces * queries * -(-heads // 64) <= most


def test_few_queries_are_divided_and_many_are_not():
    assert pieces_of(1, 128, 2048, 132) == 32
    assert pieces_of(2, 128, 2048, 132) == 16, (
        "of two blocks, since pieces of one would leave too many results to merge"
    )
    assert pieces_of(16, 128, 2048, 132) == 4
    assert pieces_of(33, 128, 2048, 132) == 2
    assert pieces_of(34, 128, 2048, 132) == 1
    assert pieces_of(1, 128, 64, 132) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [16, 64, 72, 128])
@pytest.mark.parametrize(
    ("queries", "topk"), [(1, 2048), (1, 128), (2, 2048), (3, 700), (5, 1111), (16, 2048), (33, 2048), (1, 8192)]
)
def test_pieces_give_what_the_whole_query_gives(queries: int, topk: int, heads: int):
    device = torch.device("cuda", 0)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    assert pieces_of(queries, heads, topk, processors) > 1 or queries * -(-heads // 64) * 2 > processors
    generator = torch.Generator(device).manual_seed(topk + heads)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    q, kv = (3 * normal(queries, heads, 576)).bfloat16(), (0.1 * normal(4096, 1, 576)).bfloat16()
    indices = torch.randint(
        -600, 4200, (queries, 1, topk), generator=generator, device=device
    ).int()  # one in seven is invalid
    indices[0, 0, : min(topk // 2, 192)] = -1  # whole pieces without a valid key
    lengths = torch.randint(0, topk + 1, (queries,), generator=generator, device=device).int()
    lengths[-1] = 1 if queries > 1 else topk
    sinks = normal(heads)
    for length, sink in ((None, None), (lengths, None), (None, sinks), (lengths, sinks)):
        found = sparse_mla_prefill.sparse_mla_prefill(
            q, kv, indices, SCALE, topk_length=length, attn_sink=sink, backend="cuda"
        )
        keep = (indices[:, 0] >= 0) & (indices[:, 0] < 4096)
        if length is not None:
            keep &= torch.arange(topk, device=device) < length[:, None]
        keys = kv[:, 0].double()[indices[:, 0].clamp(0, 4095).long()]
        scores = torch.einsum("thd,tkd->thk", q.double(), keys) * SCALE
        scores.masked_fill_(~keep[:, None], -torch.inf)
        lse = scores.logsumexp(-1)
        total = lse if sink is None else torch.logaddexp(lse, sink.double())
        out = torch.einsum("thk,tkd->thd", (scores - total[..., None]).exp().nan_to_num(0.0), keys[..., :512])
        out[lse.isneginf()] = 0
        for mine, theirs, tolerance, what in zip(
            found, (out, scores.amax(-1), lse), (BF16_OUT, LSE, LSE), ("out", "max_logits", "lse"), strict=True
        ):
            assert_close(mine, theirs.cpu().numpy(), tolerance, what)


@pytest.mark.gpu
def test_a_query_has_the_same_bits_among_others_where_it_is_not_divided():
    """The deterministic mode's kernel; the divided one must differ somewhere, or this would show nothing."""
    device = torch.device("cuda", 0)
    generator = torch.Generator(device).manual_seed(0)
    q = torch.randn(80, 128, 576, generator=generator, device=device).bfloat16()
    kv = torch.randn(4096, 1, 576, generator=generator, device=device).bfloat16()
    indices = torch.randint(0, 4096, (80, 1, 2048), generator=generator, device=device).int()
    whole = sparse_mla_prefill.sparse_mla_prefill(q, kv, indices, SCALE, backend="invariant")
    for rows in (slice(0, 1), slice(7, 23)):
        single = sparse_mla_prefill.sparse_mla_prefill(q[rows], kv, indices[rows], SCALE, backend="invariant")
        divided = sparse_mla_prefill.sparse_mla_prefill(q[rows], kv, indices[rows], SCALE, backend="cuda")
        decoded, _ = sparse_mla_decode.sparse_mla_decode(
            q[rows, None], kv.view(64, 64, 1, 576), indices[rows], SCALE, backend="invariant"
        )
        assert all(torch.equal(a, b[rows]) for a, b in zip(single, whole, strict=True))
        assert torch.equal(decoded[:, 0], whole[0][rows])
        assert not torch.equal(divided[0], single[0])
