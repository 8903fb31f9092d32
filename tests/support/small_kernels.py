"""A program that calls every CUDA kernel except attention once with small inputs; tests run it under compute-sanitizer."""

import torch

from deepseek_v32.kernels.cuda import fp8_gemm as implementation
from deepseek_v32.kernels.fp8_gemm import fp8_gemm, fp8_gemms
from deepseek_v32.kernels.fp32_ops import fp32_linear, layer_norm
from deepseek_v32.kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits
from deepseek_v32.kernels.kv_up_projection import absorb_queries, expand_quantize
from deepseek_v32.kernels.norm_and_cache import norm_and_cache
from deepseek_v32.kernels.routing import combine_experts, combine_norm_quantize, group_by_expert, route, route_and_group
from deepseek_v32.kernels.select_topk import select_topk, select_topk_slots
from deepseek_v32.kernels.types import Caches, Fp32Projection, Norms, Quantized

FP8 = torch.float8_e4m3fn


def operand(rows: int, width: int, block: int = 1) -> Quantized:
    codes = (torch.randn(rows, width, device="cuda") * 32).to(FP8)
    return Quantized(codes, torch.rand(-(-rows // block), -(-width // 128), device="cuda") + 0.5)


def multiply(
    a: Quantized,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    tile: implementation.Tile | int,
    offsets: torch.Tensor | None = None,
    splits: int = 0,
) -> torch.Tensor:
    """a [M, K] times b [E, N, K] transposed, in bf16, by this tile."""
    out = torch.empty(len(a.values), b.shape[1], dtype=torch.bfloat16, device=b.device)
    implementation.multiply_into(out, *a, b, b_scale, offsets, tile, splits)
    return out


def products() -> list[torch.Tensor]:
    weight = operand(640, 384, 128)
    results = [fp8_gemm(operand(rows, 384), *weight, backend="cuda") for rows in (1, 16, 64, 130, 1030)]
    for tile in (
        *implementation.LARGE_TILES,
        implementation.PAIRED_TILE,
        implementation.WIDE_TILE,
        implementation.EXPERT_TILE,
    ):
        a = operand(tile.rows * 3 - 50, 384)
        results.append(multiply(a, weight.values[None], weight.scales[None], tile))
    for rows in (1, 33):
        results += fp8_gemms(operand(rows, 384), [weight, operand(130, 384, 128), operand(1, 384, 128)], backend="cuda")
    codes = (torch.randn(8, 256, 384, device="cuda") * 32).to(FP8)
    scale = torch.rand(8, 2, 3, device="cuda") + 0.5
    for tokens in (1, 5, 200):
        x, shared = operand(tokens, 384), operand(256, 384, 128)
        experts = torch.rand(tokens, 8, device="cuda").argsort(1)[:, :2].contiguous()
        groups = group_by_expert(experts, 8, backend="cuda")
        arguments = x, codes, groups.offsets, scale
        results.append(grouped_gemm(*arguments, backend="cuda", sorted_token_ids=groups.sorted_token_ids))
        both = grouped_gemm_with_shared(*arguments, x, shared, backend="cuda", sorted_token_ids=groups.sorted_token_ids)
        weights = torch.rand(tokens, 2, device="cuda")
        results.append(combine_experts(both[tokens:], groups, weights, both[:tokens], backend="cuda"))
    return results


def small() -> list[torch.Tensor]:
    results = []
    for tokens in (1, 3, 17):
        q = torch.randn(tokens, 4, 192, device="cuda").bfloat16()
        angles = torch.randn(tokens, 32, device="cuda")
        both = torch.randn(4, 256, 512, device="cuda").bfloat16()
        results.append(absorb_queries(q, angles.cos(), angles.sin(), both[:, :128], backend="cuda"))
        latents = torch.randn(tokens, 4, 512, device="cuda").bfloat16()
        results.append(expand_quantize(latents, both[:, 128:], backend="cuda").scales)
        x, weight = torch.randn(tokens, 7168, device="cuda").bfloat16(), torch.randn(257, 7168, device="cuda")
        results += [
            fp32_linear(x, weight, backend="cuda"),
            fp32_linear(x[:, :260], weight[:5, :260].contiguous(), backend="cuda"),
        ]
        ones = torch.ones(100, device="cuda")
        results.append(layer_norm(x[:, :100], ones, ones, 1e-6, backend="cuda"))
        results.append(
            route(torch.randn(tokens, 60, device="cuda"), torch.zeros(60, device="cuda"), 4, 5, 2, backend="cuda")[1]
        )
        logits = torch.randn(tokens, 160, device="cuda")
        results.append(route_and_group(logits, torch.zeros(160, device="cuda"), 5, 5, 2, backend="cuda")[0])
        results += cache_entries(tokens)
    x = torch.randn(
        1500, 264, device="cuda"
    ).bfloat16()  # the kernels for many tokens, with wide tiles and with narrow ones
    results += [fp32_linear(x, torch.randn(rows, 264, device="cuda"), backend="cuda") for rows in (70, 600)]
    q, latents = (torch.randn(150, 200, width, device="cuda").bfloat16() for width in (192, 512))
    both, angles = torch.randn(200, 256, 512, device="cuda").bfloat16(), torch.randn(150, 32, device="cuda")
    results.append(absorb_queries(q, angles.cos(), angles.sin(), both[:, :128], backend="cuda"))
    results.append(expand_quantize(latents, both[:, 128:], backend="cuda").scales)
    for tokens in (1, 300):
        experts = torch.rand(tokens, 16, device="cuda").argsort(1)[:, :4].contiguous()
        groups = group_by_expert(experts, 16, backend="cuda")
        rows, shared, residual = (torch.randn(count * tokens, 2048, device="cuda").bfloat16() for count in (4, 1, 1))
        weights = torch.rand(tokens, 4, device="cuda")
        gain = torch.ones(2048, device="cuda")
        results.append(combine_norm_quantize(rows, groups, weights, shared, residual, gain, 1e-6, backend="cuda").rows)
    return results


def cache_entries(tokens: int) -> list[torch.Tensor]:
    query, kv, keys, x = (torch.randn(tokens, width, device="cuda").bfloat16() for width in (1536, 576, 128, 2052))
    ones = [torch.ones(width, device="cuda") for width in (1536, 512, 128, 128)]
    norms = Norms(ones[0], ones[1], ones[2], ones[3], 1e-6, 1e-6)
    angles = torch.randn(tokens, 32, device="cuda")
    entries = [torch.zeros(1, 64, 1, record, dtype=torch.uint8, device="cuda") for record in (656, 132)]
    caches = Caches(entries[0], entries[1], torch.arange(63, 63 - tokens, -1, device="cuda"))
    results: list[torch.Tensor] = []
    for projection in (None, Fp32Projection(x, torch.randn(17, 2052, device="cuda"), 2.0)):
        operand, projected = norm_and_cache(
            query, kv, keys, norms, angles.cos(), angles.sin(), caches, projection=projection, backend="cuda"
        )
        results += [operand.scales, *(() if projected is None else (projected,))]
    return results


def scores() -> list[torch.Tensor]:
    q, k = ((torch.randn(*shape, device="cuda") * 100).to(FP8) for shape in ((7, 64, 128), (300, 128)))
    weights, scales = torch.randn(7, 64, device="cuda"), torch.rand(300, device="cuda")
    ends = torch.arange(294, 301, dtype=torch.int32, device="cuda")
    logits = indexer_logits(q, k, weights, torch.zeros_like(ends), ends, scales, backend="cuda")
    cache = torch.randint(0, 0x38, (6, 64, 1, 132), dtype=torch.uint8, device="cuda")
    table = torch.arange(6, dtype=torch.int32, device="cuda").view(2, 3)
    lengths = torch.tensor([130, 64], dtype=torch.int32, device="cuda")
    paged = paged_indexer_logits(q[:2, None], cache, weights[:2, None], table, lengths, 192, backend="cuda")
    results = [select_topk(logits, None, ends, 64, backend="cuda")]
    results.append(select_topk_slots(paged, None, lengths, 64, table, 64, backend="cuda"))
    long = torch.randn(2, 40_000, device="cuda")
    for row_lengths in ([40_000, 40_000], [3_001, 8_192]):  # the second are much shorter than their buffer
        ends = torch.tensor(row_lengths, dtype=torch.int32, device="cuda")
        results.append(select_topk(long, None, ends, 2048, backend="cuda"))
    return results


def main() -> None:
    torch.manual_seed(0)
    assert all(result.isfinite().all() for result in (*products(), *small()))
    assert all(result.min() >= -1 for result in scores())


if __name__ == "__main__":
    main()
