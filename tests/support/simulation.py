"""The model in fp8 precision, stage by stage, from its published description: numpy float64 between explicit roundings.

What is rounded where: norms, projections and rotations end in bf16; every projection quantises its input in groups of 128;
the caches hold what their bytes can. Nothing here calls the program under test.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from deepseek_v32.model.config import ModelConfig
from support import caches, e4m3
from support.attention import attend
from support.caches import to_bf16
from support.rope import rotate_half_split, rotate_interleaved, yarn_frequencies

Array = np.ndarray


def random_parameters(model: torch.nn.Module, seed: int) -> None:
    """Fill a model: unit-variance projections from random codes under scales that are no powers of two."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        uniform = torch.rand(parameter.shape, generator=generator)
        if parameter.dtype == torch.float8_e4m3fn:
            value = 32 * noise
        elif name.endswith("_scale_inv"):
            # a weight's last axis is at most 128 times its scale's; half a block more or less does not matter here
            value = (0.5 + uniform) / 32 / math.sqrt(128 * parameter.shape[-1])
        elif name.endswith("bias"):
            value = 0.2 * noise
        elif "norm" in name:
            value = 0.5 + uniform
        else:
            value = noise if "embed" in name else noise / math.sqrt(parameter.shape[-1])
        parameter.data.copy_(value)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return to_bf16(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight)


def hadamard(x: Array) -> Array:
    """The rotation in bf16 steps, as the deployed model computes it between its kernels."""
    signs = [[(-1.0) ** (i & j).bit_count() for j in range(128)] for i in range(128)]
    return to_bf16(to_bf16(x) @ np.array(signs) * 128**-0.5)


@dataclass(frozen=True)
class Latents:
    """The entries of S tokens in one layer's two caches."""

    codes: Array  # [S, 512] uint8
    scales: Array  # [S, 4] fp32
    rope: Array  # [S, 64]
    key_codes: Array  # [S, 128] uint8
    key_scales: Array  # [S] fp32


@dataclass(frozen=True)
class Queries:
    """The queries of S tokens in one layer: for the indexer and for attention over the latents."""

    index: Array  # [S, Hi, 128], as read back from e4m3 with its scale
    weights: Array  # [S, Hi]
    absorbed: Array  # [S, H, 576]


