"""DeepSeek-V3.2 on one device: tokens in, logits out."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from ..kernels.registry import preference_of
from ..kernels.sparse_mla_decode import plan_decode
from .attention import MultiHeadLatentAttention
from .block import Block
from .config import ModelConfig, Precision
from .expert_slots import ExpertSlots
from .layers import Compute, Embedding, RMSNorm, summed
from .metadata import AttentionMetadata, LayerCache
from .moe import MixtureOfExperts
from .mtp import MTPLayer, MTPTables
from .profiling import profiler_range
from .rope import RotaryEmbedding
from .stages import stages

LOGIT_BYTES = 2**28  # of fp32 logits in a part of a step's: 512 rows of the released model's vocabulary

# Operations of every layer; `decode_operations` adds the rest.
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


class Transformer(nn.Module):
    """The whole model. Its parameters are allocated but not initialised; a checkpoint fills them."""

    def __init__(
        self,
        config: ModelConfig,
        precision: Precision = "exact",
        backend: str = "auto",
        device: torch.device | str = "cpu",
        mtp: MTPTables | None = None,
        deterministic: bool = False,
        offload: bool = False,
    ) -> None:
        """mtp: None leaves out the MTP layer, which only speculative decoding needs. deterministic, offload: see `Compute`."""
        super().__init__()
        self.config = config
        preference = preference_of(backend, deterministic)
        self.compute = compute = Compute(
            precision, preference, torch.device(device), config.ue8m0_scales, deterministic, offload
        )
        table = (config.vocab_size, config.hidden_size)
        self.embed_tokens = Embedding(*table, compute)
        self.rotary = RotaryEmbedding(config, compute.device)
        self.layers = nn.ModuleList(Block(config, compute, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, compute)
        self.lm_head = self.embed_tokens if config.tie_word_embeddings else Embedding(*table, compute)
        self.mtp = None if mtp is None else MTPLayer(config, compute, mtp)
        self.expert_slots: ExpertSlots | None = None  # of offloaded experts, which a checkpoint fills, too
        self.division = ""  # how several ranks divide the model, in one line
        # Describes this rank's rows of a step, from the step's metadata, cos and sin. Set where several ranks run the model.
        self.divide: Callable[[AttentionMetadata, torch.Tensor, torch.Tensor], AttentionMetadata] | None = None

    @torch.inference_mode()
    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor:
        """One step: tokens and positions, int64 [T], which `metadata` describes -> logits fp32 [N, V] of its logit_rows.

        caches: one a layer, in order; the MTP layer's may follow.
        """
        h, update = self._run_layers(tokens, positions, metadata, caches)
        with profiler_range("head"):
            rows = h[metadata.logit_rows]
            if update is not None:
                rows = rows + update[metadata.logit_rows]
            hidden = self.norm(rows)
            stages(None, metadata.logit_rows, final_norm=hidden)
            return self._logits(hidden, metadata)

    @torch.inference_mode()
    def forward_with_hidden(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Do as `forward` does, and return the hidden states [T, D] of all rows after the final norm, which `draft` takes."""
        h, update = self._run_layers(tokens, positions, metadata, caches)
        with profiler_range("head"):
            hidden = self.norm(h if update is None else h + update)
            stages(final_norm=hidden)
            return self._logits(hidden[metadata.logit_rows], metadata), hidden

    def _logits(self, hidden: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """hidden [N, D] of the logit_rows -> logits fp32 [N, V], or none if `on_logits` has taken them."""
        take, size = metadata.on_logits, max(len(hidden), 1)
        if take is not None:  # a multiple of the rows of kernels' tiles
            size = max(LOGIT_BYTES // (4 * self.config.vocab_size * 64), 1) * 64
        for rows, part in zip(metadata.logit_rows.split(size), hidden.split(size), strict=True):
            logits = self.lm_head.logits(part)
            stages(None, rows, logits=logits)
            if take is not None:
                take(logits)
        return logits if take is None else logits.new_empty(0, logits.shape[1])

    @torch.inference_mode()
    def draft(
        self,
        next_tokens: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        metadata: AttentionMetadata,
        cache: LayerCache,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the MTP layer once over the rows that `metadata` describes.

        next_tokens int64 [T]: the token after each of `positions` int64 [T]. hidden [T, D]: from `forward_with_hidden`, or from the
        previous call of this method. cache: the MTP layer's.
        -> logits fp32 [N, V] of logit_rows, for the token after the next one; hidden states [T, D].
        """
        mtp = self.mtp
        assert mtp is not None, "the model was built without its MTP layer"
        embedded = (mtp.embed_tokens or self.embed_tokens)(next_tokens)
        cos, sin = self.rotary(positions)
        logit_rows, metadata = metadata.logit_rows, self._prepared(metadata, cos, sin, [cache])
        own = [metadata.rows.own(each) for each in (embedded, hidden, positions, cos, sin)]
        (hidden,) = metadata.rows.gather(mtp(*own, metadata, cache))
        with profiler_range("MTP/head"):
            head = mtp.lm_head or self.lm_head
            stages(mtp_logits=lambda: head.logits(hidden))
            return head.logits(hidden[logit_rows]), hidden

    def _run_layers(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the residual stream after the last layer and the update that is still to be added, both [T, D]."""
        if self.expert_slots is not None:
            self.expert_slots.begin(len(tokens))
        with profiler_range("embedding"):
            h = self.embed_tokens(tokens)
            stages(tokens=tokens, embedding=h)
        cos, sin = self.rotary(positions)
        metadata = self._prepared(metadata, cos, sin, caches)
        rows = metadata.rows
        h, cos, sin = (rows.own(each) for each in (h, cos, sin))
        update = None
        for layer, cache in zip(self.layers, caches[: len(self.layers)], strict=True):
            h, update = layer(h, update, cos, sin, metadata, cache)
        with profiler_range("head"):
            total = None if update is None else summed(update, self.compute)
            if rows.divided:
                return rows.gather(h if total is None else h + total)[0], None
            return h, total

    def decode_operations(self) -> dict[str, int | None]:
        """List the kernel operations that decode steps in fp8 precision call.

        The value is the width of the leading tensor if implementations depend on it.
        """
        config = self.config
        operations: dict[str, int | None] = dict.fromkeys(_DECODE_OPERATIONS)
        operations["paged_indexer_logits"] = config.index_head_dim
        operations["sparse_mla_decode"] = config.kv_lora_rank + config.qk_rope_head_dim
        for layer in self.layers:
            if isinstance(layer.mlp, MixtureOfExperts):
                operations |= dict.fromkeys(layer.mlp.operations(layer is self.layers[-1]))
        if self.mtp is not None and isinstance(self.mtp.block.mlp, MixtureOfExperts):
            operations |= dict.fromkeys(self.mtp.block.mlp.operations(last=True))
        return operations

    def _prepared(
        self, metadata: AttentionMetadata, cos: torch.Tensor, sin: torch.Tensor, caches: list[LayerCache]
    ) -> AttentionMetadata:
        """Describe this process's rows of the step, with the decodes' split-KV plan if an FP8 cache needs one, for all layers."""
        if self.divide is not None:
            metadata = self.divide(metadata, cos, sin)
        # With experiments the number of keys varies, and each layer makes its own plan.
        if not metadata.decodes or caches[0].latent.dtype != torch.uint8 or metadata.policies:
            return metadata
        attention = self.layers[0].self_attn
        assert isinstance(attention, MultiHeadLatentAttention)
        attention = metadata.rows.attention_of(attention)
        selected = min(metadata.max_context, self.config.index_topk)
        device, backend = self.compute.device, self.compute.backend
        plan = plan_decode(metadata.decodes, 1, attention.heads, selected, device, backend=backend)
        return replace(metadata, decode_plan=plan)


def is_deterministic(model: object) -> bool:
    """Return whether this is a model with batch-invariant arithmetic."""
    return isinstance(model, Transformer) and model.compute.deterministic


def is_offloaded(model: object) -> bool:
    """Return whether this is a model whose routed experts stay in its checkpoint's files."""
    return isinstance(model, Transformer) and model.compute.offload
