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
    any_scales: bool = False,
) -> Transformer:
    """One layer with a dense MLP, the others with experts. Fewer experts and a smaller vocabulary change no sum's length.

    any_scales: of FP8, instead of powers of two as the released model has them. An accumulator of the tensor cores has 14 bits and
    fp32 has 24, so that sums of blocks with scales of powers of two are often exact, whatever their order.
    """
    config = replace(
        ModelConfig(),
        num_hidden_layers=layers,
        first_k_dense_replace=1,
        n_routed_experts=experts,
        vocab_size=vocabulary,
        ue8m0_scales=not any_scales,
    )
    model = build_model(config, precision, "auto", device, deterministic=deterministic)
    fill_synthetic(model, Plan(config))
    return model
