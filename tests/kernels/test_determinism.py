"""Each batch-invariant operation: every single row has the bits that it has in a batch, and the reference's result."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from campaigns.determinism_mutants import MUTANTS
from deepseek_v32.kernels.cache_write import gather_index_keys, write_index_cache, write_latent_cache
from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.fp32_ops import fp32_linear, layer_norm
from deepseek_v32.kernels.grouped_gemm import grouped_gemm
from deepseek_v32.kernels.hadamard import hadamard_transform, rotate_quantize
from deepseek_v32.kernels.implementations import INVARIANT, OPERATIONS
from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits
from deepseek_v32.kernels.kv_up_projection import absorb_queries, expand_quantize, expand_values
from deepseek_v32.kernels.linear import linear
from deepseek_v32.kernels.quantize import quantize_blocks, rms_norm_quantize, swiglu
from deepseek_v32.kernels.quantize_weight import quantize_weight
from deepseek_v32.kernels.registry import choose_implementation, preference_of
from deepseek_v32.kernels.routing import combine_experts, group_by_expert, route
from deepseek_v32.kernels.select_topk import select_topk
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from deepseek_v32.kernels.types import Quantized
from deepseek_v32.model.rope import inverse_frequencies
from tiny_model.checkpoint import TINY

ROWS = 70  # a block of 64, one of 4 and 2 rows of another
SOME = [slice(i, i + 1) for i in (0, 3, 6, 33, 63, 64, 67, 69)] + [slice(0, 2), slice(1, 6), slice(0, 17), slice(3, 68)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * torch.randn(*shape, generator=generator).exp()


def rope(rows: int, width: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.arange(rows)[:, None] * 10.0 ** -torch.arange(width // 2)
    return angles.cos(), angles.sin()


def flat(result: Any) -> list[torch.Tensor]:
    """The tensors of a result, FP8 as bytes."""
    if isinstance(result, torch.Tensor):
        return [result.view(torch.uint8) if result.dtype == torch.float8_e4m3fn else result]
    return [tensor for each in result if each is not None for tensor in flat(each)]


def check(operation: Callable[..., Any], *rows: torch.Tensor | None) -> None:
    """operation(backend, *rows): of T rows, and of some of them. Equal bits by row; close to the reference."""

    def some(which: slice) -> list[torch.Tensor]:
        return flat(operation(INVARIANT, *(None if each is None else each[which] for each in rows)))

    torch.set_num_threads(2)
    whole = some(slice(None))
    torch.set_num_threads(1)
    for part in SOME:
        for one, all_ in zip(some(part), whole, strict=True):
            assert torch.equal(one, all_[part]), f"only rows {part.start} to {part.stop}"
    for one, other in zip(whole, flat(operation("reference", *rows)), strict=True):
        if one.is_floating_point():
            # bf16 may round to the neighbour: half a step in each
            tolerance = 1e-4 if one.dtype == torch.float32 else 2**-7
            assert torch.allclose(
                one.float(), other.float(), rtol=tolerance, atol=tolerance * float(other.float().abs().amax())
            )
        else:
            assert (one != other).float().mean() < 0.01  # codes and choices at the edge between two


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear(dtype: torch.dtype) -> None:
    weight = randn(5000, 128, seed=1).to(dtype)  # wider than one part
    check(lambda backend, x: linear(x, weight, torch.float32, backend=backend), randn(ROWS, 128).to(dtype))


@pytest.mark.parametrize("outputs", [8, 64, 256])
def test_fp32_linear(outputs: int) -> None:
    weight = randn(outputs, 200, seed=1)
    check(lambda backend, x: fp32_linear(x, weight, 0.3, backend=backend), randn(ROWS, 200).bfloat16())


def test_norms() -> None:
    weight, bias = randn(192, seed=1), randn(192, seed=2)
    wide = randn(ROWS, 200)[:, :192]  # rows of a wider tensor, as a latent is
    check(lambda backend, x: rms_norm_quantize(x, weight, 1e-6, backend=backend), wide)
    check(lambda backend, x: rms_norm_quantize(x, weight, 1e-6, True, x, backend=backend), wide.bfloat16())
    check(lambda backend, x: layer_norm(x, weight, bias, 1e-6, backend=backend), wide.bfloat16())


@pytest.mark.parametrize("width", [2, 20, 256])
def test_swiglu(width: int) -> None:
    check(lambda backend, x: swiglu(x, backend=backend), randn(ROWS, width))
    check(lambda backend, x: swiglu(x, backend=backend), randn(ROWS, width).bfloat16())


def test_fp8_gemm() -> None:
    weight, scale = quantize_weight(randn(200, 300, seed=1))

    def gemm(backend: str, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        return fp8_gemm(Quantized(values, scales), weight, scale, backend=backend)

    check(gemm, *quantize_blocks(randn(ROWS, 300)))


@pytest.mark.parametrize("quantized", [False, True], ids=["exact", "fp8"])
def test_experts(quantized: bool) -> None:
    """Routing, the experts' products and their sum: what a token gets does not depend on which others its experts serve."""
    experts, width = 8, 128
    weights = randn(experts, width, width, seed=1)
    bias = randn(experts, seed=2) * 0.1

    def layer(backend: str, logits: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        chosen, shares = route(logits, bias, 2, 4, 2, backend=backend)
        groups = group_by_expert(chosen, experts, backend=backend)
        options = {"sorted_token_ids": groups.sorted_token_ids, "backend": backend}
        if quantized:
            codes, scales = zip(*(quantize_weight(each) for each in weights), strict=True)
            operand = quantize_blocks(x, backend=backend)
            stacked = torch.stack([code.view(torch.uint8) for code in codes]).view(torch.float8_e4m3fn)
            rows = grouped_gemm(operand, stacked, groups.offsets, torch.stack(scales), x.dtype, **options)
        else:
            rows = grouped_gemm(x, weights, groups.offsets, **options)
        return combine_experts(rows, groups, shares, x, backend=backend)

    check(layer, randn(ROWS, experts, seed=3), randn(ROWS, width))


def test_routing() -> None:
    """torch's sigmoid gives the last elements of a tensor other bits."""
    bias = randn(256, seed=2) * 0.1
    for logits in (randn(ROWS, 256, seed=3), randn(ROWS, 8, seed=4)):
        count = logits.shape[1]
        check(lambda backend, x, n=count: route(x, bias[:n], 2, 4, 2, True, 2.5, backend=backend), logits)  # type: ignore[misc]


def test_rotation_and_hadamard() -> None:
    cos, sin = rope(ROWS)
    check(lambda backend, x: hadamard_transform(x, 0.1, backend=backend), randn(ROWS, 3, 128).bfloat16())
    check(
        lambda backend, x, c, s, w: rotate_quantize(x, c, s, False, True, w, backend=backend),
        *(randn(ROWS, 4, 128).bfloat16(), cos, sin, randn(ROWS, 4, seed=1)),
    )


def test_rope_tables() -> None:
    frequencies = inverse_frequencies(TINY.qk_rope_head_dim, TINY.rope_theta, TINY.yarn)
    angles = torch.arange(40000).float()[:, None] * frequencies
    for function in (torch.cos, torch.sin):
        whole = function(angles)
        for place in (0, 1, 77, 39999):
            assert torch.equal(function(angles[place : place + 1].clone()), whole[place : place + 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_up_projections(dtype: torch.dtype) -> None:
    wk, wv = randn(5, 48, 64, seed=1).to(dtype).split((32, 16), 1)
    cos, sin = rope(ROWS, 8)
    check(lambda backend, q, c, s: absorb_queries(q, c, s, wk, backend=backend), randn(ROWS, 5, 40).to(dtype), cos, sin)

    def values(backend: str, latents: torch.Tensor) -> torch.Tensor:
        out = latents.new_empty(latents.shape[0], 5, 16)
        expand_values(latents, wv, out, backend=backend)
        quantized = expand_quantize(latents, wv, backend=backend)
        assert torch.equal(quantized.values.float(), quantize_blocks(out.flatten(1)).values.float()), "decodes, prompts"
        return out

    check(values, randn(ROWS, 5, 64).to(dtype))


@pytest.mark.parametrize("kind", ["fp32", "fp8"])
def test_cache_entries(kind: str) -> None:
    """Both caches: what a token's entry holds does not depend on the tokens written with it."""
    cos, sin = rope(ROWS)
    norm = randn(128, seed=5)

    def write(
        backend: str, keys: torch.Tensor, kv: torch.Tensor, c: torch.Tensor, s: torch.Tensor
    ) -> list[torch.Tensor]:
        slots = torch.arange(len(keys))
        width, dtype = (132, torch.uint8) if kind == "fp8" else (128, torch.float32)
        index = torch.zeros(2, 64, 1, width, dtype=dtype)
        write_index_cache(keys, c, s, index, slots, backend=backend)
        latent = torch.zeros(2, 64, 1, 128 + 4 + 64 if kind == "fp8" else 160, dtype=dtype)
        write_latent_cache(kv, norm, 1e-6, c, s, latent, slots, backend=backend)
        return [*flat(gather_index_keys(index, slots, backend=backend)), latent.flatten(0, 2)[: len(keys)]]

    dtype = torch.bfloat16 if kind == "fp8" else torch.float32
    check(write, randn(ROWS, 128).to(dtype), randn(ROWS, 160, seed=1).to(dtype), cos, sin)


@pytest.mark.parametrize("heads", [16, 5, 64])
def test_indexer_scores(heads: int) -> None:
    """Of queries in a chunk, of parts of it, and of each as a decode over pages, with contexts that end within a tile."""
    keys = randn(700, 128, seed=1)
    q, weights = randn(ROWS, heads, 128), randn(ROWS, heads, seed=2)
    ends = torch.arange(631, 631 + ROWS, dtype=torch.int32)

    def scores(backend: str, q: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return indexer_logits(q, keys, w, torch.zeros_like(ends), ends, None, backend=backend).nan_to_num(neginf=0)

    check(scores, q, weights, ends)
    cache, table = torch.nn.functional.pad(keys, (0, 0, 0, 4)).view(-1, 64, 1, 128).flip(0), torch.arange(10, -1, -1)
    whole = indexer_logits(q, keys, weights, torch.zeros_like(ends), ends, None, backend=INVARIANT)
    for i in range(0, ROWS, 9):
        length = int(ends[i])
        table_, lengths = table[None].int(), ends[i : i + 1]
        row = paged_indexer_logits(
            q[i : i + 1, None], cache, weights[i : i + 1, None], table_, lengths, 700, backend=INVARIANT
        )
        assert torch.equal(row[0, :length], whole[i, :length])
    short = indexer_logits(q, keys[:640], weights, torch.zeros_like(ends), ends.clamp(max=640), None, backend=INVARIANT)
    assert torch.equal(short[:9, :631], whole[:9, :631]), "a shorter context"


@pytest.mark.parametrize("heads", [16, 3, 40])
def test_attention(heads: int) -> None:
    """A query's keys in tiles of their place in its list: by itself, in a chunk, after padding of any width, as a decode."""
    latents = randn(500, 96, seed=1)
    latents[499] = torch.nan  # never selected
    counts = torch.arange(ROWS) * 4 + 1
    order = torch.argsort(torch.rand(ROWS, 499, generator=torch.Generator().manual_seed(2)), 1)[:, :300].sort(1).values
    indices = torch.where(torch.arange(300) < counts[:, None], order, -1).int()
    q = randn(ROWS, heads, 96)

    def attend(backend: str, q: torch.Tensor, indices: torch.Tensor) -> list[torch.Tensor]:
        return list(sparse_mla_prefill(q, latents[:, None], indices[:, None], 0.1, 64, backend=backend))

    check(attend, q, indices)
    whole, _, lse = attend(INVARIANT, q, indices)
    wider = torch.nn.functional.pad(indices, (0, 250), value=-1)
    assert torch.equal(attend(INVARIANT, q, wider)[0], whole), "padding"
    paged = torch.cat((latents, latents[:12])).view(8, 64, 1, 96)
    out, other = sparse_mla_decode(q[:, None], paged, indices[:, None], 0.1, 64, backend=INVARIANT)
    assert torch.equal(out[:, 0], whole) and torch.equal(other[:, :, 0], lse)
    narrow = attend(INVARIANT, q[:20], indices[:20, :77])[0]
    assert torch.equal(narrow, whole[:20])
    fewer = attend(INVARIANT, q[:, :1], indices)[0]
    assert torch.equal(fewer, whole[:, :1]), "a rank that holds one head"


def test_attention_at_the_start_of_a_prompt() -> None:
    """Queries that begin with the same keys share one copy of them, unless a key that some do not see is not finite."""
    latents, q = randn(200, 96, seed=1), randn(ROWS, 16, 96)
    causal = torch.arange(ROWS).expand(ROWS, -1).tril().int()
    indices = torch.where(torch.arange(ROWS) <= torch.arange(ROWS)[:, None], causal, -1)

    def attend(latents: torch.Tensor, rows: slice) -> torch.Tensor:
        return sparse_mla_prefill(q[rows], latents[:, None], indices[rows, None], 0.1, 64, backend=INVARIANT)[0]

    whole = attend(latents, slice(None))
    assert all(torch.equal(attend(latents, slice(i, i + 1)), whole[i : i + 1]) for i in range(0, ROWS, 9))
    damaged = latents.clone()
    damaged[50] = torch.nan
    later = attend(damaged, slice(None))
    assert torch.equal(later[:50], whole[:50]) and later[50:].isnan().all()


def test_selection_of_equal_scores() -> None:
    """The lowest positions, in ascending order, in every batch."""
    logits = torch.randint(0, 3, (ROWS, 90), generator=torch.Generator().manual_seed(0)).float()
    ends = torch.arange(1, ROWS + 1, dtype=torch.int32)
    check(lambda backend, x, e: select_topk(x, None, e, 20, backend=backend), logits, ends)


def test_the_mode_takes_invariant_implementations_alone() -> None:
    """Never by "auto", never on another device, and nothing for an operation that the mode does not use."""
    cpu = torch.device("cpu")
    for operation, implementations in OPERATIONS.items():
        found = [one for one in implementations if one.invariant]
        if not found:
            assert operation in ("mha_prefill", "dense_mla_decode", "paged_mla_decode_h16")
            with pytest.raises(ValueError, match=f"{operation} has no invariant implementation"):
                choose_implementation(operation, cpu, torch.float32, preference_of("auto", deterministic=True))
            continue
        assert choose_implementation(operation, cpu, torch.float32, preference_of("auto", True)) in found
        assert choose_implementation(operation, cpu, torch.float32, "auto").backend == "reference"
        reasons = [
            one.unsupported_reason(torch.device("meta"), torch.float32) for one in found if one.backend == INVARIANT
        ]
        assert all(
            reason and reason.startswith(("invariant needs a CPU", "invariant needs a Hopper")) for reason in reasons
        )


@pytest.mark.parametrize(
    ("mistake", "operation"),
    [
        ("body by row count", lambda: test_fp32_linear(64)),
        ("K split by row count", lambda: test_fp32_linear(64)),
        ("tiles by batch", lambda: test_attention(16)),
        ("padding leaks", lambda: test_attention(16)),
        ("merged in any order", lambda: test_experts(False)),
        ("library sigmoid", lambda: test_routing()),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_each_mistake_is_found_at_its_operation(mistake: str, operation: Callable[[], None]) -> None:
    """Tests of whole requests are in tests/inference/test_determinism.py."""
    with MUTANTS[mistake].applied(), pytest.raises(AssertionError):
        operation()
    operation()
