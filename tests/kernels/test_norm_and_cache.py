"""The norm of the compressed query and both cache entries, in one launch, against the separate operations' references."""

import math
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.cache_write import gather_index_keys, gather_latents
from deepseek_v32.kernels.norm_and_cache import norm_and_cache
from deepseek_v32.kernels.quantize import rms_norm_quantize
from deepseek_v32.kernels.reference.fp32_ops import layer_norm
from deepseek_v32.kernels.reference.hadamard import hadamard_transform
from deepseek_v32.kernels.reference.rope import rotate_index, rotate_interleaved
from deepseek_v32.kernels.types import Caches, Fp32Projection, Norms, Stamp
from support.backends import Backend

PAGES = 5
PROJECTED = 2  # its place among the results that are compared


class Inputs:
    """Random inputs for `tokens` tokens; rows have a pitch of their own, as parts of one wide product would have."""

    def __init__(
        self, tokens: int, query: int = 1536, dtype: torch.dtype = torch.bfloat16, columns: int = 1024
    ) -> None:
        generator = torch.Generator().manual_seed(tokens)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator)

        wide = (random(tokens, query + 576 + 128) * 3).to(dtype)
        self.query, self.kv, self.keys = wide.split((query, 576, 128), 1)
        self.norms = Norms(*(random(size).abs() + 0.1 for size in (query, 512, 128)), random(128), 1e-6, 1e-5)
        angles = random(tokens, 32)
        self.cos, self.sin = angles.cos(), angles.sin()
        slots = torch.randperm(PAGES * 64, generator=generator)[:tokens]
        latent, keys = (torch.full((PAGES, 64, 1, record), 0xFF, dtype=torch.uint8) for record in (656, 132))
        stamps = [
            Stamp(torch.zeros(PAGES * 64, dtype=torch.int32), torch.arange(first, first + tokens, dtype=torch.int32))
            for first in (1, 1000)
        ]
        self.caches = Caches(latent, keys, slots, stamps[0], stamps[1] if tokens != 2 else None)
        self.projection = Fp32Projection(random(tokens, columns).to(dtype), random(70, columns), 0.3)


def exact_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(1, keepdim=True) + eps).sqrt() * weight.double()


