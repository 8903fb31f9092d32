"""Chooses the form of attention for a prompt's chunk: the cheapest one, unless the mode requires the decodes' form."""

import torch

from ..kernels.registry import choose_implementation
from .config import ModelConfig
from .layers import Compute
from .metadata import Prefill

# In plain PyTorch, gathering one selected key takes as long as this many multiply-adds (1.4 us per key, 70 G/s on two cores).
REFERENCE_GATHER_COST = 100_000


class PrefillForm:
    """The choice for one layer. In deterministic mode it does not depend on the chunk, where that could change a bit."""

    def __init__(self, config: ModelConfig, compute: Compute) -> None:
        self.config, self.compute = config, compute

    def is_multi_head(self, prefill: Prefill, q: torch.Tensor) -> bool:
        """Decide whether q [t, H, ...] attends in the multi-head form. In deterministic mode none does, as decodes do not."""
        if self.compute.deterministic:
            return False
        return prefill.length <= self.config.index_topk or self.masked_mha_is_cheaper(prefill, q)

    def masked_mha_is_cheaper(self, prefill: Prefill, q: torch.Tensor) -> bool:
        """Decide whether masked dense attention is cheaper than gathering keys: in plain PyTorch, up to a few times index_topk."""
        config, heads = self.config, q.shape[1]
        if choose_implementation("sparse_mla_prefill", q.device, q.dtype, self.compute.backend).backend != "reference":
            return False
        chunk = prefill.length - prefill.start
        latent, value = config.kv_lora_rank, config.v_head_dim
        expand = heads * latent * (config.qk_nope_head_dim + value) / chunk
        masked = prefill.length * (heads * (config.qk_head_dim + value) + expand)
        gathered = config.index_topk * (REFERENCE_GATHER_COST + heads * (2 * latent + config.qk_rope_head_dim))
        return masked < gathered
