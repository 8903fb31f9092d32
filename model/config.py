"""The model's dimensions and constants. checkpoint/config_json.py reads them from a Hugging Face ``config.json``."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from .errors import ConfigError, short_repr

Precision = Literal["exact", "bf16", "fp8"]
PRECISIONS = get_args(Precision)

FP8_BLOCK = 128  # width of an activation's scale group and of a weight's scale block


def blocks(size: int) -> int:
    """Number of 128-wide blocks that cover `size` rows or columns."""
    return -(-size // FP8_BLOCK)


@dataclass(frozen=True)
class YarnScaling:
    """YaRN context extension (arXiv 2309.00071) as DeepSeek applies it: frequencies are scaled, cos and sin are not."""

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
    # Rows and columns that share a scale. None: the checkpoint is not quantised.
    weight_block: tuple[int, int] | None = (FP8_BLOCK, FP8_BLOCK)
    ue8m0_scales: bool = True  # scales are powers of two

    def __post_init__(self) -> None:
        _check(self)

    def with_overrides(self, **overrides: Any) -> "ModelConfig":
        """Replace some fields. Raises ConfigError for unknown names and for bad values."""
        names = {field.name for field in fields(self)}
        for key in overrides:
            if key not in names:
                raise ConfigError(f"override is {key!r}; expected one of {', '.join(sorted(names))}")
        return replace(self, **overrides)

    def check_precision(self, precision: str) -> None:
        """Raise ConfigError unless this model can run in `precision`: the FP8 byte layouts fix some dimensions."""
        if precision not in PRECISIONS:
            raise ConfigError(f"precision is {precision!r}; expected one of {', '.join(PRECISIONS)}")
        if precision != "fp8":
            return
        if self.kv_lora_rank % FP8_BLOCK:
            raise _wrong(
                self, "kv_lora_rank", f"a multiple of {FP8_BLOCK} in fp8 precision (one cached scale per group)"
            )
        if self.index_head_dim != FP8_BLOCK:
            raise _wrong(
                self, "index_head_dim", f"{FP8_BLOCK} in fp8 precision (Hadamard size, one cached scale per key)"
            )

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def stored_precision(self) -> Precision:
        return "fp8" if self.weight_block is not None else "bf16"

    @property
    def softmax_scale(self) -> float:
        """head_dim^-0.5, times YaRN's mscale squared. 0.1352337788608801 for the released model."""
        mscale = 1.0
        if self.yarn is not None and self.yarn.mscale_all_dim and self.yarn.factor > 1:
            mscale = 0.1 * self.yarn.mscale_all_dim * math.log(self.yarn.factor) + 1.0
        return self.qk_head_dim**-0.5 * mscale * mscale

    def is_dense(self, layer: int) -> bool:
        """Return whether this layer has a dense MLP instead of experts. The MTP layer, after the last one, has experts."""
        return layer < min(self.first_k_dense_replace, self.num_hidden_layers)


def _wrong(config: Any, key: str, expected: str) -> ConfigError:
    """Make the one-line error about a field of `config`."""
    return ConfigError(f"{key} is {short_repr(getattr(config, key))}; expected {expected}")


# Counts that may be zero; every other integer field is a dimension and at least 1.
_MAY_BE_ZERO = {"first_k_dense_replace", "n_shared_experts", "num_nextn_predict_layers"}
_MAXIMUM = 2**31 - 1  # ids, positions and slots are int32 in the kernels


def _check(config: ModelConfig) -> None:
    """Raise ConfigError for the first field whose type or value this program cannot run."""
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type is int:
            least = 0 if field.name in _MAY_BE_ZERO else 1
            if type(value) is not int or not least <= value <= _MAXIMUM:
                raise _wrong(config, field.name, f"an integer of at least {least} and at most {_MAXIMUM}")
        elif field.type is float:
            _check_positive(config, field.name)
        elif field.type is bool and type(value) is not bool:
            raise _wrong(config, field.name, "true or false")

    if config.qk_rope_head_dim % 2:
        raise _wrong(config, "qk_rope_head_dim", "an even number (RoPE rotates pairs)")
    if config.index_head_dim < config.qk_rope_head_dim:
        raise _wrong(config, "index_head_dim", f"at least qk_rope_head_dim ({config.qk_rope_head_dim})")
    if config.n_routed_experts % config.n_group:
        raise _wrong(config, "n_group", f"a divisor of n_routed_experts ({config.n_routed_experts})")
    if config.topk_group > config.n_group:
        raise _wrong(config, "topk_group", f"at most n_group ({config.n_group})")
    kept = config.n_routed_experts // config.n_group * config.topk_group
    if config.num_experts_per_tok > kept:
        raise _wrong(config, "num_experts_per_tok", f"at most the {kept} experts of topk_group groups")
    if config.rope_theta <= 1:
        raise _wrong(config, "rope_theta", "a number above 1")
    if config.weight_block not in (None, (FP8_BLOCK, FP8_BLOCK)):
        raise _wrong(config, "weight_block", f"({FP8_BLOCK}, {FP8_BLOCK}), or None for a checkpoint without FP8")
    ids = () if config.bos_token_id is None else (config.bos_token_id,)
    _check_ids(config, "bos_token_id", ids)
    if type(config.eos_token_ids) is not tuple:
        raise _wrong(config, "eos_token_ids", "a tuple of token ids")
    _check_ids(config, "eos_token_ids", config.eos_token_ids)
    if config.yarn is not None:
        if not isinstance(config.yarn, YarnScaling):
            raise _wrong(config, "yarn", "a YarnScaling, or None")
        _check_yarn(config.yarn)


def _check_ids(config: ModelConfig, key: str, ids: tuple[int, ...]) -> None:
    if not all(type(token) is int and 0 <= token < config.vocab_size for token in ids):
        raise _wrong(config, key, f"ids within the vocabulary of {config.vocab_size}")


def _check_positive(config: Any, key: str) -> None:
    value = getattr(config, key)
    if type(value) not in (int, float) or not (0 < value < math.inf):
        raise _wrong(config, key, "a positive, finite number")


def _check_yarn(yarn: YarnScaling) -> None:
    for key in ("factor", "beta_fast", "beta_slow"):
        _check_positive(yarn, key)
    if yarn.factor < 1:
        raise _wrong(yarn, "factor", "at least 1")
    if yarn.beta_fast < yarn.beta_slow:
        raise _wrong(yarn, "beta_fast", f"at least beta_slow ({yarn.beta_slow})")
    original = yarn.original_max_position_embeddings
    if type(original) is not int or not 1 <= original <= _MAXIMUM:
        raise _wrong(yarn, "original_max_position_embeddings", f"an integer of at least 1 and at most {_MAXIMUM}")
    for key in ("mscale", "mscale_all_dim"):
        value = getattr(yarn, key)
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise _wrong(yarn, key, "a finite number of at least 0")
