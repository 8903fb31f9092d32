"""Attention of few queries in the deterministic mode: the bits of the kernel that adds one block of keys after the other."""

import pytest
import torch

from deepseek_v32.kernels.cache_write import gather_latents, write_latent_cache
from deepseek_v32.kernels.implementations import INVARIANT
from deepseek_v32.kernels.invariant.gpu import sparse_mla
from deepseek_v32.kernels.invariant.gpu.sparse_mla import _by_pieces, few_queries
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from deepseek_v32.kernels.types import SparseAttention

PAGE, TOKENS, SCALE = 64, 4096, 0.05


def cache(generator: torch.Generator) -> torch.Tensor:
    """A filled FP8 cache of TOKENS slots, with scales that are powers of two."""
    device = generator.device
    records = torch.zeros(TOKENS // PAGE, PAGE, 1, 656, dtype=torch.uint8, device=device)
    kv = torch.randn(TOKENS, 576, generator=generator, device=device)
    kv *= torch.randn(TOKENS, 1, generator=generator, device=device).exp()
    cos, sin = torch.ones(TOKENS, 32, device=device), torch.zeros(TOKENS, 32, device=device)
    gain = torch.rand(512, generator=generator, device=device) + 0.5
    write_latent_cache(kv.bfloat16(), gain, 1e-6, cos, sin, records, torch.arange(TOKENS, device=device))
    return records


@pytest.mark.gpu
@pytest.mark.parametrize("odd_scales", [False, True], ids=["powers of two", "any scale"])
@pytest.mark.parametrize("heads", [33, 64, 128])
@pytest.mark.parametrize(
    ("count", "topk"),
    [(1, 2048), (1, 64), (1, 1), (2, 2048), (3, 1100), (12, 2048), (2, 8192)],
    ids=lambda value: str(value),
)
def test_bits_equal_those_of_prefill(count: int, topk: int, heads: int, odd_scales: bool) -> None:
    generator = torch.Generator("cuda").manual_seed(count * 10_000 + topk + heads)
    records = cache(generator)
    if odd_scales:
        scales = records.view(-1, 656)[:, 512:528].contiguous().view(torch.float32)
        scales *= 1 + torch.rand(scales.shape, generator=generator, device="cuda")
        records.view(-1, 656)[:, 512:528] = scales.view(torch.uint8)
    q = torch.randn(count, heads, 576, generator=generator, device="cuda")
    q *= torch.randn(count, heads, 1, generator=generator, device="cuda").exp()  # references move in some rows only
    q = q.bfloat16()
    indices = torch.randint(-200, TOKENS, (count, topk), generator=generator, device="cuda").clamp_min(-1).int()
    lengths = torch.randint(0, topk + 1, (count,), generator=generator, device="cuda").int()
    lengths[0] = topk
    sink = torch.randn(heads, generator=generator, device="cuda")
    rows = gather_latents(records, torch.arange(TOKENS, device="cuda"), 512, torch.bfloat16)
    for length, sinks in ((None, None), (lengths, sink)):
        out, lse = few_queries(SparseAttention(q, records, indices[:, None], SCALE, 512, length, sinks))
        for kv, backend in ((records, "cuda"), (rows[:, None], INVARIANT)):
            expected, _, expected_lse = sparse_mla_prefill(
                q, kv, indices[:, None], SCALE, 512, length, sinks, backend=backend
            )
            assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    assert out.isfinite().all() and out.abs().sum() > 0


@pytest.mark.gpu
def test_references_that_rise_through_a_whole_list() -> None:
    """Over 64 blocks, of which a warp follows 32 at a time; the keys are in the order of the first head's scores."""
    generator = torch.Generator("cuda").manual_seed(5)
    records = cache(generator)
    rows = gather_latents(records, torch.arange(TOKENS, device="cuda"), 512, torch.bfloat16)
    q = (60 * torch.randn(1, 128, 576, generator=generator, device="cuda")).bfloat16()
    rising = rows.float() @ q[0, 0].float()
    moves = (SCALE * 1.4427 * rising.sort().values[63::64]).diff()
    assert 10 < (moves > 8).sum() < 60
    for indices in (rising.argsort(), rising.argsort().flip(0)):
        out, lse = few_queries(SparseAttention(q, records, indices.int()[None, None], SCALE, 512, None, None))
        expected, _, expected_lse = sparse_mla_prefill(
            q, records, indices.int()[None, None], SCALE, 512, backend="cuda"
        )
        assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


@pytest.mark.gpu
def test_dividing_the_keys_changes_bits() -> None:
    """So the comparison above can fail."""
    generator = torch.Generator("cuda").manual_seed(0)
    records = cache(generator)
    q = torch.randn(1, 128, 576, generator=generator, device="cuda").bfloat16()
    indices = torch.randint(TOKENS, (1, 2048), generator=generator, device="cuda").int()
    given = SparseAttention(q, records, indices[:, None], SCALE, 512, None, None)
    whole = few_queries(given)[0]
    assert not torch.equal(whole, _by_pieces(given, None)[0])
    assert not torch.equal(whole, few_queries(given._replace(indices=indices.flip(1)[:, None]))[0])


@pytest.mark.gpu
@pytest.mark.parametrize("topk", [2048, 100])
def test_lists_without_keys(topk: int) -> None:
    """By themselves and next to lists with keys, through the operation: zeros and a logsumexp of minus infinity."""
    generator = torch.Generator("cuda").manual_seed(topk)
    records = cache(generator)
    for lengths in ([0], [0, 0, 0], [topk, 0, 1, 0]):
        count = len(lengths)
        q = torch.randn(count, 1, 128, 576, generator=generator, device="cuda").bfloat16()
        indices = torch.randint(TOKENS, (count, 1, topk), generator=generator, device="cuda").int()
        length, sink = torch.tensor(lengths, dtype=torch.int32, device="cuda"), torch.ones(128, device="cuda")
        out, lse = sparse_mla.sparse_mla_decode(SparseAttention(q, records, indices, SCALE, 512, length, sink), None)
        empty = length == 0
        assert not out[empty].any() and (lse[empty] == -torch.inf).all() and lse[~empty].isfinite().all()
        expected, _, expected_lse = sparse_mla_prefill(
            q[:, 0], records, indices, SCALE, 512, length, sink, backend="cuda"
        )
        assert torch.equal(out[:, 0], expected) and torch.equal(lse[:, :, 0], expected_lse)


@pytest.mark.parametrize("with_lengths", [False, True])
def test_few_queries_have_a_kernel_of_their_own(with_lengths: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    out, lse = torch.zeros(11, 64, 512), torch.zeros(11, 64)
    monkeypatch.setattr(
        sparse_mla, "few_queries", lambda given: chosen.append("few") or (out[: len(given.q)], lse[: len(given.q)])
    )
    monkeypatch.setattr(
        sparse_mla,
        "sparse_mla_prefill",
        lambda given: chosen.append("prefill") or (out[: len(given.q)], None, lse[: len(given.q)]),
    )
    records = torch.zeros(1, 64, 1, 656, dtype=torch.uint8)
    for count in (1, 10, 11):  # of 64 heads
        q, indices = torch.zeros(count, 1, 64, 576).bfloat16(), torch.zeros(count, 1, 128, dtype=torch.int32)
        lengths = torch.zeros(count, dtype=torch.int32) if with_lengths else None
        sparse_mla.sparse_mla_decode(SparseAttention(q, records, indices, SCALE, 512, lengths, None), None)
    assert chosen == ["few", "few", "prefill"]
