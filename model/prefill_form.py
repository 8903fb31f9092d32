"""Which form of attention computes a chunk of a prompt: the cheapest one, unless the mode asks for that of decodes."""

import torch

from ..kernels.cuda.sparse_mla_decode import FEW_HEADS
from ..kernels.registry import choose_implementation
from .config import ModelConfig
from .layers import Compute
from .metadata import Prefill

# In plain PyTorch, gathering one selected key takes as long as this many multiply-adds (1.4 us per key, 70 G/s on two cores).
REFERENCE_GATHER_COST = 100_000

# With at least MANY_HEADS heads, sparse prefill over a context that was converted to bf16 once is faster than over FP8 records,
# which every query converts again, unless the context exceeds CONTEXT_PER_QUERY tokens per query. With 128 heads it saves about
# 0.3 us per query (docs/log/attention-h100.md); the conversion takes about 1 ns per token.
MANY_HEADS, CONTEXT_PER_QUERY = 64, 256


class PrefillForm:
    """The choice for one layer. In deterministic mode it does not depend on the chunk, where that could change a bit."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        self.config, self.compute = config, compute

    def is_multi_head(self, prefill: Prefill, q: torch.Tensor) -> bool:
        """Whether q [t, H, ...] attends in the multi-head form. Decodes are absorbed, so in deterministic mode all prompts are."""
        if self.compute.deterministic:
            return False
        return prefill.length <= self.config.index_topk or self.masked_mha_is_cheaper(prefill, q)

    def masked_mha_is_cheaper(self, prefill: Prefill, q: torch.Tensor) -> bool:
        """Without a compiled sparse kernel, masked dense attention is cheaper than gathering up to a few times index_topk."""
        config, heads = self.config, q.shape[1]
        if choose_implementation("sparse_mla_prefill", q.device, q.dtype, self.compute.backend).backend != "reference":
            return False
        chunk = prefill.length - prefill.start
        latent, value = config.kv_lora_rank, config.v_head_dim
        expand = heads * latent * (config.qk_nope_head_dim + value) / chunk
        masked = prefill.length * (heads * (config.qk_head_dim + value) + expand)
        gathered = config.index_topk * (REFERENCE_GATHER_COST + heads * (2 * latent + config.qk_rope_head_dim))
        return masked < gathered

    def attends_as_decode(self, q: torch.Tensor) -> bool:
        """Whether q [t, H, L + rope] attends by the kernel of decodes, which alone divides the keys of a query by their places.

        With many heads no kernel of the deterministic mode divides them (kernels/invariant/gpu/sparse_mla.py).
        """
        return self.compute.deterministic and q.device.type == "cuda" and q.shape[1] <= FEW_HEADS

    def converts_context(self, prefill: Prefill, q: torch.Tensor, keys: int) -> bool:
        """Whether a chunk's context is converted from FP8 once, and not again for each query q [t, H, L + rope] of so many keys."""
        # Conversion gives the bits that attention converts for itself, so in deterministic mode it may depend on the chunk, too.
        if self.compute.deterministic and q.device.type == "cpu":
            return prefill.length <= keys * q.shape[0]
        return q.shape[1] >= MANY_HEADS and prefill.length <= CONTEXT_PER_QUERY * q.shape[0]
