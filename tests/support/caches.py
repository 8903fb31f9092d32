"""The two FP8 cache layouts written byte by byte with struct, from the published offsets."""

import struct

import numpy as np
import torch

from support import e4m3

LATENT, ROPE, KEY, PAGE = 512, 64, 128, 64
LATENT_RECORD = 656  # 512 e4m3, 4 fp32 scales, 64 bf16
INDEX_PAGE = 8448  # 64 keys of 128 bytes, then 64 fp32 scales
POISON = 0xFF  # NaN as e4m3, as fp32 and as bf16

# The first and the last slot of the first page, the first of the second, the last and an inner one of the third; unordered.
SLOTS = [64, 0, 63, 191, 130]
ONE_SLOT = [127]
# Tokens written at once: one, a few, a page, around two pages, a prefill chunk.
COUNTS = [1, 3, 64, 127, 128, 4096]


def scattered(tokens: int) -> tuple[torch.Tensor, int]:
    """Slots [T] in random order over a cache of twice as many, and the number of its pages."""
    pages = -(-2 * tokens // PAGE)
    return torch.randperm(pages * PAGE, generator=torch.Generator().manual_seed(tokens))[:tokens], pages


def poisoned(*shape: int) -> torch.Tensor:
    return torch.full(shape, POISON, dtype=torch.uint8)


def latent_record(codes: np.ndarray, scales: np.ndarray, rope: np.ndarray) -> bytes:
    """One token's 656 bytes: codes [512], scales [4], rope [64] of values that bf16 holds exactly."""
    record = bytearray(LATENT_RECORD)
    record[0:512] = bytes(codes.astype(np.uint8).tolist())
    struct.pack_into("<4f", record, 512, *scales.tolist())
    for i, value in enumerate(rope.tolist()):
        record[528 + 2 * i : 530 + 2 * i] = e4m3.bf16_bytes(value)
    return bytes(record)


def put(cache: torch.Tensor, offset: int, data: bytes) -> None:
    cache.view(-1)[offset : offset + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)


def key_offset(slot: int) -> int:
    return slot // PAGE * INDEX_PAGE + slot % PAGE * KEY


def scale_offset(slot: int) -> int:
    return slot // PAGE * INDEX_PAGE + PAGE * KEY + slot % PAGE * 4


def put_index_key(cache: torch.Tensor, slot: int, codes: np.ndarray, scale: float) -> None:
    put(cache, key_offset(slot), bytes(codes.astype(np.uint8).tolist()))
    put(cache, scale_offset(slot), struct.pack("<f", scale))


def put_index_keys(cache: torch.Tensor, pages: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> None:
    """Write the keys of a whole sequence, codes [S, 128] and scales [S], into its pages in order; the rest is left untouched."""
    page = cache.view(-1, INDEX_PAGE).numpy()
    for first in range(0, len(codes), PAGE):
        target, count = page[pages[first // PAGE]], min(PAGE, len(codes) - first)
        target[: count * KEY] = codes[first : first + count].reshape(-1)
        target[PAGE * KEY : PAGE * KEY + 4 * count] = scales[first : first + count].astype("<f4").view(np.uint8)


def put_latent(cache: torch.Tensor, slot: int, codes: np.ndarray, scales: np.ndarray, rope: np.ndarray) -> None:
    """Write one record into `cache` [P, page, 1, 656], of any page size: records are contiguous."""
    put(cache, slot * LATENT_RECORD, latent_record(codes, scales, rope))


def to_bf16(x: np.ndarray) -> np.ndarray:
    """The nearest bf16 values, as float64."""
    return torch.from_numpy(np.ascontiguousarray(x)).to(torch.bfloat16).double().numpy()


def random_latents(
    rng: np.random.Generator, count: int, powers_of_two: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """codes [count, 512], scales [count, 4], rope [count, 64], and the rows [count, 576] that they encode, in float64."""
    latent = rng.standard_normal((count, LATENT)) * 2.0 ** rng.integers(-3, 3, (count, 1))
    codes, scales = e4m3.quantize(latent.astype(np.float32), powers_of_two)
    rope = to_bf16(rng.standard_normal((count, ROPE)))
    return codes, scales, rope, np.concatenate([e4m3.dequantize(codes, scales), rope], axis=1)
