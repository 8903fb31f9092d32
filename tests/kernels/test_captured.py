"""A chain of kernels in a CUDA graph, where each may start before the previous one has ended, gives the same bits as outside."""

from collections.abc import Callable

import pytest
import torch

from deepseek_v32.kernels.fp8_gemm import fp8_gemm, fp8_gemms
from deepseek_v32.kernels.fp32_ops import fp32_linear
from deepseek_v32.kernels.grouped_gemm import grouped_gemm_with_shared
from deepseek_v32.kernels.kv_up_projection import absorb_queries, expand_quantize
from deepseek_v32.kernels.quantize import rms_norm_quantize, swiglu_quantize
from deepseek_v32.kernels.quantize_weight import quantize_weight
from deepseek_v32.kernels.routing import combine_experts, group_by_expert, route
from deepseek_v32.kernels.types import Quantized

HIDDEN, INNER, EXPERTS, HEADS, LATENT, LOW = 1024, 256, 32, 16, 512, 512


def layer(device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """The operations of a decode step around attention, with small weights: projections, absorbed products, experts."""
    generator = torch.Generator(device).manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, generator=generator) * shape[-1] ** -0.5

    def weight(rows: int, columns: int) -> Quantized:
        return quantize_weight(random(rows, columns))

    def experts(rows: int, columns: int) -> Quantized:
        parts = [weight(rows, columns) for _ in range(EXPERTS)]
        scales = torch.stack([part.scales for part in parts])
        return Quantized(
            torch.stack([part.values.view(torch.uint8) for part in parts]).view(torch.float8_e4m3fn), scales
        )

    down_q, narrow, up_q, index_q = weight(LOW, HIDDEN), weight(576, HIDDEN), weight(HEADS * 192, LOW), weight(512, LOW)
    both, out_proj = random(HEADS, 256, LATENT).bfloat16(), weight(HIDDEN, HEADS * 128)
    gate, bias = random(EXPERTS, HIDDEN), torch.zeros(EXPERTS, device=device)
    gate_up, down = experts(2 * INNER, HIDDEN), experts(HIDDEN, INNER)
    shared_up, shared_down = weight(2 * INNER, HIDDEN), weight(HIDDEN, INNER)
    ones, low_ones = torch.ones(HIDDEN, device=device), torch.ones(LOW, device=device)

    def forward(x: torch.Tensor) -> torch.Tensor:
        count = x.shape[0]
        angles = torch.ones(count, 32, device=device)
        total, _, operand = rms_norm_quantize(x, ones, 1e-6)
        low, _ = fp8_gemms(operand, [down_q, narrow])
        q, _ = fp8_gemms(rms_norm_quantize(low, low_ones, 1e-6).quantized, [up_q, index_q])
        latents = absorb_queries(q.unflatten(1, (HEADS, 192)), angles, angles, both[:, :128])[..., :LATENT].contiguous()
        update = fp8_gemm(expand_quantize(latents, both[:, 128:]), *out_proj)
        total, rows, operand = rms_norm_quantize(total, ones, 1e-6, residual=update)
        chosen, weights = route(fp32_linear(rows, gate), bias, 8, 8, 4)
        groups = group_by_expert(chosen, EXPERTS)
        arguments = {"sorted_token_ids": groups.sorted_token_ids, "expected_m": count * 8}
        made = grouped_gemm_with_shared(
            operand,
            gate_up.values,
            groups.offsets,
            gate_up.scales,
            operand,
            shared_up,
            beside_previous=True,
            **arguments,
        )
        inner = swiglu_quantize(made)
        own, dense = (Quantized(inner.values[part], inner.scales[part]) for part in (slice(count, None), slice(count)))
        made = grouped_gemm_with_shared(own, down.values, groups.offsets, down.scales, dense, shared_down)
        return total + combine_experts(made[count:], groups, weights, made[:count])

    return forward


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 3, 8, 64, 300], ids=str)
def test_a_captured_chain_gives_the_same_bits(count: int) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    forward = layer(device)
    x = torch.empty(count, HIDDEN, device=device, dtype=torch.bfloat16)
    inputs = [torch.randn(count, HIDDEN, device=device).bfloat16() for _ in range(6)]
    plain = [forward(forward(each)) for each in inputs]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = forward(forward(x))  # twice: the second starts while the first drains
    for each, expected in zip(inputs, plain, strict=True):
        x.copy_(each)
        graph.replay()
        assert expected.isfinite().all() and torch.equal(result, expected)