def close(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """FP8 values: half a step of 3 bits from the rounded expectation, which may itself be a step of bf16 away."""
    return bool(((result.double() - expected.double()).abs() <= 2.0**-3.9 * expected.double().abs() + 2e-2).all())


@pytest.mark.parametrize("projects", [True, False], ids=["with projection", "without"])
@pytest.mark.parametrize("tokens", [20, 260])
def test_some_of_the_queries(backend: Backend, tokens: int, projects: bool) -> None:
    """A rank norms the queries of its own tokens, and writes all tokens' entries."""

    def run(rows: slice) -> tuple[Any, ...]:
        given = Inputs(tokens)
        x, weight, scale = given.projection
        projection = Fp32Projection(x[rows], weight, scale) if projects else None
        angles = given.cos, given.sin
        query, projected = backend.run(
            norm_and_cache,
            given.query[rows],
            given.kv,
            given.keys,
            given.norms,
            *angles,
            given.caches,
            False,
            True,
            projection,
        )
        return *query, projected, given.caches

    *whole, caches = run(slice(None))
    *part, others = run(slice(7, 18))
    for one, other in zip(whole, part, strict=True):
        assert one is other is None or torch.equal(one[7:18].view(torch.uint8), other.view(torch.uint8))
    assert torch.equal(caches.latent, others.latent) and torch.equal(caches.keys, others.keys)


@pytest.mark.parametrize("interleaved", [False, True], ids=["half-split", "interleaved"])
@pytest.mark.parametrize("projects", [True, False], ids=["with projection", "without"])
@pytest.mark.parametrize("tokens", [0, 1, 2, 5, 64, 65, 200], ids=str)
def test_one_launch(backend: Backend, tokens: int, projects: bool, interleaved: bool) -> None:
    inputs = Inputs(tokens)
    before = [cache.clone() for cache in (inputs.caches.latent, inputs.caches.keys)]
    query, projected = backend.run(
        norm_and_cache,
        inputs.query,
        inputs.kv,
        inputs.keys,
        inputs.norms,
        inputs.cos,
        inputs.sin,
        inputs.caches,
        interleaved,
        True,
        inputs.projection if projects else None,
    )
    assert projects or projected is None
    if tokens:
        check(inputs, query, projected, interleaved)
    for stamp in (inputs.caches.latent_stamp, inputs.caches.key_stamp):
        if stamp is not None:
            expected = torch.zeros_like(stamp.column)
            expected[inputs.caches.slots] = stamp.values
            assert torch.equal(stamp.column, expected)
    for cache, old in zip((inputs.caches.latent, inputs.caches.keys), before, strict=True):  # nothing else was written
        written = torch.zeros(PAGES * 64, dtype=torch.bool)
        written[inputs.caches.slots] = True
        if cache.shape[-1] == 656:
            assert torch.equal(cache.view(-1, 656)[~written], old.view(-1, 656)[~written])
        else:
            keys, scales = cache.view(PAGES, -1)[:, : 64 * 128], cache.view(PAGES, -1)[:, 64 * 128 :]
            assert (keys.reshape(-1, 128)[~written] == 0xFF).all() and (scales.reshape(-1, 4)[~written] == 0xFF).all()


def check(
    inputs: Inputs, query: tuple[torch.Tensor, torch.Tensor], projected: torch.Tensor | None, interleaved: bool
) -> None:
    norms, cos, sin, caches = inputs.norms, inputs.cos, inputs.sin, inputs.caches
    expected = rms_norm_quantize(inputs.query, norms.query, norms.eps, backend="reference").quantized
    values, scales = (each.float() for each in query)
    exact = exact_norm(inputs.query, norms.query, norms.eps)
    assert close(values * scales.repeat_interleave(128, 1), exact)
    if values.numel():
        assert (values != expected.values.float()).float().mean() < 0.01
        assert (scales != expected.scales).float().mean() < 0.01

    made = gather_latents(caches.latent, caches.slots, 512, torch.float32, backend="reference")
    latent = exact_norm(inputs.kv[:, :512], norms.latent, norms.eps)
    assert close(made[:, :512], latent)
    assert torch.equal(made[:, 512:], rotate_interleaved(inputs.kv[:, 512:], cos, sin).bfloat16().float())

    codes, key_scales = gather_index_keys(caches.keys, caches.slots)
    assert key_scales is not None
    normed = layer_norm(inputs.keys, norms.key, norms.key_bias, norms.key_eps)
    key = hadamard_transform(rotate_index(normed, cos, sin, interleaved), 128**-0.5)
    difference = (codes.float() * key_scales[:, None]).double() - key.double()
    # A sum of 128 values that were rounded to bf16, then a step of FP8.
    assert (difference.abs() <= 2.0**-3.9 * key.double().abs() + 0.05).all()
    assert torch.equal(key_scales.log2().frac(), torch.zeros_like(key_scales))

    if projected is not None:
        x, weight, scale = inputs.projection
        left, right = x.double(), weight.double()
        size = left.abs() @ right.abs().T
        assert ((projected.double() - left @ right.T * scale).abs() <= 2.0**-20 * size).all()


@pytest.mark.parametrize(("query", "dtype"), [(512, torch.bfloat16), (1536, torch.float32)], ids=["narrow", "fp32"])
def test_other_shapes(backend: Backend, query: int, dtype: torch.dtype) -> None:
    inputs = Inputs(6, query, dtype)
    arguments = inputs.query, inputs.kv, inputs.keys, inputs.norms, inputs.cos, inputs.sin, inputs.caches
    made, projected = backend.run(norm_and_cache, *arguments, False, True, inputs.projection)
    check(inputs, made, projected, False)


@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
def test_a_weight_that_is_not_finite_spoils_its_groups_alone(backend: Backend, bad: float) -> None:
    inputs = Inputs(5)
    inputs.norms.query[200] = inputs.norms.latent[300] = inputs.norms.key_bias[100] = bad
    arguments = inputs.query, inputs.kv, inputs.keys, inputs.norms, inputs.cos, inputs.sin, inputs.caches
    query, _ = backend.run(norm_and_cache, *arguments)
    assert query.scales.isnan().tolist() == [[group == 1 for group in range(12)]] * 5
    assert query.values.float()[:, 128:256].isnan().all() and query.values.float()[:, 256:].isfinite().all()
    made = gather_latents(inputs.caches.latent, inputs.caches.slots, 512, torch.float32, backend="reference")
    assert made.isnan().tolist() == [[256 <= column < 384 for column in range(576)]] * 5
    codes, scales = gather_index_keys(inputs.caches.keys, inputs.caches.slots)
    assert scales is not None and scales.isnan().all() and codes.float().isnan().all()


@pytest.mark.gpu
def test_results_do_not_depend_on_the_batch() -> None:
    """With up to 64 tokens the projection is a part of the launch; beyond, it is one of its own. Up to four have other sums."""

    def run(tokens: slice) -> list[torch.Tensor]:
        inputs = Inputs(200, columns=7168)
        caches = [cache.cuda() for cache in (inputs.caches.latent, inputs.caches.keys)]
        norms = Norms(*(part.cuda() for part in inputs.norms[:4]), *inputs.norms[4:])
        x, weight, scale = inputs.projection
        query, projected = norm_and_cache(
            *(each[tokens].cuda() for each in (inputs.query, inputs.kv, inputs.keys)),
            norms,
            inputs.cos[tokens].cuda(),
            inputs.sin[tokens].cuda(),
            Caches(*caches, inputs.caches.slots[tokens].cuda()),
            projection=Fp32Projection(x[tokens].cuda(), weight.cuda(), scale),
        )
        assert projected is not None
        slots = inputs.caches.slots[tokens].cuda()
        keys, scales = gather_index_keys(caches[1], slots)
        assert scales is not None
        records = caches[0].view(-1, 656)[slots]
        return [query.values.view(torch.uint8), query.scales, projected, records, keys.view(torch.uint8), scales]

    whole = run(slice(None))
    for tokens in (slice(0, 1), slice(6, 9), slice(90, 154), slice(100, 180)):
        for number, (part, expected) in enumerate(zip(run(tokens), whole, strict=True)):
            assert torch.equal(part, expected[tokens]) or (number == PROJECTED and len(part) <= 4)


def test_misuse_names_the_argument() -> None:
    inputs = Inputs(3)
    arguments = [inputs.query, inputs.kv, inputs.keys, inputs.norms, inputs.cos, inputs.sin, inputs.caches]
    with pytest.raises(ValueError, match=r"kv has shape \[3, 575\]; expected \[3, 576\]"):
        norm_and_cache(arguments[0], inputs.kv[:, 1:], *arguments[2:])
    with pytest.raises(ValueError, match=r"norms\.latent has dtype"):
        norm_and_cache(*arguments[:3], inputs.norms._replace(latent=inputs.norms.latent.double()), *arguments[4:])
    with pytest.raises(ValueError, match=r"caches\.slots has shape \[2\]; expected \[3\]"):
        norm_and_cache(*arguments[:6], inputs.caches._replace(slots=inputs.caches.slots[:2]))
    with pytest.raises(ValueError, match=r"caches\.keys has strides"):
        wide = torch.zeros(PAGES, 64, 2, 132, dtype=torch.uint8)[:, :, :1]
        norm_and_cache(*arguments[:6], inputs.caches._replace(keys=wide))
