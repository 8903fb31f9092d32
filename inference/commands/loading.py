"""Loads the model that a command line names, and says in one line what was resolved."""

import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...model.checkpoint.config_json import read_config
from ...model.checkpoint.files import no_directory, parse_object
from ..config import EngineConfig
from ..text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ..llm import LLM

# DeepSeek's own inference configurations (config_671B_v3.2.json) have other names for these values.
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
    """Read the fields of ModelConfig that replace the checkpoint's: from the file `config`, then from KEY=VALUE texts."""
    values: dict[str, Any] = {}
    if config is not None:
        try:
            content = parse_object(config.read_bytes())
        except ValueError as error:
            raise ValueError(f"--config is {str(config)!r}: {error}") from error
        if "dim" in content:
            names = DEEPSEEK_NAMES | {name: name for name in SAME_NAMES}
            values = {names[key]: value for key, value in content.items() if key in names}
        else:
            whole = read_config(config)
            values = {field.name: getattr(whole, field.name) for field in fields(whole)}
    for override in overrides or ():
        name, separator, text = override.partition("=")
        if not separator:
            raise ValueError(f"--config-override is {override!r}; expected KEY=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            raise ValueError(f"--config-override is {override!r}; expected a JSON value after the =") from None
    return values


def load_llm(model: Path | None, chosen: EngineConfig, *, needs_text: bool = False, layers: int | None = None) -> "LLM":
    """Load a model, or the demo, and say what was resolved. needs_text: it must have a tokenizer. layers: of synthetic weights."""
    synthetic = chosen.synthetic
    if layers is not None and not synthetic:
        raise ValueError(f"--layers is {layers}; expected only together with --synthetic")
    from ..llm import DEMO

    path = model if model is not None or synthetic else DEMO
    if path is not None and not path.is_dir() and not (synthetic and path.is_file()):
        raise ValueError(f"--model: {str(path)!r} {no_directory(path)}")
    if path is not None and (path / "config.json").exists():
        read_config(path)  # refuses another architecture before its missing tokenizer is noticed
    if needs_text:  # checked before the weights are loaded, which may take minutes
        _check_tokenizer(path)
    from ...model.transformer import Transformer
    from ..llm import LLM
    from .terminal import optional_bar

    if layers is not None:
        chosen = replace(chosen, config_overrides={**(chosen.config_overrides or {}), "num_hidden_layers": layers})
    with optional_bar("Loading weights") as progress:
        llm = LLM.from_config(path, chosen, progress)
    name = "synthetic weights" if synthetic else path
    print(f"{name}: {summary(llm, chosen.backend)}", file=sys.stderr)
    if isinstance(llm.model, Transformer) and llm.model.division:
        print(llm.model.division, file=sys.stderr)
    return llm


def _check_tokenizer(path: Path | None) -> None:
    if path is not None and Tokenizer.from_directory(path) is not None:
        return
    expected = (
        "a checkpoint with tokenizer.json or an older tokenizer: without one it takes only token ids, from a JSONL file "
        "(--input-file)"
    )
    if path is not None and path.is_dir() and not (path / "config.json").exists():
        expected = "a checkpoint, but neither config.json nor tokenizer.json is there"
    raise ValueError(f"--model is {str(path)!r}; expected {expected}")


def summary(llm: "LLM", backend: str) -> str:
    """Describe device, precision, kernels and context length as they were resolved, in one line."""
    from ...kernels import device as hardware
    from ...kernels.availability import describe
    from ...model.transformer import is_deterministic
    from ..config import AUTO
    from ..engine.running.decode_graph import can_capture

    operations: dict[str, list[str]] = {}  # by the backend chosen for them
    deterministic = is_deterministic(llm.model)
    for choice in describe(llm.device, backend, llm.precision):
        operations.setdefault("batch-invariant" if deterministic else choice.chosen, []).append(choice.operation)
    most = max(operations, key=lambda name: len(operations[name]))
    rest = "".join(f", {name} for {' '.join(names)}" for name, names in operations.items() if name != most)
    graphs = ", decoding as CUDA graphs" if llm.limits.decode_graphs and can_capture(llm.model) else ""
    slots = getattr(llm.model, "expert_slots", None)
    if slots is not None:
        size = slots.count * slots.slot_bytes / 2**20
        graphs = f", {slots.count:,} of {slots.most:,} experts in memory at a time ({size:,.0f} MiB)"
    count = llm.limits.speculative_tokens
    drafts = f", speculation: {'auto' if count == AUTO else f'{count} tokens'}" if count else ""
    return (
        f"{hardware.describe(llm.device)}, {llm.precision} precision, {most} kernels{rest}{graphs}{drafts}, "
        f"{'deterministic, ' if deterministic else ''}"
        f"context of {llm.limits.max_model_len:,} tokens"
    )
