"""The model's dimensions and constants, from a Hugging Face ``config.json``."""

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

Precision = Literal["exact", "bf16", "fp8"]
PRECISIONS = get_args(Precision)

FP8_BLOCK = 128  # width of an activation's scale group and of a weight's scale block


class ConfigError(ValueError):
    """A configuration that cannot be run, in one line: key, what came, what is wanted."""


@dataclass(frozen=True)
class YarnScaling:
    """YaRN context extension (arXiv 2309.00071) as DeepSeek applies it: scaled frequencies, unscaled cos and sin."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 0.0


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions of a DeepSeek-V3.2 model; the defaults are the released model's. Field names are config.json's."""

    vocab_size: int = 129280
    hidden_size: int = 7168
    intermediate_size: int = 18432  # of a dense MLP
    moe_intermediate_size: int = 2048  # of one expert
    num_hidden_layers: int = 61
    first_k_dense_replace: int = 3  # leading layers with a dense MLP instead of experts
    num_attention_heads: int = 128
    q_lora_rank: int = 1536
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    n_routed_experts: int = 256
    n_shared_experts: int = 1
    num_experts_per_tok: int = 8
    n_group: int = 8
    topk_group: int = 4
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 2.5
    index_n_heads: int = 64
    index_head_dim: int = 128
    index_topk: int = 2048
    indexer_rope_interleave: bool = False
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    yarn: YarnScaling | None = YarnScaling(40.0, 4096, mscale_all_dim=1.0)
    max_position_embeddings: int = 163840
    tie_word_embeddings: bool = False
    num_nextn_predict_layers: int = 1
    bos_token_id: int | None = 0
    eos_token_ids: tuple[int, ...] = (1,)
    weight_block: tuple[int, int] | None = (FP8_BLOCK, FP8_BLOCK)  # None: the checkpoint is not quantised
    ue8m0_scales: bool = True  # scales are powers of two

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def softmax_scale(self) -> float:
        """head_dim^-0.5, times YaRN's mscale squared. 0.1352337788608801 for the released model."""
        mscale = 1.0
        if self.yarn is not None and self.yarn.mscale_all_dim and self.yarn.factor > 1:
            mscale = 0.1 * self.yarn.mscale_all_dim * math.log(self.yarn.factor) + 1.0
        return self.qk_head_dim**-0.5 * mscale * mscale

    def is_dense(self, layer: int) -> bool:
        """Whether this layer's MLP is dense."""
        return layer < self.first_k_dense_replace
