"""Random layers as wide as the released model's: their sums are long enough that an order of summation shows in the logits."""

from dataclasses import replace

import torch

from deepseek_v32.model.config import ModelConfig, Precision
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.weights import fill_synthetic
from deepseek_v32.model.transformer import Transformer


def random_layers(
    layers: int,
    precision: Precision,
    device: torch.device,
    deterministic: bool = True,
    experts: int = 256,
    vocabulary: int = 129280,
) -> Transformer:
    """One layer with a dense MLP, the others with experts. Fewer experts and a smaller vocabulary change no sum's length."""
    config = replace(
        ModelConfig(),
        num_hidden_layers=layers,
        first_k_dense_replace=1,
        n_routed_experts=experts,
        vocab_size=vocabulary,
    )
    model = build_model(config, precision, "auto", device, deterministic=deterministic)
    fill_synthetic(model, Plan(config))
    return model
