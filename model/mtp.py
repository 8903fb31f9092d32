"""The multi-token-prediction (MTP) layer, which drafts tokens for speculative decoding.

Source: DeepSeek-V3 report (arXiv 2412.19437), section 2.2. The released checkpoint stores it as the layer after the last one.
"""

from dataclasses import dataclass

import torch
from torch import nn

from .block import Block
from .config import ModelConfig
from .layers import Compute, Embedding, RMSNorm, UnquantizedLinear, summed
from .metadata import AttentionMetadata, LayerCache
from .profiling import profiler_range
from .stages import stages


@dataclass(frozen=True)
class MTPTables:
    """The vocabulary tables that differ from the main model's, so that the MTP layer has its own."""

    embedding: bool = False
    head: bool = False


class MTPLayer(nn.Module):
    """h'[i] = norm(block(eh_proj([enorm(embed(t[i + 1])), hnorm(h[i])]))), from whose logits t[i + 2] is drafted.

    For the first draft, h is the main model's hidden state after its final norm. For each further one it is this layer's own
    output: its `norm` has been applied, as the released model expects. Position i has no embedding if it is 0. The block has an
    indexer and caches of its own and does not reuse the last layer's selection.
    """

    def __init__(self, config: ModelConfig, compute: Compute, tables: MTPTables) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.compute = compute
        self.enorm = RMSNorm(hidden, eps, compute)
        self.hnorm = RMSNorm(hidden, eps, compute)
        self.eh_proj = UnquantizedLinear(2 * hidden, hidden, compute)
        self.block = Block(config, compute, config.num_hidden_layers)
        self.norm = RMSNorm(hidden, eps, compute)
        table = (config.vocab_size, hidden)
        # None: the main model's.
        self.embed_tokens = Embedding(*table, compute) if tables.embedding else None
        self.lm_head = Embedding(*table, compute) if tables.head else None

    def forward(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> torch.Tensor:
        """embedded [T, D], the tokens that follow `positions` int64 [T]; hidden [T, D] at those positions -> [T, D], normed."""
        with profiler_range("MTP/input"):
            embedded = embedded.masked_fill((positions == 0)[:, None], 0)
            embedded, hidden = self.enorm(embedded), self.hnorm(hidden)
            h = self.eh_proj(torch.cat((embedded, hidden), 1))
            stages(mtp_embedding_norm=embedded, mtp_hidden_norm=hidden, mtp_input=h)
        h, update = self.block(h, None, cos, sin, metadata, cache)
        normed: torch.Tensor = self.norm(h + summed(update, self.compute))
        stages(mtp_norm=normed)
        return normed
