"""Traces: the stages of a forward pass by name, in memory and on disk. docs/conformance.md explains the stages.

On disk a trace is a directory with safetensors of the stages, and optionally a manifest.json that says where they come from.

T tokens, S = T context positions, H heads, H_i index heads, D dims of the axis in question, K selected, E experts, V vocabulary.
"""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from ..model.checkpoint.files import writing
from ..model.errors import short_repr

# values: compared as numbers. choice: sets of ids, in ascending order, then -1. bytes: records as the cache holds them.
Kind = Literal["values", "choice", "bytes"]

VERSION = "deepseek-v32 trace, version 1"


@dataclass(frozen=True)
class Stage:
    """One named result of a forward pass."""

    name: str
    axes: str
    formula: str
    kind: Kind = "values"


BEFORE = (Stage("tokens", "T", "token ids", "choice"), Stage("embedding", "T, hidden", "embed_tokens[tokens]"))
LAYER = (
    Stage("attention_norm", "T, hidden", "RMSNorm(residual of the layer before; embedding), eps rms_norm_eps"),
    Stage("q_a_proj", "T, q_lora", "attention_norm @ q_a_proj^T"),
    Stage("kv_a_proj", "T, kv_lora + rope", "attention_norm @ kv_a_proj_with_mqa^T = [latent | rope part]"),
    Stage("index_key_proj", "T, index_dim", "attention_norm @ indexer.wk^T"),
    Stage("compressed_query", "T, q_lora", "RMSNorm(q_a_proj), eps 1e-6"),
    Stage("latent", "T, kv_lora", "RMSNorm(kv_a_proj[:kv_lora]), eps 1e-6, as the cache holds it"),
    Stage("key_rope", "T, rope", "RoPE(kv_a_proj[kv_lora:]), interleaved pairs (2i, 2i + 1), as the cache holds it"),
    Stage("latent_record", "T, bytes", "the latent's cache record; in fp8 656 bytes for the released model", "bytes"),
    Stage("index_key", "T, index_dim", "RoPE(LayerNorm(index_key_proj), eps 1e-6), pairs (i, i + rope/2) of the first rope dims"),
    Stage("index_record", "T, bytes", "the index key's cache record; in fp8 128 + 4 bytes, Hadamard-transformed", "bytes"),
    Stage("query", "T, H, nope + rope", "compressed_query @ q_b_proj^T, before RoPE"),
    Stage("query_rope", "T, H, rope", "RoPE(query[nope:]), interleaved pairs"),
    Stage("index_query_proj", "T, H_i, index_dim", "compressed_query @ indexer.wq_b^T"),
    Stage("index_query", "T, H_i, index_dim", "RoPE(index_query_proj), as index_key; without the Hadamard transform"),
    Stage("index_query_codes", "T, H_i, index_dim", "in fp8: e4m3 bytes of the Hadamard transform of index_query", "bytes"),
    Stage("index_query_scales", "T, H_i", "in fp8: what index_query_codes are multiplied by"),
    Stage("index_weights", "T, H_i", "fp32 attention_norm @ indexer.weights_proj^T * H_i^-0.5 * index_dim^-0.5"),
    Stage("index_scores", "T, S", "sum_h index_weights[h] * relu(index_query[h] . index_key[s]); -inf for s > t"),
    Stage("selection", "T, K", "the index_topk positions s <= t with the largest index_scores, ascending", "choice"),
    Stage("key_nope", "T, H, nope", "latent @ kv_b_proj^T, key part of each head"),
    Stage("value", "T, H, v", "latent @ kv_b_proj^T, value part of each head"),
    Stage("attention_heads", "T, H, v", "softmax over the selection of softmax_scale * (query[:nope] . key_nope + query_rope . "
          "key_rope), @ value"),
    Stage("attention_output", "T, hidden", "attention_heads @ o_proj^T"),
    Stage("attention_residual", "T, hidden", "residual of the layer before + attention_output"),
    Stage("mlp_norm", "T, hidden", "RMSNorm(attention_residual), eps rms_norm_eps"),
    Stage("router_logits", "T, E", "fp32 mlp_norm @ gate^T"),
    Stage("router_scores", "T, E", "sigmoid(router_logits) + e_score_correction_bias"),
    Stage("router_choice", "T, k", "the k experts with the largest router_scores in the topk_group best groups", "choice"),
    Stage("router_weights", "T, k", "sigmoid(router_logits) of router_choice, divided by their sum, times routed_scaling_factor"),
    Stage("shared_expert", "T, hidden", "down(silu(gate x) * up x) of the shared expert, x = mlp_norm"),
    Stage("mlp_output", "T, hidden", "the experts' outputs weighted by router_weights + shared_expert; the MLP of a dense layer"),
    Stage("residual", "T, hidden", "attention_residual + mlp_output"),
)  # fmt: skip
AFTER = (
    Stage("final_norm", "T, hidden", "RMSNorm(residual of the last layer), eps rms_norm_eps"),
    Stage("logits", "T, V", "fp32 final_norm @ lm_head^T"),
)
MTP_BEFORE = (
    Stage("mtp_embedding_norm", "T - 1, hidden", "enorm(embedding of the next token), 0 in place of it at position 0"),
    Stage("mtp_hidden_norm", "T - 1, hidden", "hnorm(final_norm)"),
    Stage("mtp_input", "T - 1, hidden", "[mtp_embedding_norm | mtp_hidden_norm] @ eh_proj^T"),
)
MTP_AFTER = (
    Stage("mtp_norm", "T - 1, hidden", "RMSNorm(residual of the MTP layer)"),
    Stage("mtp_logits", "T - 1, V", "mtp_norm @ shared_head.head^T"),
)

