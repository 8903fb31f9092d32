"""The model on which traces are compared: random and tiny, with everything that a bug can be about."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from deepseek_v32.inference import LLM
from tiny_model.checkpoint import TINY, write_checkpoint

# YaRN, groups, a dense layer, an MTP layer; an epsilon that is not 1e-6; two blocks of columns in each FP8 weight of the hidden
# state, and fewer hidden dims than half the tokens, so that a linear map can be told from a trace.
CONFIG = replace(
    TINY,
    vocab_size=256,
    hidden_size=160,
    intermediate_size=128,
    moe_intermediate_size=64,
    num_hidden_layers=2,
    num_nextn_predict_layers=1,
    kv_lora_rank=256,
    index_topk=48,
    rms_norm_eps=1e-2,
)
LENGTH = 330
PAGES = 24
STORED = {"exact": "fp32", "bf16": "bf16", "fp8": "fp8"}


def text(length: int = LENGTH, seed: int = 1) -> list[int]:
    tokens: list[int] = torch.randint(
        CONFIG.vocab_size, (length,), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    return tokens


def write_small(directory: Path, precision: str) -> Path:
    write_checkpoint(directory, CONFIG, STORED[precision])  # type: ignore[arg-type]
    if precision == "fp8":  # blocks of real weights have different scales; random ones have not
        weights = load_file(directory / "model.safetensors")
        for name, tensor in weights.items():
            if name.endswith("indexer.wk.weight_scale_inv"):
                tensor[:, 1] *= 4
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def load(directory: Path, precision: str, **options: Any) -> LLM:
    """An engine whose caches hold garbage where nothing was written."""
    llm = LLM(directory, device="cpu", precision=precision, page_count=PAGES, **options)  # type: ignore[arg-type]
    for cache in llm.engine.runner.caches:  # type: ignore[attr-defined]
        for tensor in (cache.latent, cache.index):
            tensor.fill_(0.5 if tensor.is_floating_point() else 0x30)
    return llm
