"""The model that a command line asks for: its configuration, its weights, and what was resolved, in a line."""

import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ..llm import LLM

# DeepSeek's own inference configurations name the same values differently (config_671B_v3.2.json).
DEEPSEEK_NAMES = {
    "dim": "hidden_size",
    "inter_dim": "intermediate_size",
    "moe_inter_dim": "moe_intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_dense_layers": "first_k_dense_replace",
    "n_heads": "num_attention_heads",
    "n_activated_experts": "num_experts_per_tok",
    "n_expert_groups": "n_group",
    "n_limited_groups": "topk_group",
    "route_scale": "routed_scaling_factor",
}
SAME_NAMES = {
    *("vocab_size", "n_routed_experts", "n_shared_experts", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim", "index_n_heads", "index_head_dim", "index_topk", "rope_theta"),
}


def read_overrides(config: Path | None, overrides: Sequence[str] | None) -> dict[str, Any]:
    """Fields of ModelConfig that replace the checkpoint's: those of a file, then KEY=VALUE ones. ValueError if unusable."""
    from ...model.checkpoint.config_json import read_config
    from ...model.checkpoint.strict_json import parse_object

    values: dict[str, Any] = {}
    if config is not None:
        try:
            content = parse_object(config.read_bytes())
        except ValueError as error:
            raise ValueError(f"--config {str(config)!r}: {error}") from error
        if "dim" in content:
            names = DEEPSEEK_NAMES | {name: name for name in SAME_NAMES}
            values = {names[key]: value for key, value in content.items() if key in names}
        else:
            whole = read_config(config)
            values = {field.name: getattr(whole, field.name) for field in fields(whole)}
    for override in overrides or ():
        name, separator, text = override.partition("=")
        if not separator:
            raise ValueError(f"--config-override {override!r}: KEY=VALUE is wanted")
        try:
            values[name] = json.loads(text)
        except ValueError:
            raise ValueError(f"--config-override {override!r}: {text!r} is not a JSON value") from None
    return values


def load_llm(
    model: Path | None,
    *,
    device: str | None = None,
    precision: str | None = None,
    backend: str = "auto",
    config: Path | None = None,
    overrides: Sequence[str] | None = None,
    needs_text: bool = False,
    synthetic: bool = False,
    layers: int | None = None,
    **limits: Any,
) -> "LLM":
    """The model that the options ask for; says on standard error what was chosen. ValueError for what cannot be.

    synthetic: random weights, of a model with so many `layers`; without `model` it is the released one. limits: those of `LLM`.
    """
    if layers is not None and not synthetic:
        raise ValueError(f"--layers {layers} goes with --synthetic: a checkpoint has the layers that it has")
    path = model if model is not None or synthetic else demo_path()
    if path is not None and not path.is_dir() and not (synthetic and path.is_file()):
        raise ValueError(f"--model {str(path)!r}: no such directory")
    # Before the weights, which may take minutes.
    if needs_text and (path is None or Tokenizer.from_directory(path) is None):
        if path is not None and path.is_dir() and not (path / "config.json").exists():
            raise ValueError(f"--model {str(path)!r}: no checkpoint, it holds neither config.json nor tokenizer.json")
        raise ValueError(
            f"--model {str(path)!r} has no tokenizer.json: only token ids can be given to it, in a JSONL file"
        )
    from ...model.parallel.plan import Plan
    from ..distributed.launch import world_size
    from ..llm import LLM
    from .progress import progress_bar

    options: dict[str, Any] = {"device": device, "precision": precision, "backend": backend, **limits}
    changes = read_overrides(config, overrides) | ({} if layers is None else {"num_hidden_layers": layers})
    options |= {"config_overrides": changes or None, "synthetic": synthetic}
    if sys.stderr.isatty():
        with progress_bar() as progress:
            llm = LLM(path, **options, progress=progress)
    else:
        llm = LLM(path, **options)
    print(f"{'synthetic weights' if synthetic else path}: {summary(llm, backend)}", file=sys.stderr)
    if (size := world_size()) > 1:
        print(Plan(llm.config, 0, size).describe(), file=sys.stderr)
    return llm


def demo_path() -> Path:
    """The checkpoint that ships with the package. ValueError if this checkout has none."""
    from ..llm import DEMO

    if not (DEMO / "config.json").exists():
        raise ValueError("no trained demo checkpoint comes with this version: name a checkpoint directory with --model")
    return DEMO


def summary(llm: "LLM", backend: str) -> str:
    """What was resolved, in one line."""
    from ...kernels import device as hardware
    from ...kernels.registry import describe
    from ..engine.decode_graph import can_capture

    bodies: dict[str, list[str]] = {}
    for choice in describe(llm.device, backend, llm.precision):
        bodies.setdefault(choice.chosen, []).append(choice.operation)
    most = max(bodies, key=lambda body: len(bodies[body]))
    rest = "".join(f", {body} for {' '.join(names)}" for body, names in bodies.items() if body != most)
    graphs = ", decoding as CUDA graphs" if llm.limits.decode_graphs and can_capture(llm.model) else ""
    return (
        f"{hardware.describe(llm.device)}, {llm.precision} precision, {most} kernels{rest}{graphs}, "
        f"context of {llm.limits.max_model_len:,} tokens"
    )
