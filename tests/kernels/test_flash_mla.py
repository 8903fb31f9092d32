"""The FlashMLA interfaces on a CPU, with the references: conventions of logsumexp, metadata objects, unsupported arguments."""

import math

import pytest
import torch

from deepseek_v32.kernels import flash_mla, flash_mla_2025_09
from deepseek_v32.kernels.reference.sparse_mla_prefill import sparse_attention

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]),
]
device_of = pytest.mark.parametrize("device", DEVICES)
CLOSE = {"rtol": 2e-2, "atol": 4e-3}


def prefill_case(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    indices = torch.randint(0, 90, (3, 1, 128), dtype=torch.int32)
    indices[1] = -1
    return (
        torch.randn(3, 64, 576).bfloat16().to(device),
        torch.randn(90, 1, 576).bfloat16().to(device),
        indices.to(device),
    )


@device_of
def test_sparse_prefill_today(device: str) -> None:
    q, kv, indices = prefill_case(device)
    out, max_logits, lse = flash_mla.flash_mla_sparse_fwd(q, kv, indices, sm_scale=0.1)
    expected = sparse_attention(q.float(), kv[:, 0].float(), indices[:, 0], 0.1, 512, None, None)
    torch.testing.assert_close(out.float(), expected[0], **CLOSE)
    torch.testing.assert_close(max_logits, expected[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse[[0, 2]], expected[2][[0, 2]], rtol=1e-4, atol=1e-4)
    assert lse[1].eq(math.inf).all() and out[1].eq(0).all()


@device_of
def test_sparse_prefill_of_2025_09_is_base_2(device: str) -> None:
    q, kv, indices = prefill_case(device)
    _, max_logits, lse = flash_mla_2025_09.flash_mla_sparse_fwd(q, kv, indices, 0.1)
    expected = sparse_attention(q.float(), kv[:, 0].float(), indices[:, 0], 0.1, 512, None, None)
    torch.testing.assert_close(max_logits, expected[1] / math.log(2), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse, expected[2] / math.log(2), rtol=1e-4, atol=1e-4)


def decode_case(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    cache = torch.zeros(3, 64, 1, 656, dtype=torch.uint8)
    cache[..., :512] = torch.randn(3, 64, 1, 512).to(torch.float8_e4m3fn).view(torch.uint8)
    cache[..., 512:528] = torch.ones(3, 64, 1, 4).view(torch.uint8)
    indices = torch.randint(0, 192, (2, 2, 128), dtype=torch.int32)
    indices[1, 0] = -1
    return torch.randn(2, 2, 64, 576).bfloat16().to(device), cache.to(device), indices.to(device)


@device_of
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn], ids=["bytes", "e4m3"])
def test_sparse_decode(device: str, dtype: torch.dtype) -> None:
    q, cache, indices = decode_case(device)
    expected = sparse_attention(q.flatten(0, 1).float(), cache, indices.flatten(0, 1), 576**-0.5, 512, None, None)
    schedule, nothing = flash_mla.get_mla_metadata()
    for _ in range(2):  # the first call fills the metadata, the second uses them
        today = flash_mla.flash_mla_with_kvcache(
            q, cache.view(dtype), None, None, 512, schedule, nothing, is_fp8_kvcache=True, indices=indices
        )
    lengths = torch.full((2,), 192, dtype=torch.int32, device=device)
    metadata, splits = flash_mla_2025_09.get_mla_metadata(lengths, 2 * 64, 1, 64, True, 128)
    september = flash_mla_2025_09.flash_mla_with_kvcache(
        q, cache.view(dtype), None, lengths, 512, metadata, splits, is_fp8_kvcache=True, indices=indices
    )
    for out, lse in (today, september):
        torch.testing.assert_close(out.flatten(0, 1).float(), expected[0], **CLOSE)
        assert lse.shape == (2, 64, 2) and lse[1, :, 0].eq(math.inf).all()
        torch.testing.assert_close(lse[0].T.contiguous(), expected[2].view(2, 2, 64)[0], rtol=1e-4, atol=1e-4)


@device_of
def test_dense_decode(device: str) -> None:
    torch.manual_seed(2)
    q, cache = torch.randn(2, 1, 16, 576).bfloat16().to(device), torch.randn(4, 64, 1, 576).bfloat16().to(device)
    table = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32, device=device)
    lengths = torch.tensor([100, 0], dtype=torch.int32, device=device)
    schedule, _ = flash_mla.get_mla_metadata(lengths, 16, 1)
    today = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, schedule, causal=True)
    metadata, splits = flash_mla_2025_09.get_mla_metadata(lengths, 16, 1)
    september = flash_mla_2025_09.flash_mla_with_kvcache(q, cache, table, lengths, 512, metadata, splits, causal=True)
    keys = torch.cat((cache[2, :, 0], cache[0, :36, 0])).float()
    everything = torch.arange(100, dtype=torch.int32, device=device)[None]
    expected = sparse_attention(q[0].float(), keys, everything, 576**-0.5, 512, None, None)
    for out, lse in (today, september):
        torch.testing.assert_close(out[0].float(), expected[0], **CLOSE)
        torch.testing.assert_close(lse[0, :, 0], expected[2][0], rtol=1e-4, atol=1e-4)
        assert out[1].eq(0).all() and lse[1].eq(math.inf).all()


def test_refusals() -> None:
    q, cache, indices = decode_case("cpu")
    schedule, _ = flash_mla.get_mla_metadata()

    def decode(**changes: object) -> None:
        arguments = {
            "q": q,
            "k_cache": cache,
            "block_table": None,
            "cache_seqlens": None,
            "head_dim_v": 512,
            "tile_scheduler_metadata": schedule,
            "is_fp8_kvcache": True,
            "indices": indices,
        }
        flash_mla.flash_mla_with_kvcache(**(arguments | changes))

    for changes, message in (
        ({"extra_k_cache": cache}, "extra_k_cache"),
        ({"q": q[..., :512]}, "512 dims"),
        ({"tile_scheduler_metadata": torch.zeros(1)}, "get_mla_metadata"),
        ({"num_splits": torch.zeros(1)}, "get_mla_metadata"),
        ({"causal": True}, "causal is True"),
        ({"k_cache": cache[..., :576]}, "656"),
        ({"indices": None}, "expected indices"),
        ({"indices": None, "is_fp8_kvcache": False}, "block_table"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(**changes)
    decode()
    with pytest.raises(ValueError, match="get_mla_metadata again"):
        decode(indices=indices[..., :64])
    with pytest.raises(ValueError, match="indexer_topk"):
        flash_mla.flash_mla_sparse_fwd(*prefill_case("cpu"), 0.1, indexer_topk=512)
