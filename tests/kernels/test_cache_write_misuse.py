"""Misuse of the paged caches' operations is an error of one line that names the argument."""

import pytest
import torch

from deepseek_v32.kernels.cache_write import gather_index_keys, gather_latents, write_index_cache, write_latent_cache
from support import caches


def latent(**changes: torch.Tensor) -> None:
    given = {
        "kv": torch.ones(2, 576),
        "norm_weight": torch.ones(512),
        "cos": torch.ones(2, 32),
        "sin": torch.ones(2, 32),
        "cache": caches.poisoned(1, 64, 1, 656),
        "slots": torch.tensor([0, 1]),
    } | changes
    write_latent_cache(given["kv"], given["norm_weight"], 1e-6, *(given[n] for n in ("cos", "sin", "cache", "slots")))


def index(**changes: torch.Tensor) -> None:
    given = {
        "keys": torch.ones(2, 128),
        "cos": torch.ones(2, 32),
        "sin": torch.ones(2, 32),
        "cache": caches.poisoned(1, 64, 1, 132),
        "slots": torch.tensor([0, 1]),
    } | changes
    write_index_cache(*given.values())


def gather(cache: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    return gather_latents(cache, slots, 512, torch.float32)


MISUSE = {
    "gather: int32 slots": (
        gather,
        {"cache": caches.poisoned(1, 64, 1, 656), "slots": torch.tensor([0]).int()},
        "slots has dtype torch.int32; expected torch.int64",
    ),
    "gather: cache without its head": (
        gather,
        {"cache": caches.poisoned(1, 64, 656), "slots": torch.tensor([0])},
        r"cache has shape \[1, 64, 656\]; expected \[\*, \*, 1, \*\]",
    ),
    "gather keys: slots of two axes": (
        gather_index_keys,
        {"cache": caches.poisoned(1, 64, 1, 132), "slots": torch.tensor([[0]])},
        r"slots has shape \[1, 1\]; expected \[\*\]",
    ),
    "kv too narrow": (latent, {"kv": torch.ones(2, 512)}, r"kv has shape \[2, 512\]; expected \[\*, 576\]"),
    "int32 slots": (latent, {"slots": torch.tensor([0, 1]).int()}, "slots has dtype torch.int32; expected torch.int64"),
    "a slot too few": (latent, {"slots": torch.tensor([0])}, r"slots has shape \[1\]; expected \[2\]"),
    "record of 576": (
        latent,
        {"cache": caches.poisoned(1, 64, 1, 576)},
        r"cache has shape .*; expected \[\*, \*, 1, 656\]",
    ),
    "bf16 cache of 656": (
        latent,
        {"cache": torch.ones(1, 64, 1, 656).bfloat16()},
        r"cache has shape .* expected \[\*, \*, 1, 576\]",
    ),
    "fp16 cache": (latent, {"cache": torch.ones(1, 64, 1, 576).half()}, "cache has dtype torch.float16"),
    "FP8 latents of half a group": (
        latent,
        {"kv": torch.ones(2, 256), "norm_weight": torch.ones(192)},
        "norm_weight has 192 elements; expected a multiple of 128 for an FP8 cache",
    ),
    "FP8 keys of two groups": (
        index,
        {"keys": torch.ones(2, 256)},
        "keys has 256 columns; expected a power of two up to 128 for an FP8 cache",
    ),
    "cos of one token": (latent, {"cos": torch.ones(1, 32)}, r"cos has shape \[1, 32\]; expected \[2, \*\]"),
    "bf16 sin": (latent, {"sin": torch.ones(2, 32).bfloat16()}, "sin has dtype torch.bfloat16"),
    "norm in bf16": (latent, {"norm_weight": torch.ones(512).bfloat16()}, "norm_weight has dtype torch.bfloat16"),
    "index cache of latents": (index, {"cache": caches.poisoned(1, 64, 1, 656)}, r"expected \[\*, \*, 1, 132\]"),
    "keys with a head axis": (index, {"keys": torch.ones(2, 1, 128)}, r"keys has shape \[2, 1, 128\]"),
    "index slots elsewhere": (
        index,
        {"slots": torch.ones(2, dtype=torch.int64, device="meta")},
        "slots is on meta; expected cpu",
    ),
}


@pytest.mark.parametrize(("write", "changes", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(write: object, changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write(**changes)  # type: ignore[operator]
