#!/usr/bin/env python
"""Traces transformers' deepseek_v32 in fp32, under the names of docs/conformance.md, for `deepseek-v32 compare`.

    python scripts/trace_transformers.py --model WEIGHTS --tokens ids.json --out theirs
    deepseek-v32 trace --model WEIGHTS --tokens ids.json --precision exact --out ours
    deepseek-v32 compare theirs ours

It needs transformers, torch and safetensors, and nothing of this project: it is an example of how to dump another implementation.
Weights in FP8 are dequantised first. transformers has no MTP layer and no FP8 arithmetic.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import DeepseekV32ForCausalLM
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as modeling

Stages = dict[str, torch.Tensor]


class Recorder:
    """Hooks on the modules, and around the functions that rotate and score."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model
        self.config: Any = model.config
        self.stages: Stages = {}
        self.layer = 0  # that is being computed
        self.hooks = ExitStack()

    def add(self, name: str, tensor: torch.Tensor, layer: bool = True) -> None:
        """tensor [T, …]."""
        tensor = tensor.detach()
        full = f"layers.{self.layer}.{name}" if layer else name
        self.stages[full] = tensor.float().clone() if tensor.is_floating_point() else tensor.int()

    def output(self, module: nn.Module, name: str, heads: int = 0, layer: bool = True) -> None:
        """Record a module's output; heads: the last axis is [heads, D]."""

        def hook(_: nn.Module, __: Any, out: Any) -> None:
            out = out[0] if isinstance(out, tuple) else out
            out = out.reshape(-1, out.shape[-1])
            self.add(name, out.unflatten(-1, (heads, -1)) if heads else out, layer)

        self.hooks.callback(module.register_forward_hook(hook).remove)

    def input(self, module: nn.Module, name: str, heads: int = 0) -> None:
        def hook(_: nn.Module, given: Any) -> None:
            rows = given[0].reshape(-1, given[0].shape[-1])
            self.add(name, rows.unflatten(-1, (heads, -1)) if heads else rows)

        self.hooks.callback(module.register_forward_pre_hook(hook).remove)

    def attach(self) -> None:
        inner, config = self.model.model, self.config
        self.output(inner.embed_tokens, "embedding", layer=False)
        for number, layer in enumerate(inner.layers):
            self.hooks.callback(layer.register_forward_pre_hook(self._enters(number)).remove)
            attention, indexer = layer.self_attn, layer.self_attn.indexer
            self.output(layer.input_layernorm, "attention_norm")
            self.output(attention.q_a_proj, "q_a_proj")
            self.output(attention.kv_a_proj_with_mqa, "kv_a_proj")
            self.output(attention.q_a_layernorm, "compressed_query")
            self.output(attention.kv_a_layernorm, "latent")
            self.output(attention.q_b_proj, "query", config.num_attention_heads)
            self.output(attention.kv_b_proj, "key_value", config.num_attention_heads)
            self.output(indexer.wk, "index_key_proj")
            self.output(indexer.k_norm, "normed_index_key")
            self.output(indexer.wq_b, "index_query_proj", config.index_n_heads)
            self.output(indexer.weights_proj, "index_weights")
            self.output(indexer, "selection")
            self.input(attention.o_proj, "attention_heads", config.num_attention_heads)
            self.output(attention, "attention_output")
            self.input(layer.post_attention_layernorm, "attention_residual")
            self.output(layer.post_attention_layernorm, "mlp_norm")
            if hasattr(layer.mlp, "gate"):
                self.hooks.callback(layer.mlp.gate.register_forward_hook(self._routed).remove)
                self.output(layer.mlp.shared_experts, "shared_expert")
            self.output(layer.mlp, "mlp_output")
            self.output(layer, "residual")
        self.output(inner.norm, "final_norm", layer=False)
        self.output(self.model.lm_head, "logits", layer=False)

    def _enters(self, number: int) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.layer = number

        return hook

    def _routed(self, gate: Any, _: Any, out: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
        logits, weights, experts = out
        chosen, by = experts.sort(1)
        self.add("router_logits", logits)
        self.add("router_scores", logits.float().sigmoid() + gate.e_score_correction_bias)
        self.add("router_choice", chosen)
        self.add("router_weights", weights.gather(1, by))

    @contextmanager
    def functions(self) -> Iterator[None]:
        """Around the functions of the library that give what no module does."""
        rotate, rotate_index = modeling.apply_rotary_pos_emb_interleave, modeling.apply_rotary_pos_emb
        relu = torch.nn.functional.relu

        def interleaved(q: torch.Tensor, k: torch.Tensor, *rest: Any, **named: Any) -> Any:
            out = rotate(q, k, *rest, **named)  # [1, H, T, R] with the pairs (2i, 2i + 1) moved to (i, i + R/2)
            for name, x in zip(("query_rope", "key_rope"), out, strict=True):
                paired = torch.stack(x.chunk(2, -1), -1).flatten(-2)[0].transpose(0, 1)
                self.add(name, paired if name == "query_rope" else paired[:, 0])
            return out

        def half_split(q: torch.Tensor, k: torch.Tensor, *rest: Any, **named: Any) -> Any:
            out = rotate_index(q, k, *rest, **named)
            self.rotated = out
            return out

        def scores(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
            self.products: torch.Tensor = relu(x, *rest, **named)  # [1, T, H_i, S], times D^-0.5
            return self.products

        with ExitStack() as stack:
            stack.enter_context(patch.object(modeling, "apply_rotary_pos_emb_interleave", interleaved))
            stack.enter_context(patch.object(modeling, "apply_rotary_pos_emb", half_split))
            stack.enter_context(patch.object(torch.nn.functional, "relu", scores))
            for layer in self.model.model.layers:
                hook = layer.self_attn.indexer.register_forward_hook(self._indexed)
                stack.callback(hook.remove)
            yield

    def _indexed(self, indexer: Any, _: Any, __: Any) -> None:
        """Complete the indexer's stages: this hook runs after its modules' hooks."""
        prefix, width = f"layers.{self.layer}.", self.config.qk_rope_head_dim
        query, key = (x.detach()[0].float() for x in self.rotated)
        plain = self.stages[prefix + "index_query_proj"]
        self.add("index_query", torch.cat((query, plain[..., width:]), -1))
        normed = self.stages.pop(prefix + "normed_index_key")
        self.add("index_key", torch.cat((key[:, 0], normed[..., width:]), -1))
        weights = self.stages[prefix + "index_weights"] * indexer.n_heads**-0.5
        found = torch.einsum("ths,th->ts", self.products[0].float(), weights)
        later = torch.ones_like(found, dtype=torch.bool).triu(1)
        self.add("index_scores", found.masked_fill(later, -torch.inf))
        self.stages[prefix + "index_weights"] = weights * indexer.head_dim**-0.5

    def finish(self, tokens: list[int]) -> Stages:
        """Selections in ascending order without the future, and each head's keys and values."""
        self.stages["tokens"] = torch.tensor(tokens, dtype=torch.int32)
        for name in list(self.stages):
            if name.endswith("selection"):
                chosen = self.stages[name].long()
                none = len(tokens)
                chosen = torch.where(chosen > torch.arange(none)[:, None], none, chosen).sort(1).values
                self.stages[name] = torch.where(chosen == none, -1, chosen).int()
            elif name.endswith("key_value"):
                keys, values = self.stages.pop(name).split((self.config.qk_nope_head_dim, self.config.v_head_dim), -1)
                self.stages[name.replace("key_value", "key_nope")] = keys.contiguous()
                self.stages[name.replace("key_value", "value")] = values.contiguous()
        return self.stages


@torch.inference_mode()
def trace(model: nn.Module, tokens: list[int]) -> Stages:
    """Every stage of one pass over the tokens."""
    recorder = Recorder(model)
    with recorder.hooks, recorder.functions():
        recorder.attach()
        recorder.model(torch.tensor([tokens]), use_cache=False)
        return recorder.finish(tokens)


def load(directory: Path, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model in fp32 or bf16. FP8 weights are multiplied by their scales, in a temporary copy of the checkpoint."""
    config = json.loads((directory / "config.json").read_text())
    if config.pop("quantization_config", None) is None:
        return DeepseekV32ForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager").eval()
    mtp = f"model.layers.{config['num_hidden_layers']}."
    with tempfile.TemporaryDirectory() as copy:
        stored = {name: t for file in sorted(directory.glob("*.safetensors")) for name, t in load_file(file).items()}
        exact = {}
        for name, tensor in stored.items():
            if name.startswith(mtp) or name.endswith("_scale_inv"):
                continue
            tensor = tensor.float()
            if (scale := stored.get(f"{name}_scale_inv")) is not None:
                spread = scale.repeat_interleave(128, 0)[: len(tensor)].repeat_interleave(128, 1)
                tensor = tensor * spread[:, : tensor.shape[1]]
            exact[name] = tensor
        save_file(exact, Path(copy, "model.safetensors"), metadata={"format": "pt"})
        Path(copy, "config.json").write_text(json.dumps(config))
        return DeepseekV32ForCausalLM.from_pretrained(copy, dtype=dtype, attn_implementation="eager").eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory in the Hugging Face layout")
    parser.add_argument("--tokens", type=Path, required=True, help="JSON array of token ids")
    parser.add_argument("--out", type=Path, required=True, help="directory for the trace")
    arguments = parser.parse_args()
    try:
        tokens = json.loads(arguments.tokens.read_text())
    except ValueError:
        tokens = None
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
        parser.error(f"--tokens is {str(arguments.tokens)!r}; expected a file with a JSON array of token ids")
    if not (arguments.model / "config.json").is_file():
        parser.error(f"--model is {str(arguments.model)!r}; expected a directory with config.json")
    stages = trace(load(arguments.model), tokens)
    arguments.out.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in stages.items()}, arguments.out / "trace.safetensors")
    (arguments.out / "manifest.json").write_text(json.dumps({"precision": "exact", "source": "transformers"}) + "\n")
    print(f"{arguments.out}: {len(stages)} stages of {len(tokens)} tokens")


if __name__ == "__main__":
    main()
