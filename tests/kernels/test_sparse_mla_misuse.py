"""Misuse of sparse attention is an error of one line that names the argument."""

import pytest
import torch

from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from support import caches
from support.sparse import SCALE


def prefill(**changes: torch.Tensor) -> object:
    given = {
        "q": torch.ones(2, 4, 576),
        "kv": torch.ones(5, 1, 576),
        "indices": torch.zeros(2, 1, 8, dtype=torch.int32),
    } | changes
    return sparse_mla_prefill(softmax_scale=SCALE, **given)  # type: ignore[arg-type]


def decode(**changes: torch.Tensor) -> object:
    given = {
        "q": torch.ones(2, 1, 4, 576),
        "cache": caches.poisoned(1, 64, 1, 656),
        "indices": torch.zeros(2, 1, 8, dtype=torch.int32),
    } | changes
    return sparse_mla_decode(softmax_scale=SCALE, **given)  # type: ignore[arg-type]


MISUSE = {
    "prefill: q of one token": (prefill, {"q": torch.ones(4, 576)}, r"q has shape \[4, 576\]; expected \[\*, \*, \*\]"),
    "prefill: q in half": (prefill, {"q": torch.ones(2, 4, 576).half()}, "q has dtype torch.float16"),
    "prefill: kv without its head": (prefill, {"kv": torch.ones(5, 576)}, r"kv has shape \[5, 576\]"),
    "prefill: kv of another dtype": (prefill, {"kv": torch.ones(5, 1, 576).bfloat16()}, "kv has dtype torch.bfloat16"),
    "prefill: kv of 512": (prefill, {"kv": torch.ones(5, 1, 512)}, r"expected \[\*, 1, 576\]"),
    "prefill: byte cache of another record": (
        prefill,
        {"kv": caches.poisoned(1, 64, 1, 640)},
        r"kv has shape \[1, 64, 1, 640\]; expected \[\*, \*, 1, 656\]",
    ),
    "prefill: int64 indices": (
        prefill,
        {"indices": torch.zeros(2, 1, 8, dtype=torch.int64)},
        "indices has dtype torch.int64; expected torch.int32",
    ),
    "prefill: a topk_length too few": (
        prefill,
        {"topk_length": torch.zeros(1, dtype=torch.int32)},
        r"topk_length has shape \[1\]; expected \[2\]",
    ),
    "prefill: bf16 sink": (prefill, {"attn_sink": torch.ones(4).bfloat16()}, "attn_sink has dtype torch.bfloat16"),
    "prefill: sink of another head count": (
        prefill,
        {"attn_sink": torch.ones(8)},
        r"attn_sink has shape \[8\]; expected \[4\]",
    ),
    "decode: q without s_q": (decode, {"q": torch.ones(2, 4, 576)}, r"q has shape \[2, 4, 576\]"),
    "decode: bf16 cache for fp32 q": (decode, {"cache": torch.ones(1, 64, 1, 576).bfloat16()}, "cache has dtype"),
    "decode: cache of 576 bytes": (decode, {"cache": caches.poisoned(1, 64, 1, 576)}, r"expected \[\*, \*, 1, 656\]"),
    "decode: indices of one sequence": (
        decode,
        {"indices": torch.zeros(1, 1, 8, dtype=torch.int32)},
        r"indices has shape \[1, 1, 8\]; expected \[2, 1, \*\]",
    ),
    "decode: indices elsewhere": (
        decode,
        {"indices": torch.zeros(2, 1, 8, dtype=torch.int32, device="meta")},
        "indices is on meta; expected cpu",
    ),
}


@pytest.mark.parametrize(("call", "changes", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(call: object, changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**changes)  # type: ignore[operator]
