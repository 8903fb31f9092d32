"""The small operations of a decode step, and its GEMMs as it calls them: few tokens, eight experts each."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from deepseek_v32.kernels.fp8_gemm import fp8_gemms
from deepseek_v32.kernels.fp32_ops import fp32_linear, layer_norm
from deepseek_v32.kernels.grouped_gemm import grouped_gemm_with_shared
from deepseek_v32.kernels.kv_up_projection import absorb_queries, expand_quantize
from deepseek_v32.kernels.routing import combine_experts, group_by_expert, route
from deepseek_v32.kernels.types import Quantized

from .gemm import _codes, _scales, _time_limits
from .harness import BF16, Case, rotations_for

HIDDEN, EXPERTS, CHOSEN, INNER = 7168, 256, 8, 2048
HEADS, NOPE, ROPE, LATENT = 128, 128, 64, 512
TOKENS = (1, 8, 64)


def _case(name: str, make: Callable[[], Callable[[], object]], size: int, flops: int = 0, limits: bool = False) -> Case:
    calls = [make() for _ in range(rotations_for(size, 64))]
    must, aim = _time_limits(size, 0.6, 0.85) if limits else ("", "")
    return Case(name, lambda i: calls[i](), len(calls), size, flops, must, aim, peak=BF16)


def _operand(rows: int, width: int, device: torch.device) -> Quantized:
    return Quantized(_codes(rows, width, device=device), _scales(rows, width // 128, device=device))


def _weight(rows: int, width: int, device: torch.device) -> Quantized:
    return Quantized(_codes(rows, width, device=device), _scales(-(-rows // 128), width // 128, device=device))


def _together(tokens: int, width: int, columns: tuple[int, ...], device: torch.device) -> Callable[[], object]:
    weights = [_weight(rows, width, device) for rows in columns]
    return partial(fp8_gemms, _operand(tokens, width, device), weights)


def _choices(tokens: int, experts: int, device: torch.device) -> torch.Tensor:
    return torch.rand(tokens, experts, device=device).argsort(1)[:, :CHOSEN].contiguous()


def _experts(tokens: int, count: int, n: int, k: int, gathers: bool, device: torch.device) -> Iterator[Case]:
    """This rank has `count` of the 256 experts. The chosen ones change from call to call, so that L2 is cold."""
    weight, scale = _codes(count, n, k, device=device), _scales(count, n // 128, k // 128, device=device)
    shared = _weight(n, k, device)
    calls, read = [], 0
    for _ in range(8):
        groups = group_by_expert(_choices(tokens, EXPERTS, device), count)
        used = int((groups.offsets.diff() > 0).sum())
        read += used
        dense = _operand(tokens, k, device)
        rows = dense if gathers else _operand(tokens * CHOSEN, k, device)
        sorted_token_ids, expected_m = groups.sorted_token_ids if gathers else None, tokens * CHOSEN * count // EXPERTS
        calls.append(
            partial(
                grouped_gemm_with_shared,
                rows,
                weight,
                groups.offsets,
                scale,
                dense,
                shared,
                sorted_token_ids=sorted_token_ids,
                expected_m=expected_m,
            )
        )
    size = int((read / 8 + 1) * n * k)
    name = f"experts B={tokens}, {count} of {EXPERTS} here, and the shared one, N={n}, K={k}"
    yield Case(name, lambda i: calls[i](), len(calls), size, 2 * tokens * 9 * n * k, *_time_limits(size, 0.6, 0.85))


def cases(device: torch.device) -> Iterator[Case]:
    for tokens in (1, 64):
        yield from _experts(tokens, EXPERTS, 2 * INNER, HIDDEN, True, device)
        yield from _experts(tokens, EXPERTS, HIDDEN, INNER, False, device)
    yield from _experts(1, EXPERTS // 8, 2 * INNER, HIDDEN, True, device)
    for tokens in TOKENS:
        for width, columns in ((HIDDEN, (1536, 576, 128)), (1536, (24576, 8192))):
            size = sum(columns) * width
            yield _case(
                f"B={tokens}, N={'+'.join(map(str, columns))}, K={width}",
                partial(_together, tokens, width, columns, device),
                size,
                limits=size >= 20_000_000,
            )

        def queries(tokens: int = tokens) -> Callable[[], object]:
            q = torch.randn(tokens, HEADS, NOPE + ROPE, device=device, dtype=torch.bfloat16)
            angles = torch.randn(tokens, ROPE // 2, device=device)
            both = torch.randn(HEADS, 2 * NOPE, LATENT, device=device, dtype=torch.bfloat16)
            return partial(absorb_queries, q, angles.cos(), angles.sin(), both[:, :NOPE])

        def values(tokens: int = tokens) -> Callable[[], object]:
            latents = torch.randn(tokens, HEADS, LATENT, device=device, dtype=torch.bfloat16)
            both = torch.randn(HEADS, 2 * NOPE, LATENT, device=device, dtype=torch.bfloat16)
            return partial(expand_quantize, latents, both[:, NOPE:])

        size = 2 * HEADS * NOPE * LATENT
        yield _case(f"absorb queries B={tokens}", queries, size)
        yield _case(f"expand and quantise B={tokens}", values, size)

        def linear(rows: int, tokens: int = tokens) -> Callable[[], object]:
            x = torch.randn(tokens, HIDDEN, device=device, dtype=torch.bfloat16)
            return partial(fp32_linear, x, torch.randn(rows, HIDDEN, device=device))

        for rows in (EXPERTS, 64):
            yield _case(f"fp32 projection B={tokens}, N={rows}", partial(linear, rows), 4 * rows * HIDDEN)

        def norm(tokens: int = tokens) -> Callable[[], object]:
            x = torch.randn(tokens, 128, device=device, dtype=torch.bfloat16)
            return partial(layer_norm, x, torch.ones(128, device=device), torch.zeros(128, device=device), 1e-6)

        def choice(tokens: int = tokens) -> Callable[[], object]:
            logits, bias = torch.randn(tokens, EXPERTS, device=device), torch.zeros(EXPERTS, device=device)
            return partial(route, logits, bias, CHOSEN, 8, 4)

        def grouping(tokens: int = tokens) -> Callable[[], object]:
            return partial(group_by_expert, _choices(tokens, EXPERTS, device), EXPERTS)

        def combination(tokens: int = tokens) -> Callable[[], object]:
            groups = group_by_expert(_choices(tokens, EXPERTS, device), EXPERTS)
            rows = torch.randn(tokens * CHOSEN, HIDDEN, device=device, dtype=torch.bfloat16)
            weights = torch.rand(tokens, CHOSEN, device=device)
            return partial(
                combine_experts, rows, groups, weights, torch.randn(tokens, HIDDEN, device=device).bfloat16()
            )

        yield _case(f"index keys' LayerNorm B={tokens}", norm, tokens * 512)
        yield _case(f"route B={tokens}", choice, tokens * EXPERTS * 4)
        yield _case(f"group by expert B={tokens}", grouping, tokens * CHOSEN * 12)
        yield _case(f"combine experts B={tokens}", combination, tokens * HIDDEN * 2 * (CHOSEN + 2))
