"""DeepSeek-V3.2 on one device: tokens in, logits out."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from ..kernels.registry import preference_of
from ..kernels.sparse_mla_decode import plan_decode
from .attention import MultiHeadLatentAttention
from .config import ModelConfig, Precision
from .layers import MLP, Compute, Operand, RMSNorm, parameter
from .metadata import AttentionMetadata, LayerCache
from .moe import ExpertOutputs, MixtureOfExperts
from .profiling import profiler_range
from .rope import RotaryEmbedding

# Those of every layer; `decode_operations` adds the rest.
_DECODE_OPERATIONS = (
    "rms_norm_quantize",
    "fp8_gemms",
    "fp8_gemm",
    "norm_and_cache",
    "rotate_quantize",
    "select_topk",
    "select_topk_slots",
    "absorb_queries",
    "expand_quantize",
    "swiglu_quantize",
)


class Embedding(nn.Module):
    """A [V, D] table: embeds tokens or, transposed, computes logits."""

    def __init__(self, rows: int, width: int, compute: Compute) -> None:
        super().__init__()
        self.weight = parameter(rows, width, dtype=compute.dtype, device=compute.device)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.weight)

    def logits(self, h: torch.Tensor) -> torch.Tensor:
        """h [N, D] -> fp32 [N, V]. bf16 products are accumulated in fp32 and not rounded."""
        if h.dtype == torch.float32:
            return F.linear(h, self.weight)
        if h.device.type == "cuda":
            return torch.mm(h, self.weight.T, out_dtype=torch.float32)
        return torch.cat([F.linear(h.float(), rows.float()) for rows in self.weight.split(16384)], 1)


class Block(nn.Module):
    """h + attention(norm(h)), then h + mlp(norm(h)).

    A sublayer's output is pending until the next norm adds it to the residual stream, in one pass over both. The experts' outputs
    of a few tokens are not even summed until then.
    """

    def __init__(self, config: ModelConfig, compute: Compute, layer: int) -> None:
        super().__init__()
        self.layer = layer
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
        update: torch.Tensor | ExpertOutputs | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> tuple[torch.Tensor, torch.Tensor | ExpertOutputs]:
        """The residual stream h and the pending update, both [T, D] -> the same pair. Writes the new tokens' cache entries."""
        with profiler_range(f"layer {self.layer}/norm"):
            h, x, operand = self._first_norm(h, update)
        attended = self.self_attn(x, operand, cos, sin, metadata, cache)
        with profiler_range(f"layer {self.layer}/norm"):
            h, x, operand = self.post_attention_layernorm.with_operand(h, attended)
        if not isinstance(self.mlp, MLP):
            return h, self.mlp.pending(x, operand)
        with profiler_range(f"layer {self.layer}/mlp"):
            return h, self.mlp(operand)

    def _first_norm(
        self, h: torch.Tensor, update: torch.Tensor | ExpertOutputs | None
    ) -> tuple[torch.Tensor, torch.Tensor, Operand]:
        """h plus the update; that, normed; and the same as an operand."""
        if isinstance(update, ExpertOutputs):
            return update.norm(h, self.input_layernorm)
        total, normed, operand = self.input_layernorm.with_operand(h, update)
        return total, normed, operand


class Transformer(nn.Module):
    """The whole model. Its parameters are allocated but not initialised; a checkpoint fills them."""

    def __init__(
        self,
        config: ModelConfig,
        precision: Precision = "exact",
        backend: str = "auto",
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        self.config = config
        self.compute = compute = Compute(precision, preference_of(backend), torch.device(device), config.ue8m0_scales)
        table = (config.vocab_size, config.hidden_size)
        self.embed_tokens = Embedding(*table, compute)
        self.rotary = RotaryEmbedding(config, compute.device)
        self.layers = nn.ModuleList(Block(config, compute, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, compute)
        self.lm_head = self.embed_tokens if config.tie_word_embeddings else Embedding(*table, compute)

    @torch.inference_mode()
    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        metadata: AttentionMetadata,
        caches: list[LayerCache],
    ) -> torch.Tensor:
        """One step: tokens and positions, int64 [T], which `metadata` describes -> logits fp32 [N, V] of its logit_rows."""
        with profiler_range("embedding"):
            h = self.embed_tokens(tokens)
        cos, sin = self.rotary(positions)
        metadata = self._with_plan(metadata, caches)
        update = None
        for layer, cache in zip(self.layers, caches, strict=True):
            h, update = layer(h, update, cos, sin, metadata, cache)
        with profiler_range("head"):
            rows = h[metadata.logit_rows]
            if isinstance(update, ExpertOutputs):
                update = update.sum(self.compute)
            if update is not None:
                rows = rows + update[metadata.logit_rows]
            return self.lm_head.logits(self.norm(rows))

    def decode_operations(self) -> dict[str, int | None]:
        """The kernel operations that decode steps in fp8 precision call.

        The value is the width of the leading tensor if implementations depend on it.
        """
        config = self.config
        operations: dict[str, int | None] = dict.fromkeys(_DECODE_OPERATIONS)
        operations["paged_indexer_logits"] = config.index_head_dim
        operations["sparse_mla_decode"] = config.kv_lora_rank + config.qk_rope_head_dim
        for layer in self.layers:
            if isinstance(layer.mlp, MixtureOfExperts):
                operations |= dict.fromkeys(layer.mlp.operations(layer is self.layers[-1]))
        return operations

    def _with_plan(self, metadata: AttentionMetadata, caches: list[LayerCache]) -> AttentionMetadata:
        """`metadata` with the split-KV plan of the decodes, if an FP8 cache needs one. All layers share it."""
        if not metadata.decodes or caches[0].latent.dtype != torch.uint8:
            return metadata
        attention = self.layers[0].self_attn
        assert isinstance(attention, MultiHeadLatentAttention)
        selected = min(metadata.max_context, self.config.index_topk)
        device, backend = self.compute.device, self.compute.backend
        plan = plan_decode(metadata.decodes, 1, attention.heads, selected, device, backend=backend)
        return replace(metadata, decode_plan=plan)