STAGES = {stage.name: stage for stage in (*BEFORE, *LAYER, *AFTER, *MTP_BEFORE, *MTP_AFTER)}
MTP_NAMES = frozenset(stage.name for stage in (*MTP_BEFORE, *MTP_AFTER))
_PLACE = {name: place for place, name in enumerate(STAGES)}
_IN_LAYER = frozenset(stage.name for stage in LAYER)
_FULL = re.compile(r"layers\.(\d+)\.(\w+)")


def full_name(name: str, layer: int | None) -> str:
    """ "layers.3.latent", "logits": the name of a tensor in a trace."""
    return name if layer is None else f"layers.{layer}.{name}"


def parse_name(full: str) -> tuple[str, int | None] | None:
    """(name, layer) of a tensor of a trace; None for a name that no stage has."""
    match = _FULL.fullmatch(full)
    name, layer = (match[2], int(match[1])) if match else (full, None)
    return (name, layer) if name in STAGES and (name in _IN_LAYER) == (layer is not None) else None


def order(full: str, layers: int) -> tuple[int, ...]:
    """A key that sorts the tensors of a trace by their computation; `layers`: of the main model; the MTP layer comes after them."""
    name, layer = parse_name(full) or ("", None)
    if layer is not None:
        return (1 if layer < layers else 4, layer, _PLACE[name])
    block = 0 if name in ("tokens", "embedding") else 2 if name in ("final_norm", "logits") else 3
    return (5 if name in ("mtp_norm", "mtp_logits") else block, 0, _PLACE.get(name, -1))


MANIFEST = "manifest.json"
FILE = "trace.safetensors"
LARGE = 2**31  # bytes of stages; beyond, each layer has a file of its own


