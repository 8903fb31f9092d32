"""The oracle of sparse attention against softmax in float64, and the CUDA kernels' bits against the oracle's."""

import math

import pytest
import torch

from deepseek_v32.kernels.build import load
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from support import hopper_attention as oracle

SCALE = 0.04
KINDS = ("normal", "wide", "rising")


def operands(kind: str, heads: int, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q bf16 [H, 576], FP8 records [64 pages, 1, 1, 656], indices [K] of which some are invalid, sink [H]."""
    generator = torch.Generator().manual_seed(KINDS.index(kind) * 1000 + heads + count)
    latents = torch.randn(64, 512, generator=generator)
    scales = torch.rand(64, 4, generator=generator) + 0.01
    q = torch.randn(heads, 576, generator=generator)
    if kind == "wide":
        latents *= torch.exp2(torch.randint(-9, 9, latents.shape, generator=generator).float())
        scales *= torch.exp2(torch.randint(-8, 1, scales.shape, generator=generator).float())
        q *= torch.exp2(torch.randint(-8, 4, q.shape, generator=generator).float())
    rope = torch.randn(64, 64, generator=generator)
    codes = latents.clamp(-448, 448).to(torch.float8_e4m3fn)
    parts = codes.view(torch.uint8), scales.view(torch.uint8), rope.bfloat16().view(torch.uint8)
    records = torch.cat(parts, 1)
    indices = torch.randint(-3, 64, (count,), generator=generator).clamp_min(-1).int()
    if kind == "rising":  # so that the references of the exponentials move, again and again
        size = (oracle.converted(records).float() @ q[0]).argsort()
        indices = size[torch.arange(count) * 64 // count].int()
        q *= 8
    return q.bfloat16(), records.view(64, 1, 1, 656), indices, torch.randn(heads, generator=generator)


def selected(records: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return oracle.converted(records.view(64, 656))[indices.clamp_min(0).long()], indices >= 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 150])
def test_the_oracle_is_near_softmax(kind: str, count: int) -> None:
    q, records, indices, sink = operands(kind, 3, count)
    keys, valid = selected(records, indices)
    for sinks in (None, sink):
        found = oracle.attention(q, keys, valid, SCALE, torch.exp2, sinks).double()
        logits = (SCALE * (q.double() @ keys.double().T)).masked_fill(~valid, -math.inf)
        if sinks is not None:
            logits = torch.cat([logits, sinks.double()[:, None]], 1)
        weights = logits.softmax(1).nan_to_num()[:, :count]
        expected, size = weights @ keys[:, :512].double(), weights @ keys[:, :512].double().abs()
        assert ((found - expected).abs() <= 0.01 * size + 1e-30).all()


def test_no_valid_key() -> None:
    q, records, indices, _ = operands("normal", 3, 70)
    keys, _ = selected(records, indices)
    assert oracle.attention(q, keys, torch.zeros(70, dtype=torch.bool), SCALE, torch.exp2).abs().max() == 0


def approximate_exp2(x: torch.Tensor) -> torch.Tensor:
    """ex2.approx.ftz.f32: what CUDA's exp2f is for results that are not subnormal; those are zero."""
    result = torch.exp2(x)
    return torch.where(result < 2.0**-126, 0.0, result)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("heads", "count"), [(128, 64), (64, 330), (33, 1)])
def test_attention_has_the_oracle_s_bits(kind: str, heads: int, count: int) -> None:
    q, records, indices, sink = (x.cuda() for x in operands(kind, heads, count))
    keys, valid = selected(records, indices)
    for sinks in (None, sink):
        expected = oracle.attention(q, keys, valid, SCALE, approximate_exp2, sinks)
        found = sparse_mla_prefill(q[None], records, indices[None, None], SCALE, 512, None, sinks, backend="cuda")[0][0]
        wrong = found != expected  # the sign of zero is not modelled
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} differ"
    assert expected.abs().max() > 0


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_few_queries_have_the_oracle_s_bits(kind: str) -> None:
    heads, count, columns = 128, 330, 384
    q, records, indices, _ = (x.cuda() for x in operands(kind, heads, count))
    keys, valid = selected(records, indices)
    expected = oracle.scores(q, keys).masked_fill(~valid, -math.inf)
    out = torch.empty(1, heads, 512, dtype=torch.bfloat16, device="cuda")
    lse = torch.empty(1, heads, device="cuda")
    scores = torch.full((1, columns // 16, heads, 16), math.nan, device="cuda")
    maxima = torch.full((1, heads, columns // 16), math.nan, device="cuda")
    results = out, lse, SCALE, scores, maxima, 16, 32, 256
    load("sparse_few_queries").sparse_few_queries(q[None], records, indices[None], None, None, *results)
    # Of 16 columns, scores are in the order of the lanes of a quad: lane t has columns 2 t and 2 t + 1 of every eight.
    in_order = scores.view(columns // 16, heads, 4, 2, 2).permute(1, 0, 3, 2, 4).reshape(heads, columns)
    assert torch.equal(in_order[:, :count] + 0.0, expected + 0.0)  # + 0.0: the sign of zero is not modelled
    assert (in_order[:, count:] == -math.inf).all()
    assert torch.equal(maxima[0], in_order.view(heads, -1, 16).amax(2))
