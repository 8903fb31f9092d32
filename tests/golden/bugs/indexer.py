"""The lightning indexer: its keys, queries, head weights and scores."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from deepseek_v32.model import attention, indexer
from deepseek_v32.model.block import Block

from .bug import ALL, EXACT, FP8, HTTP, TRACE, Bug
from .patching import replaced

LAYER_NORM = ("model.indexer.layer_norm", "kernels.reference.norm_and_cache.layer_norm")


def hadamard_on_queries_only() -> AbstractContextManager[None]:
    """The keys are quantised without the transform."""

    def make(write: Any) -> Any:
        def plain(*arguments: Any) -> Any:
            with replaced("kernels.reference.hadamard.hadamard_transform", lambda _: lambda x, scale: x):
                return write(*arguments)

        return plain

    modules = ("kernels.reference.norm_and_cache", "kernels.reference.cache_write")
    return replaced([f"{module}.write_index_cache" for module in modules], make)


def weights_without_query_scale() -> AbstractContextManager[None]:
    def make(rotate_quantize: Any) -> Any:
        def unscaled(*arguments: Any, **options: Any) -> Any:
            return rotate_quantize(*arguments, **options)._replace(weights=arguments[5])

        return unscaled

    return replaced("model.indexer.rotate_quantize", make)


def no_relu() -> AbstractContextManager[None]:
    def scores(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, k_scale: torch.Tensor | None) -> torch.Tensor:
        found = torch.einsum("thd,sd,th->ts", q.float(), k.float(), weights)
        return found if k_scale is None else found * k_scale

    return replaced("kernels.reference.indexer_logits._scores", lambda _: scores)


def softmax() -> AbstractContextManager[None]:
    """Each head's scores are a softmax over the keys up to the query."""

    def scores(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, _: Any) -> torch.Tensor:
        products = torch.einsum("thd,sd->ths", q.float(), k.float())
        count, _, keys = products.shape
        later = torch.arange(keys) > torch.arange(count)[:, None] + keys - count  # the last query sees all keys
        shares = products.masked_fill(later[:, None], -torch.inf).softmax(-1)
        return torch.einsum("ths,th->ts", shares, weights)

    return replaced("kernels.reference.indexer_logits._scores", lambda _: scores)


def key_rms_norm() -> AbstractContextManager[None]:
    def rms_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, **_: Any) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight, eps).to(x.dtype)

    return replaced(LAYER_NORM, lambda _: rms_norm)


def key_norm_without_bias() -> AbstractContextManager[None]:
    def make(layer_norm: Any) -> Any:
        return lambda x, weight, bias, eps, **options: layer_norm(x, weight, torch.zeros_like(bias), eps, **options)

    return replaced(LAYER_NORM, make)


def key_norm_eps() -> AbstractContextManager[None]:
    """The epsilon of the residual stream's norms."""

    def make(forward: Any) -> Any:
        def patched(self: Block, *arguments: Any) -> Any:
            eps = self.input_layernorm.eps
            with patch.object(indexer, "NORM_EPS", eps), patch.object(attention, "NORM_EPS", eps):
                return forward(self, *arguments)

        return patched

    return replaced("model.block.Block.forward", make)


def key_weight_without_scales() -> AbstractContextManager[None]:
    """The block scales of wk are dropped at load."""

    def make(forward: Any) -> Any:
        def patched(self: attention.MultiHeadLatentAttention, *arguments: Any) -> Any:
            with unscaled(self.indexer.wk):
                return forward(self, *arguments)

        return patched

    return replaced("model.attention.MultiHeadLatentAttention.forward", make)


@contextmanager
def unscaled(linear: Any) -> Iterator[None]:
    kept = linear.weight_scale_inv.data
    linear.weight_scale_inv.data = torch.ones_like(kept)
    try:
        yield
    finally:
        linear.weight_scale_inv.data = kept


BOTH = frozenset({TRACE, HTTP})
UNSCALED = frozenset({"exact", "bf16"})  # in which keys have no scales
BUGS = (
    Bug("hadamard-on-one-side", BOTH, FP8, "index_key", hadamard_on_queries_only),
    Bug("index-weights-without-query-scale", BOTH, FP8, "index_scores",
        weights_without_query_scale),
    Bug("relu-missing", BOTH, ALL, "index_scores", no_relu),
    Bug("softmax-in-place-of-relu", BOTH, UNSCALED, "index_scores", softmax),
    Bug("key-norm-rms", BOTH, ALL, "index_key", key_rms_norm),
    Bug("key-norm-bias-missing", BOTH, ALL, "index_key", key_norm_without_bias),
    Bug("key-norm-eps", BOTH, EXACT, "index_key", key_norm_eps),
    Bug("index-key-weight-scales-dropped", BOTH, FP8, "index_key_proj",
        key_weight_without_scales),
)  # fmt: skip
