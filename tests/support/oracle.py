"""The DeepSeek-V3.2 of transformers as an independent oracle: it writes random checkpoints and computes logits in fp32."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import DeepseekV32Config, DeepseekV32ForCausalLM

from deepseek_v32.inference import LLM
from deepseek_v32.kernels.types import ExpertGroups
from deepseek_v32.model import indexer, moe

VOCAB = 64  # no more than logprobs can report alternatives, so that whole distributions can be compared
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
# Under fp32 rounding a selection may go either way if its last winner and first loser are closer than this (relatively).
CLOSE_CALL = 1e-5

# 16 index heads: with few, ReLU leaves exact ties at zero, and the library's own prefill and decode disagree.
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 160,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 24,
    "max_position_embeddings": 512,
    "routed_scaling_factor": 2.5,
}


@dataclass(frozen=True)
class Case:
    """A random model (configuration and seed) and the prompt lengths to try it on."""

    id: str
    seed: int
    lengths: tuple[int, ...] = (72,)
    yarn: bool = True
    overrides: dict[str, Any] = field(default_factory=dict)


def make_oracle(case: Case, directory: Path) -> DeepseekV32ForCausalLM:
    """The library's model with random weights of sensible size, also saved to `directory` in the Hugging Face layout."""
    rope = {"rope_theta": 10000.0, **(YARN if case.yarn else {"rope_type": "default"})}
    config = DeepseekV32Config(**{**SMALL, **case.overrides}, rope_parameters=rope)
    generator = torch.Generator().manual_seed(case.seed)
    model = DeepseekV32ForCausalLM(config).float().eval()
    randomize(model.state_dict(), generator)
    model.save_pretrained(directory)
    return model


@torch.no_grad()
def randomize(weights: dict[str, torch.Tensor], generator: torch.Generator) -> None:
    """Random values of sensible size in place: matrices keep the size of what they multiply, norms lie around their own values."""
    for name, tensor in weights.items():
        if name.endswith("e_score_correction_bias"):
            tensor.normal_(0, 0.2, generator=generator)
        elif tensor.dim() > 1:
            tensor.normal_(0, tensor.shape[-1] ** -0.5, generator=generator)
        else:
            tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.1)


def oracle_logits(model: DeepseekV32ForCausalLM, tokens: list[int]) -> torch.Tensor:
    """fp32 [T, vocab]."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0].float()
    return logits


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest of the tokens' relative L2 errors."""
    return float(((got - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


def random_tokens(length: int, seed: int) -> list[int]:
    tokens: list[int] = torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return tokens


@contextmanager
def recording_closest_call() -> Iterator[list[float]]:
    """Collects the smallest relative margin by which a token or an expert was selected, in a list of one number."""
    closest = [float("inf")]
    names: Any = indexer
    select_topk, select_topk_slots, forward = names.select_topk, names.select_topk_slots, moe.Router.forward

    def watch(scores: torch.Tensor, kept: int) -> None:
        if 0 < kept < scores.shape[-1]:
            best = scores.topk(kept + 1).values
            margin = (best[..., -2] - best[..., -1]) / scores.nan_to_num(0, 0, 0).abs().amax(-1)
            finite = margin[margin.isfinite()]
            closest[0] = min([closest[0], *finite.tolist()])

    def watch_rows(logits: torch.Tensor, ends: torch.Tensor, k: int) -> None:
        columns = torch.arange(logits.shape[1])
        watch(logits.masked_fill(columns >= ends[:, None], -torch.inf), k)

    def select(
        logits: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, k: int, *rest: Any, **options: Any
    ) -> torch.Tensor:
        watch_rows(logits, ends, k)
        return select_topk(logits, starts, ends, k, *rest, **options)

    def select_slots(
        logits: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, k: int, *rest: Any, **options: Any
    ) -> torch.Tensor:
        watch_rows(logits, ends, k)
        return select_topk_slots(logits, starts, ends, k, *rest, **options)

    def route(self: moe.Router, x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ExpertGroups]:
        config = self.config
        choice = (x @ self.weight.T).sigmoid() + self.e_score_correction_bias
        groups = choice.unflatten(1, (config.n_group, -1)).topk(min(2, choice.shape[1] // config.n_group)).values.sum(2)
        watch(groups, config.topk_group)
        watch(choice, config.num_experts_per_tok)
        return forward(self, x, *rest)

    with (
        patch.object(indexer, "select_topk", select),
        patch.object(indexer, "select_topk_slots", select_slots),
        patch.object(moe.Router, "forward", route),
    ):
        yield closest


def decisive_case(
    case: Case, directory: Path, run: Callable[[LLM], Any], **limits: Any
) -> tuple[DeepseekV32ForCausalLM, LLM]:
    """An oracle and our LLM with the same weights, for the first seed with which `run` has no selection that is too close."""
    for attempt in range(20):
        path = directory / str(attempt)
        oracle = make_oracle(replace(case, seed=case.seed + 1000 * attempt), path)
        with recording_closest_call() as closest:
            run(LLM(path, device="cpu", precision="exact", **limits))
        if closest[0] > CLOSE_CALL:
            return oracle, LLM(path, device="cpu", precision="exact", **limits)
    raise AssertionError(f"{case.id}: twenty seeds, and each has a choice closer than {CLOSE_CALL}")