@dataclass
class Trace:
    """The stages of one sequence, each with its T tokens as the first axis."""

    stages: dict[str, torch.Tensor]  # by full name ("layers.0.latent"), in the order of computation
    manifest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = sorted(self.stages, key=lambda name: order(name, self.layers))
        self.stages = {name: self.stages[name] for name in names}

    @property
    def config(self) -> dict[str, Any]:
        """The model's configuration, under the names of ModelConfig; empty if the trace does not say."""
        config = self.manifest.get("config")
        return config if isinstance(config, dict) else {}

    @property
    def layers(self) -> int:
        """The number of the main model's layers."""
        count = self.config.get("num_hidden_layers")
        return count if isinstance(count, int) else 2**31

    @property
    def precision(self) -> str:
        return str(self.manifest.get("precision", "exact"))

    def rows(self, name: str) -> torch.Tensor:
        """bool [T]: the tokens of which the stage was computed."""
        tensor = self.stages[name]
        spans = self.manifest.get("rows", {}).get(name)
        mask = torch.full((tensor.shape[0],), spans is None)
        for first, stop in spans or ():
            mask[first:stop] = True
        return mask

    def save(self, directory: str | Path) -> None:
        """Write the trace into a new or empty directory, or over an older trace. ValueError for any other directory."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        directory = Path(directory)
        check_target(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for stale in (*directory.glob("*.safetensors"), directory / MANIFEST):
            stale.unlink(missing_ok=True)
        files: dict[str, dict[str, torch.Tensor]] = {}
        large = sum(tensor.nbytes for tensor in self.stages.values()) > LARGE
        for name, tensor in self.stages.items():
            _, layer = parse_name(name) or (name, None)
            file = f"layer-{layer:03}.safetensors" if large and layer is not None else FILE
            files.setdefault(file, {})[name] = tensor.contiguous()
        for file, tensors in files.items():
            draft = directory / f".{os.getpid()}.{file}"
            try:
                save_file(tensors, draft)
                draft.replace(directory / file)
            except SafetensorError as error:  # a full disk, among others
                raise OSError(None, str(error), str(directory / file)) from error
            finally:
                draft.unlink(missing_ok=True)
        described = {
            name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
            for name, tensor in self.stages.items()
        }
        text = json.dumps({"format": VERSION, **self.manifest, "stages": described}, indent=1) + "\n"
        with writing(directory / MANIFEST):
            (directory / MANIFEST).write_text(text, encoding="utf-8")  # the last, so that half a trace has none
        for file in files:  # the library makes them readable by their owner only
            (directory / file).chmod((directory / MANIFEST).stat().st_mode)

    @classmethod
    def load(cls, directory: str | Path) -> "Trace":
        """Read a trace. ValueError says what is wrong with the directory, its manifest or a tensor."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        directory = Path(directory)
        if not directory.is_dir():
            raise ValueError(f"trace is {short_repr(str(directory))}; expected a directory with {FILE}")
        manifest = _read_manifest(directory / MANIFEST)
        files = sorted(directory.glob("*.safetensors"))
        if not files:
            expected = f"{FILE} in it, and it has no safetensors file"
            raise ValueError(f"trace is {short_repr(str(directory))}; expected {expected}")
        stages: dict[str, torch.Tensor] = {}
        for file in files:
            try:
                tensors = load_file(file)
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{short_repr(str(file))}: {error}; expected a safetensors file") from None
            if twice := tensors.keys() & stages.keys():
                raise ValueError(f"{short_repr(str(file))}: {min(twice)} is also in another file; expected it once")
            stages |= tensors
        trace = cls(stages, manifest)
        trace.check()
        return trace

    def check(self) -> None:
        """ValueError unless the stages are known, and have as many tokens as the others. The MTP layer's stages may lack one."""
        if unknown := [name for name in self.stages if parse_name(name) is None]:
            expected = "a name of docs/conformance.md, e.g. layers.0.latent"
            raise ValueError(f"stage is {short_repr(unknown[0])}; expected {expected}")
        if not self.stages:
            raise ValueError("the trace has no stages; expected at least 1")
        scalars = [name for name, tensor in self.stages.items() if not tensor.dim() or not tensor.shape[0]]
        if scalars:
            raise ValueError(f"{scalars[0]} has shape {tuple(self.stages[scalars[0]].shape)}; expected [tokens, …]")
        tokens = max(tensor.shape[0] for tensor in self.stages.values())
        for name, tensor in self.stages.items():
            if tensor.shape[0] not in (tokens, tokens - 1):
                expected = f"{tokens}, one a token, as the other stages have"
                raise ValueError(f"{name} has {tensor.shape[0]} rows; expected {expected}")


def describe_rows(present: torch.Tensor) -> list[list[int]]:
    """bool [T] -> its spans [first, after the last]."""
    edges = torch.diff(torch.nn.functional.pad(present.int(), (1, 1))).nonzero()[:, 0].tolist()
    return [list(span) for span in zip(edges[::2], edges[1::2], strict=True)]


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, OSError) as error:
        raise ValueError(f"{short_repr(str(path))}: {error}; expected a JSON object") from None
    if not isinstance(manifest, dict) or manifest.get("format", VERSION) != VERSION:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise ValueError(f"{short_repr(str(path))}: format is {short_repr(found)}; expected {VERSION!r}")
    rows = manifest.get("rows", {})
    spans = [span for value in rows.values() for span in value] if isinstance(rows, dict) else [None]
    if not all(isinstance(span, list) and len(span) == 2 and all(type(edge) is int for edge in span) for span in spans):
        raise ValueError(f"{short_repr(str(path))}: rows is {short_repr(rows)}; expected {{stage: [[first, stop], …]}}")
    return manifest


def check_target(directory: Path) -> None:
    """Raise ValueError for a directory that holds something else than a trace."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out is {short_repr(str(directory))}; expected a directory, and this is a file")
    if not directory.parent.exists():
        raise ValueError(f"--out is {short_repr(str(directory))}; expected a directory in an existing folder")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MANIFEST).exists():
        raise ValueError(f"--out is {short_repr(str(directory))}; expected an empty directory or an older trace")
