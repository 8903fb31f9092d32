"""MoE routing against its formula in plain Python: the choice of experts, the sorting of pairs, and the weighted sum."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepseek_v32.kernels.cuda.routing import gather_rows
from deepseek_v32.kernels.quantize import quantize_blocks
from deepseek_v32.kernels.routing import combine_experts, combine_norm_quantize, group_by_expert, route, route_and_group
from deepseek_v32.kernels.types import ExpertGroups
from support.backends import Backend

ROUTES = {  # tokens, experts, groups, kept groups, top-k
    "released": (64, 256, 8, 4, 8),
    "one token": (1, 256, 8, 4, 8),
    "three tokens": (3, 256, 8, 4, 8),
    "no token": (0, 256, 8, 4, 8),
    "many tokens": (4096, 256, 8, 4, 8),
    "one group": (5, 72, 1, 1, 6),
    "groups of one expert": (7, 8, 8, 3, 3),
    "groups that end inside a warp's row": (9, 60, 5, 2, 4),
    "more than 256 experts": (6, 384, 3, 2, 32),
    "everybody": (4, 8, 4, 4, 8),
}


def chosen_by_hand(
    logits: list[float], bias: list[float], groups: int, kept: int, topk: int, sigmoid: list[float]
) -> list[int]:
    """Python's sort is stable, so of equal values the lowest index comes first."""
    biased = (torch.tensor(sigmoid) + torch.tensor(bias)).tolist()  # in fp32, like the sums that the kernels compare
    size = len(logits) // groups
    best_two = [sorted(biased[g * size : (g + 1) * size], reverse=True)[:2] for g in range(groups)]
    scores = [float(torch.tensor(pair).sum()) for pair in best_two]
    ranked = sorted(range(groups), key=lambda g: -scores[g])[:kept] if groups > 1 else [0]
    if groups == 1:
        size = len(logits)
    candidates = sorted(e for g in ranked for e in range(g * size, (g + 1) * size))
    return sorted(candidates, key=lambda e: -biased[e])[:topk]


@pytest.mark.parametrize("ties", [False, True], ids=["all different", "ties"])
@pytest.mark.parametrize(("tokens", "experts", "groups", "kept", "topk"), ROUTES.values(), ids=ROUTES.keys())
def test_route(backend: Backend, tokens: int, experts: int, groups: int, kept: int, topk: int, ties: bool) -> None:
    """Logits on a grid of 2^-6 are never so close that the last bit of the exponential decides. With ties there are four values."""
    generator = torch.Generator().manual_seed(experts + tokens)
    values = torch.randint(4 if ties else 512, (tokens, experts), generator=generator)
    logits = values.float() / (1 if ties else 64) - 4
    bias = torch.randint(2 if ties else 64, (experts,), generator=generator).float() / 8 - 3
    picked, weights = backend.run(route, logits, bias, topk, groups, kept, True, 2.5)
    assert picked.dtype == torch.int64 and weights.dtype == torch.float32
    assert picked.shape == weights.shape == (tokens, topk)
    sigmoid = logits.sigmoid()
    for row in range(min(tokens, 200)):
        arguments = logits[row].tolist(), bias.tolist(), groups, kept, topk, sigmoid[row].tolist()
        assert picked[row].tolist() == chosen_by_hand(*arguments), row
    expected = sigmoid.gather(1, picked).double()
    expected = expected / expected.sum(1, keepdim=True) * 2.5
    torch.testing.assert_close(weights.double(), expected, rtol=2e-6, atol=0)
    plain = backend.run(route, logits, bias, topk, groups, kept, False, 1.0)[1]
    torch.testing.assert_close(plain, sigmoid.gather(1, picked), rtol=1e-6, atol=0)


def test_route_keeps_to_the_experts_when_everything_is_nan(backend: Backend) -> None:
    """A broken model must not make a kernel read past its experts; the weights are NaN."""
    picked, weights = backend.run(route, torch.full((3, 256), math.nan), torch.zeros(256), 8, 8, 4)
    assert picked.min() >= 0 and picked.max() < 256 and weights.isnan().all()
    assert all(len(set(row)) == 8 for row in picked.tolist())


def test_a_dropped_group_stays_below_negative_biases(backend: Backend) -> None:
    logits = torch.zeros(2, 16)
    bias = torch.full((16,), -50.0)
    bias[8:12] = -40
    picked, _ = backend.run(route, logits, bias, 3, 4, 1)
    assert picked.tolist() == [[8, 9, 10]] * 2