class Simulation:
    """Computes one sequence, layer by layer. Every method takes all S tokens, at positions 0 to S - 1."""

    def __init__(self, config: ModelConfig, model: torch.nn.Module) -> None:
        self.config = config
        self.parameters = {
            name: e4m3.codes_of(p.data) if p.dtype == torch.float8_e4m3fn else p.data.double().numpy()
            for name, p in model.named_parameters()
        }
        yarn = config.yarn
        assert yarn is not None
        mscale = 0.1 * yarn.mscale_all_dim * math.log(yarn.factor) + 1
        self.softmax_scale = (config.qk_nope_head_dim + config.qk_rope_head_dim) ** -0.5 * mscale**2
        self.frequencies = yarn_frequencies(
            config.qk_rope_head_dim,
            config.rope_theta,
            yarn.factor,
            yarn.original_max_position_embeddings,
            yarn.beta_fast,
            yarn.beta_slow,
        )

    def angles(self, count: int) -> tuple[Array, Array]:
        angles = np.arange(count)[:, None] * self.frequencies
        return np.cos(angles), np.sin(angles)

    def product(self, x: Array, codes: Array, scale: Array, parts: int = 1) -> Array:
        """x, quantised, times a weight whose `parts` have their own scale blocks -> bf16."""
        rows, columns = len(codes) // parts, codes.shape[1]
        blocks = len(scale) // parts
        weights = [
            e4m3.VALUES[codes[i * rows : (i + 1) * rows]]
            * scale[i * blocks : (i + 1) * blocks].repeat(128, 0)[:rows].repeat(128, 1)[:, :columns]
            for i in range(parts)
        ]
        read_back = e4m3.dequantize(*e4m3.quantize(x.astype(np.float32)))
        return to_bf16(read_back @ np.concatenate(weights).T)

    def linear(self, name: str, x: Array, parts: int = 1) -> Array:
        return self.product(x, self.parameters[name + ".weight"], self.parameters[name + ".weight_scale_inv"], parts)

    def norm(self, name: str, x: Array) -> Array:
        return rms_norm(x, self.parameters[name + ".weight"], self.config.rms_norm_eps)

    def cached(self, layer: int, h: Array) -> Latents:
        """The cache entries of tokens with hidden states h [S, D]."""
        prefix = f"layers.{layer}."
        cos, sin = self.angles(len(h))
        x = self.norm(prefix + "input_layernorm", h)
        kv = self.linear(prefix + "self_attn.kv_a_proj_with_mqa", x)
        codes, scales = e4m3.quantize(self.norm(prefix + "self_attn.kv_a_layernorm", kv[:, :512]).astype(np.float32))
        rope = to_bf16(rotate_interleaved(kv[:, 512:], cos, sin))
        key = self.linear(prefix + "self_attn.indexer.wk", x)
        key = (key - key.mean(1, keepdims=True)) / np.sqrt(key.var(1, keepdims=True) + 1e-6)
        norm = prefix + "self_attn.indexer.k_norm."
        key = to_bf16(key * self.parameters[norm + "weight"] + self.parameters[norm + "bias"])
        key = np.concatenate([rotate_half_split(key[:, :64], cos, sin), key[:, 64:]], axis=1)
        key_codes, key_scales = e4m3.quantize(hadamard(key).astype(np.float32))
        return Latents(codes, scales, rope, key_codes, key_scales[:, 0])

    def queries(self, layer: int, h: Array) -> Queries:
        config, prefix, count = self.config, f"layers.{layer}.self_attn.", len(h)
        cos, sin = (part[:, None] for part in self.angles(count))
        x = self.norm(f"layers.{layer}.input_layernorm", h)
        qr = self.norm(prefix + "q_a_layernorm", self.linear(prefix + "q_a_proj", x))
        nope = config.qk_nope_head_dim
        q = self.linear(prefix + "q_b_proj", qr).reshape(count, config.num_attention_heads, -1)
        up_projection = self.parameters[prefix + "kv_b_proj.weight"].reshape(config.num_attention_heads, -1, 512)
        latent = np.einsum("shn,hnl->shl", q[..., :nope], up_projection[:, :nope])
        rope = to_bf16(rotate_interleaved(q[..., nope:], cos, sin))
        index = self.linear(prefix + "indexer.wq_b", qr).reshape(count, config.index_n_heads, 128)
        index = np.concatenate([rotate_half_split(index[..., :64], cos, sin), index[..., 64:]], axis=-1)
        read_back = e4m3.dequantize(*e4m3.quantize(hadamard(index).astype(np.float32).reshape(-1, 128)))
        weights = x @ self.parameters[prefix + "indexer.weights_proj.weight"].T
        weights *= config.index_n_heads**-0.5 * 128**-0.5
        return Queries(read_back.reshape(index.shape), weights, np.concatenate([latent, rope], axis=-1))

    def scores(self, queries: Queries, held: Latents, token: int) -> Array:
        """Index scores of one token against the tokens up to itself, from keys as the cache stores them."""
        keys = e4m3.VALUES[held.key_codes[: token + 1]] * held.key_scales[: token + 1, None]
        return np.maximum(keys @ queries.index[token].T, 0) @ queries.weights[token]

    def attended(self, layer: int, queries: Queries, held: Latents, selected: list[list[int]]) -> Array:
        """Each head's values for the selected tokens, latents read back from the cache -> [S, H * v]."""
        config = self.config
        rows = np.concatenate([e4m3.dequantize(held.codes, held.scales), held.rope], axis=1)
        up_projection = self.parameters[f"layers.{layer}.self_attn.kv_b_proj.weight"]
        values = up_projection.reshape(config.num_attention_heads, -1, 512)[:, config.qk_nope_head_dim :]
        out = [
            attend(queries.absorbed[t], rows[chosen], self.softmax_scale, 512)[0] for t, chosen in enumerate(selected)
        ]
        return to_bf16(np.einsum("shl,hvl->shv", np.stack(out), values).reshape(len(out), -1))

    def mlp(self, layer: int, h: Array) -> Array:
        """The second half of a layer without its residual, h [S, D] after attention -> [S, D]."""
        prefix = f"layers.{layer}."
        x = self.norm(prefix + "post_attention_layernorm", h)
        if layer < self.config.first_k_dense_replace:
            return self.gated(prefix + "mlp", x)
        experts, weights = self.route(layer, x)
        out = np.zeros_like(x)
        stacked = {name: self.parameters[f"{prefix}mlp.experts.{name}"] for name in ("gate_up_proj", "down_proj")}
        scales = {name: self.parameters[f"{prefix}mlp.experts.{name}_scale_inv"] for name in stacked}
        for expert in range(self.config.n_routed_experts):
            rows = [t for t in range(len(x)) if expert in experts[t]]
            if not rows:
                continue
            gate_up = self.product(x[rows], stacked["gate_up_proj"][expert], scales["gate_up_proj"][expert], 2)
            down = self.product(self.swiglu(gate_up), stacked["down_proj"][expert], scales["down_proj"][expert])
            for t, row in zip(rows, down, strict=True):
                out[t] += weights[t][experts[t].index(expert)] * row
        return to_bf16(out + self.gated(prefix + "mlp.shared_experts", x))

    @staticmethod
    def swiglu(gate_up: Array) -> Array:
        gate, up = np.split(gate_up, 2, axis=1)
        return to_bf16(gate * sigmoid(gate) * up)

    def gated(self, name: str, x: Array) -> Array:
        return self.linear(name + ".down_proj", self.swiglu(self.linear(name + ".gate_up_proj", x, 2)))

    def route(self, layer: int, x: Array) -> tuple[list[list[int]], list[list[float]]]:
        """Experts and their weights, one token at a time."""
        config, prefix = self.config, f"layers.{layer}.mlp.gate."
        size = config.n_routed_experts // config.n_group
        experts, weights = [], []
        for row in x:
            score = sigmoid(self.parameters[prefix + "weight"] @ row)
            biased = score + self.parameters[prefix + "e_score_correction_bias"]
            groups = [sum(sorted(biased[g * size : (g + 1) * size])[-2:]) for g in range(config.n_group)]
            kept = sorted(range(config.n_group), key=lambda g: -groups[g])[: config.topk_group]
            allowed = [e for e in range(config.n_routed_experts) if e // size in kept]
            best = sorted(allowed, key=lambda e: -biased[e])[: config.num_experts_per_tok]
            total = sum(score[e] for e in best) + 1e-20 if config.norm_topk_prob else 1.0
            experts.append(best)
            weights.append([score[e] / total * config.routed_scaling_factor for e in best])
        return experts, weights

    def head(self, h: Array) -> Array:
        return self.norm("norm", h) @ self.parameters["lm_head.weight"].T


def read_caches(latent: torch.Tensor, index: torch.Tensor, slots: list[int]) -> Latents:
    """A sequence's entries, decoded from the bytes of both caches by the published offsets."""
    records = latent.view(-1, caches.LATENT_RECORD)[slots].numpy()
    flat = index.view(-1).numpy()
    keys = np.stack([flat[caches.key_offset(slot) :][:128] for slot in slots])
    key_scales = np.concatenate([flat[caches.scale_offset(slot) :][:4].view("<f4") for slot in slots])
    rope = torch.from_numpy(records[:, 528:].copy()).view(torch.bfloat16).double().numpy()
    return Latents(records[:, :512].copy(), records[:, 512:528].copy().view("<f4"), rope, keys, key_scales)
