"""Profilers find attention by public names: a call launches one attention kernel, and merges have the combine kernel's name."""

from collections.abc import Callable

import pytest
import torch

from deepseek_v32.kernels.dense_mla import dense_mla_decode, paged_mla_decode_h16
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill

ATTENTION = ("sparse_attn_fwd", "flash_fwd_splitkv_mla_fp8_sparse_kernel", "flash_fwd_splitkv_mla_kernel")
MERGE = "flash_fwd_mla_combine_kernel"
SLOTS = 4096


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def positions(*shape: int) -> torch.Tensor:
    return torch.randint(0, SLOTS, shape, dtype=torch.int32, device="cuda")


def prefill(tokens: int, heads: int, backend: str = "cuda") -> object:
    return sparse_mla_prefill(
        bf16(tokens, heads, 576), bf16(SLOTS, 1, 576), positions(tokens, 1, 2048), 0.1, backend=backend
    )


def decode(batch: int, heads: int, backend: str = "cuda") -> object:
    cache = torch.zeros(SLOTS // 64, 64, 1, 656, dtype=torch.uint8, device="cuda")
    return sparse_mla_decode(bf16(batch, 1, heads, 576), cache, positions(batch, 1, 2048), 0.1, backend=backend)


def dense(page: int) -> object:
    table = torch.arange(2 * SLOTS // page, dtype=torch.int32, device="cuda").view(2, -1)
    lengths = torch.full((2,), SLOTS, dtype=torch.int32, device="cuda")
    return dense_mla_decode(
        bf16(2, 1, 128, 576), bf16(table.numel(), page, 1, 576), table, lengths, 0.1, backend="cuda"
    )


def one_token_pages() -> object:
    bounds = torch.tensor([0, 1000, SLOTS], dtype=torch.int32, device="cuda")
    caches = bf16(SLOTS, 1, 512), bf16(SLOTS, 1, 64)
    return paged_mla_decode_h16(
        bf16(2, 16, 512), bf16(2, 16, 64), *caches, bounds, positions(SLOTS), 0.1, backend="cuda"
    )


CALLS: dict[str, Callable[[], object]] = {
    "prefill": lambda: prefill(512, 128),
    "prefill of few queries": lambda: prefill(1, 128),
    "decode, 128 heads": lambda: decode(4, 128),
    "decode, 64 heads": lambda: decode(200, 64),
    "decode, 16 heads": lambda: decode(4, 16),
    "decode in deterministic mode, 128 heads": lambda: decode(1, 128, "invariant"),
    "decode in deterministic mode, 16 heads": lambda: decode(1, 16, "invariant"),
    "dense decode, pages of 64": lambda: dense(64),
    "dense decode, pages of 16": lambda: dense(16),
    "16-head decode": one_token_pages,
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", CALLS)
def test_a_call_launches_one_attention_kernel(name: str) -> None:
    CALLS[name]()  # builds the library
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        CALLS[name]()
        torch.cuda.synchronize()
    kernels = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert sum(any(part in kernel for part in ATTENTION) for kernel in kernels) == 1, kernels
    assert all(MERGE in kernel for kernel in kernels if "combine" in kernel), kernels
