"""Cache shapes and sizes."""

from dataclasses import replace

import pytest
import torch

from deepseek_v32.inference.config import CacheBudget
from deepseek_v32.inference.engine.running.cache import allocate, bytes_per_page
from deepseek_v32.inference.engine.sizing import pages_in_memory
from deepseek_v32.model.config import ModelConfig, Precision

RELEASED = ModelConfig()


@pytest.mark.parametrize(
    "precision,dtype,latent,index",
    [("fp8", torch.uint8, 656, 132), ("bf16", torch.bfloat16, 576, 128), ("exact", torch.float32, 576, 128)],
)
def test_the_released_models_rows(precision: Precision, dtype: torch.dtype, latent: int, index: int) -> None:
    caches = allocate(RELEASED, precision, page_count=2)
    assert len(caches) == 61
    for cache in caches:
        assert cache.latent.shape == (2, 64, 1, latent) and cache.index.shape == (2, 64, 1, index)
        assert cache.latent.dtype == cache.index.dtype == dtype
        assert cache.latent.is_contiguous() and cache.index.is_contiguous()
    total = sum(cache.latent.nbytes + cache.index.nbytes for cache in caches)
    assert total == 2 * bytes_per_page(RELEASED, precision)


def test_a_token_of_the_released_model_takes_48068_bytes_in_fp8() -> None:
    assert bytes_per_page(RELEASED, "fp8") == 64 * 48_068


def test_fp8_needs_whole_scale_groups() -> None:
    with pytest.raises(ValueError, match="kv_lora_rank is 96; expected a multiple of 128 in fp8 precision"):
        bytes_per_page(replace(RELEASED, kv_lora_rank=96), "fp8")


def test_pages_in_memory_stay_within_their_share() -> None:
    some = pages_in_memory(CacheBudget(2048, 64, 163840, 0.2), RELEASED, "exact", "cpu")
    more = pages_in_memory(CacheBudget(2048, 64, 163840, 0.4), RELEASED, "exact", "cpu")
    assert 1 <= some < more
    assert (
        pages_in_memory(CacheBudget(2048, 64, 128, 0.9), RELEASED, "fp8", "cpu") == 16
    )  # eight full contexts of two pages
