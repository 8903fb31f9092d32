"""A transformer layer: attention and an MLP or experts, around a residual stream."""

import torch
from torch import nn

from .attention import MultiHeadLatentAttention
from .config import ModelConfig
from .layers import MLP, Compute, Operand, RMSNorm, Update, summed
from .metadata import AttentionMetadata, LayerCache
from .moe import MixtureOfExperts
from .profiling import profiler_range
from .stages import is_traced, stages


class Block(nn.Module):
    """h + attention(norm(h)), then h + mlp(norm(h)).

    The residual add is fused into the next norm. So is the sum of the experts' outputs of a few tokens, and the sum over ranks.
    """

    def __init__(self, config: ModelConfig, compute: Compute, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.compute = compute
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, compute)
        self.self_attn = MultiHeadLatentAttention(config, compute, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, compute)
        self.mlp: MLP | MixtureOfExperts
        if config.is_dense(layer):
            self.mlp = MLP(config.hidden_size, config.intermediate_size, compute)
        else:
            self.mlp = MixtureOfExperts(config, compute, layer)

    def forward(
        self,
        h: torch.Tensor,
        update: Update | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> tuple[torch.Tensor, Update]:
        """The residual stream h and the pending update, both [T, D] -> the same pair. Writes the new tokens' cache entries."""
        with profiler_range(f"layer {self.layer}/norm"):
            h, x, operand = _norm(self.input_layernorm, h, update)
        stages(self.layer, attention_norm=x)
        rows = metadata.rows
        attention = rows.attention_of(self.self_attn)
        values = attention(x, operand, cos, sin, metadata, cache)
        attended: Update = rows.sum(values) if attention.partial else values
        if is_traced():
            attended = summed(attended, self.compute)
            stages(self.layer, attention_output=attended)
        with profiler_range(f"layer {self.layer}/norm"):
            h, x, operand = _norm(self.post_attention_layernorm, h, attended)
        stages(self.layer, attention_residual=h, mlp_norm=x)
        output: Update
        mlp = self.mlp
        if not isinstance(mlp, MLP):
            output = mlp(x, operand, rows)
        else:
            with profiler_range(f"layer {self.layer}/mlp"):
                output = rows.sum(mlp(rows.gather_inputs(operand)[0])) if mlp.partial else mlp(operand)
        if is_traced():
            output = summed(output, self.compute)
            stages(self.layer, mlp_output=output, residual=h + output)
        return h, output


def _norm(norm: RMSNorm, h: torch.Tensor, update: Update | None) -> tuple[torch.Tensor, torch.Tensor, Operand]:
    """Return h plus the update, this sum normed, and the norm as an operand."""
    if update is None or isinstance(update, torch.Tensor):
        return norm.with_operand(h, update)
    return update.norm(h, norm)