GROUPS = {  # tokens, top-k, all experts, first expert of the rank, experts of the rank, step between them
    "one token": (1, 8, 256, 0, 256, 1),
    "three tokens": (3, 8, 256, 0, 256, 1),
    "a batch": (64, 8, 256, 0, 256, 1),
    "a chunk": (4096, 8, 256, 0, 256, 1),
    "a rank's share": (64, 8, 256, 3, 32, 8),
    "the same, of a chunk": (4096, 8, 256, 7, 32, 8),
    "ranks that do not divide the experts": (50, 4, 6, 1, 2, 4),
    "neighbours": (64, 8, 256, 96, 32, 1),
    "a rank that gets nothing": (3, 2, 64, 1000, 8, 1),
    "one choice": (130, 1, 3, 0, 3, 1),
    "one expert": (33, 1, 1, 0, 1, 1),
    "most experts": (77, 9, 1023, 0, 1023, 1),
}


@pytest.mark.parametrize("shape", ["released", "five groups", "one group", "small groups"])
@pytest.mark.parametrize("share", [(256, 0, 1), (32, 3, 8)], ids=["all experts", "a rank's share"])
@pytest.mark.parametrize("tokens", [0, 1, 3, 4, 5, 33, 64, 128, 200], ids=str)
def test_route_and_group(backend: Backend, tokens: int, share: tuple[int, int, int], shape: str) -> None:
    """The same as one operation after the other; there are many ties, of keys, of groups, and with NaN."""
    experts, groups, kept, topk = {
        "released": (256, 8, 4, 8),
        "five groups": (160, 5, 2, 32),
        "one group": (32, 1, 1, 3),
        "small groups": (64, 4, 2, 6),
    }[shape]
    generator = torch.Generator().manual_seed(tokens)
    logits = torch.randint(64, (tokens, experts), generator=generator).float() / 16 - 2
    logits[1:2] = 0
    logits[2:3, ::7] = math.nan
    logits[3:4, : experts // 2] = math.nan
    bias = torch.randint(8, (experts,), generator=generator).float() / 8 - 0.5
    arguments = topk, groups, kept, True, 2.5
    weights, made = backend.run(route_and_group, logits, bias, *arguments, *share)
    picked, expected = route(logits, bias, *arguments)
    torch.testing.assert_close(weights, expected, rtol=2e-6, atol=0, equal_nan=True)
    for mine, theirs in zip(made, group_by_expert(picked, *share), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("tokens", "topk", "total", "first", "count", "step"), GROUPS.values(), ids=GROUPS.keys())
def test_group_by_expert(
    backend: Backend, tokens: int, topk: int, total: int, first: int, count: int, step: int
) -> None:
    """The experts are columns of a wider tensor, as after a gather over ranks."""
    wider = torch.randint(total, (tokens, topk + 3), generator=torch.Generator().manual_seed(tokens))
    experts = wider[:, 1 : topk + 1]
    check_groups(
        backend.run(group_by_expert, experts, count, first, step), experts, range(first, first + count * step, step)
    )


def check_groups(groups: ExpertGroups, experts: torch.Tensor, here: range) -> None:
    count = len(here)
    assert all(part.dtype == torch.int32 for part in groups)
    pairs = [here.index(e) if e in here else count for e in experts.flatten().tolist()]
    order = sorted(range(len(pairs)), key=lambda pair: pairs[pair])  # python's sort is stable
    topk = max(experts.shape[1], 1)
    assert groups.sorted_token_ids.tolist() == [pair // topk for pair in order]
    assert groups.inverse_permutation.shape == experts.shape
    assert [order[place] for place in groups.inverse_permutation.flatten().tolist()] == list(range(len(pairs)))
    load = torch.tensor(pairs, dtype=torch.int64).bincount(minlength=count + 1)
    assert groups.offsets.tolist() == [0, *load[:count].cumsum(0).tolist()]


@given(data=st.data(), tokens=st.integers(0, 12), topk=st.integers(1, 4), count=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_any_pairs(data: st.DataObject, tokens: int, topk: int, count: int) -> None:
    first, step = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 3))
    pairs = data.draw(st.lists(st.integers(0, count + 5), min_size=tokens * topk, max_size=tokens * topk))
    experts = torch.tensor(pairs, dtype=torch.int64).reshape(tokens, topk)
    check_groups(group_by_expert(experts, count, first, step), experts, range(first, first + count * step, step))


COMBINED = {  # tokens, top-k, width: released; widths that fill no vector; one; nothing
    "released": (3, 8, 7168),
    "one token": (1, 8, 7168),
    "a batch": (64, 8, 512),
    "no whole vector": (5, 2, 33),
    "one of all": (1, 1, 1),
    "no token": (0, 4, 64),
}


@pytest.mark.parametrize("shared", [False, True], ids=["without a shared expert", "with the shared expert"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("tokens", "topk", "width"), COMBINED.values(), ids=COMBINED.keys())
def test_combine(backend: Backend, tokens: int, topk: int, width: int, dtype: torch.dtype, shared: bool) -> None:
    """A third of the pairs belong to other ranks. Their rows hold NaN, which must not appear in the result.

    The weights are columns of a wider tensor, as after a gather over ranks.
    """
    generator = torch.Generator().manual_seed(width)
    groups = group_by_expert(torch.randint(12, (tokens, topk), generator=generator), 8, 0)
    rows = torch.randn(tokens * topk, width, generator=generator).to(dtype)
    here = int(groups.offsets[-1])
    rows[here:] = math.nan
    weights = torch.rand(tokens, topk + 3, generator=generator)[:, 1 : topk + 1]
    outputs = torch.randn(tokens, width, generator=generator).to(dtype) if shared else None
    result = backend.run(combine_experts, rows, groups, weights, outputs)
    assert result.dtype == dtype and result.shape == (tokens, width)
    expected = torch.zeros(tokens, width, dtype=torch.float64) if outputs is None else outputs.double()
    for token in range(tokens):
        for choice in range(topk):
            place = int(groups.inverse_permutation[token, choice])
            if place < here:
                expected[token] += weights[token, choice].double() * rows[place].double()
    rounding = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-22
    assert ((result.double() - expected).abs() <= rounding * expected.abs() + 1e-5).all()


PAIRS = torch.zeros(2, 2, dtype=torch.int32)
MISUSE = {
    "groups that do not divide": (
        lambda: route(torch.zeros(1, 10), torch.zeros(10), 2, 3),
        "num_groups is 3; expected a divisor",
    ),
    "more groups kept than there are": (lambda: route(torch.zeros(1, 4), torch.zeros(4), 2, 2, 3), "topk_groups is 3"),
    "more chosen than there are": (lambda: route(torch.zeros(1, 4), torch.zeros(4), 5), "topk is 5; expected 1 to 4"),
    "bf16 logits": (lambda: route(torch.zeros(1, 4).bfloat16(), torch.zeros(4), 1), "logits has dtype torch.bfloat16"),
    "int32 experts": (lambda: group_by_expert(torch.zeros(1, 1).int(), 1), "experts has dtype torch.int32"),
    "no experts": (lambda: group_by_expert(torch.zeros(1, 1).long(), 0), "count is 0"),
    "a row too few": (
        lambda: combine_experts(torch.ones(3, 8), group_by_expert(torch.zeros(2, 2).long(), 1), torch.ones(2, 2)),
        r"rows has shape \[3, 8\]; expected \[4, \*\]",
    ),
    "a flat inverse permutation": (
        lambda: combine_experts(torch.ones(4, 8), ExpertGroups(*[torch.zeros(4).int()] * 3), torch.ones(2, 2)),
        r"groups\.inverse_permutation has shape \[4\]; expected \[\*, \*\]",
    ),
    "int64 offsets": (
        lambda: combine_experts(
            torch.ones(4, 8), ExpertGroups(PAIRS.view(-1), PAIRS, torch.zeros(2).long()), torch.ones(2, 2)
        ),
        r"groups\.offsets has dtype torch\.int64; expected torch\.int32",
    ),
}


@pytest.mark.parametrize(("misuse", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(misuse: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        misuse()  # type: ignore[operator]


COMBINED_NORMS = {  # tokens, columns, top-k, with the shared expert, pairs elsewhere
    "released, one token": (1, 7168, 8, True, False),
    "released, three tokens": (3, 7168, 8, True, False),
    "a batch": (37, 7168, 8, True, False),
    "a chunk": (300, 7168, 8, True, False),
    "a rank": (40, 2048, 8, False, True),
    "more choices": (5, 1024, 11, True, True),
    "other columns": (4, 7000, 8, True, False),
    "no token": (0, 1024, 2, True, False),
}


@pytest.mark.parametrize("ue8m0", [True, False], ids=["powers of two", "any scale"])
@pytest.mark.parametrize(
    ("tokens", "columns", "topk", "with_shared", "elsewhere"), COMBINED_NORMS.values(), ids=COMBINED_NORMS.keys()
)
def test_combine_norm_quantize(
    backend: Backend, tokens: int, columns: int, topk: int, with_shared: bool, elsewhere: bool, ue8m0: bool
) -> None:
    generator = torch.Generator().manual_seed(tokens)
    experts = torch.rand(tokens, 16, generator=generator).argsort(1)[:, :topk].contiguous()
    groups = group_by_expert(experts, 5 if elsewhere else 16, 2 if elsewhere else 0)
    rows = torch.randn(tokens * topk, columns, generator=generator).bfloat16()
    rows[int(groups.offsets[-1]) :] = math.nan  # those rows are not computed
    weights = torch.rand(tokens, topk + 3, generator=generator)[:, 1 : topk + 1]
    shared = torch.randn(tokens, columns, generator=generator).bfloat16() if with_shared else None
    residual = torch.randn(tokens, columns, generator=generator).bfloat16() * 4
    gain = torch.rand(columns, generator=generator) + 0.5
    result = backend.run(combine_norm_quantize, rows, groups, weights, shared, residual, gain, 1e-6, ue8m0)
    place = groups.inverse_permutation.long()
    mine = place < groups.offsets[-1]
    exact = (rows.double().nan_to_num()[place.flatten()].view(tokens, topk, columns) * (weights * mine)[..., None]).sum(
        1
    )
    if shared is not None:
        exact += shared.double()
    total = residual.double() + exact
    assert ((result.total.double() - total).abs() <= 2.0**-8 * (total.abs() + exact.abs())).all()
    own = result.total.double()  # of what was rounded, the norm is exact
    normed = own / (own.square().mean(1, keepdim=True) + 1e-6).sqrt() * gain.double()
    assert ((result.rows.double() - normed).abs() <= 2.0**-8 * normed.abs() + 1e-6).all()
    values, scales = quantize_blocks(result.rows, ue8m0, backend="reference")
    assert torch.equal(result.quantized.values.view(torch.uint8), values.view(torch.uint8))
    assert torch.equal(result.quantized.scales, scales)


def test_a_weight_of_the_fused_norm_that_is_not_finite_spoils_its_group_alone(backend: Backend) -> None:
    groups = group_by_expert(torch.zeros(3, 1, dtype=torch.int64), 2)
    rows, gain = torch.ones(3, 2048).bfloat16(), torch.ones(2048)
    gain[1000] = math.inf
    result = backend.run(combine_norm_quantize, rows, groups, torch.ones(3, 1), None, rows, gain, 1e-6)
    assert result.quantized.scales.isnan().tolist() == [[group == 7 for group in range(16)]] * 3
    assert result.quantized.values.float().isnan().sum(1).tolist() == [128] * 3


@pytest.mark.gpu
def test_the_fused_norm_does_not_depend_on_the_batch() -> None:
    """Few tokens are computed by clusters, many by single blocks; the bits are the same."""
    generator = torch.Generator("cuda").manual_seed(3)
    experts = torch.rand(200, 16, generator=generator, device="cuda").argsort(1)[:, :8].contiguous()
    by_pair, shared, residual = (
        torch.randn(count, 7168, generator=generator, device="cuda").bfloat16() for count in (1600, 200, 200)
    )
    weights = torch.rand(200, 8, generator=generator, device="cuda")
    gain = torch.ones(7168, device="cuda")

    def run(tokens: slice) -> torch.Tensor:
        groups = group_by_expert(experts[tokens].contiguous(), 16)
        rows = torch.empty_like(by_pair.view(200, 8, 7168)[tokens].flatten(0, 1))
        rows[groups.inverse_permutation.flatten().long()] = by_pair.view(200, 8, 7168)[tokens].flatten(0, 1)
        return combine_norm_quantize(rows, groups, weights[tokens], shared[tokens], residual[tokens], gain, 1e-6).rows

    whole = run(slice(None))
    for tokens in (slice(0, 1), slice(7, 12), slice(100, 137)):
        assert torch.equal(run(tokens), whole[tokens])


@pytest.mark.gpu
@pytest.mark.parametrize("width", [7168, 128, 144])
def test_rows_are_gathered_up_to_the_last_of_this_rank(width: int) -> None:
    generator = torch.Generator("cuda").manual_seed(4)
    experts = torch.rand(333, 16, generator=generator, device="cuda").argsort(1)[:, :3].contiguous()
    groups = group_by_expert(experts, 8, first=1, step=2)
    x = quantize_blocks(torch.randn(333, width, generator=generator, device="cuda"))
    codes, scales = gather_rows(x, groups.sorted_token_ids, groups.offsets)
    here, taken = int(groups.offsets[-1]), groups.sorted_token_ids
    assert 0 < here < len(taken) == len(codes) == len(scales)
    assert torch.equal(codes[:here].view(torch.uint8), x.values.view(torch.uint8)[taken[:here]])
    assert torch.equal(scales[:here], x.scales[taken[:here]])
