"""Right implementations that round in other ways than this engine."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from deepseek_v32.inference.conformance.golden import Item
from deepseek_v32.inference.text.tokenizer import Tokenizer
from deepseek_v32.model.config import Precision

from .bugs.patching import replaced
from .bugs.rope import INDEX_ROPE

FP8_MAX = 448.0


def unrounded_scales() -> AbstractContextManager[None]:
    """FP8 scales of activations and caches that are no powers of two, as in DeepSeek-V3's recipe."""
    return replaced("kernels.reference.quantize.round_up_to_power_of_two", lambda _: lambda scale: scale)


def no_hadamard() -> AbstractContextManager[None]:
    """Index queries and keys quantised without the transform: the same products, rounded elsewhere."""
    return replaced("kernels.reference.hadamard.hadamard_transform", lambda _: lambda x, scale: x)


def fp8_indexer() -> AbstractContextManager[None]:
    """Index queries and keys rounded to FP8, one scale a vector, whatever the model's precision."""

    def make(rotate: Any) -> Any:
        def rounded(*arguments: Any) -> torch.Tensor:
            x = rotate(*arguments)
            scale = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-4) / FP8_MAX
            codes = (x.float() / scale).to(torch.float8_e4m3fn)
            values: torch.Tensor = (codes.float() * scale).to(x.dtype)
            return values

        return rounded

    return replaced(INDEX_ROPE, make)


@dataclass(frozen=True)
class RightEngine:
    """This engine, changed in a way that implementations are free in."""

    precision: Precision
    change: Callable[[], AbstractContextManager[None]]


FP8_INDEXER = "bf16, with an indexer in FP8"
VARIANTS = {
    FP8_INDEXER: RightEngine("bf16", fp8_indexer),
    "fp8, scales that are no powers of two": RightEngine("fp8", unrounded_scales),
    "fp8, without the Hadamard transform": RightEngine("fp8", no_hadamard),
}


@torch.inference_mode()
def transformers_logprobs(model: Any, tokenizer: Tokenizer, item: Item) -> np.ndarray:
    """fp32 [item.size]: what transformers' deepseek_v32 gives a right answer's tokens and their alternatives, in one pass."""
    ids = {tokenizer.decode([token], skip_special_tokens=False): token for token in range(tokenizer.vocab_size)}
    tokens, following = list(item.tokens), list(item.tokens[1:])
    if item.group != "score":
        following = [ids[text] for text in item.answer]
        tokens += following[:-1]
    rows = model(torch.tensor([tokens])).logits[0, -len(following) - (item.group == "score") :].float().log_softmax(-1)
    others = item.others or ((),) * len(following)
    places = zip(rows, following, others, strict=False)  # a text's last row is for the token after it
    values = [row[[token, *(ids[text] for text in beside)]] for row, token, beside in places]
    found: np.ndarray = torch.cat(values).numpy()
    return found
