"""Traces in memory and on disk: safetensors of the stages, and a manifest.json that says where they come from.

Any program can read and write them: a directory with tensors of the names and conventions of docs/conformance.md is a trace. The
manifest is optional; without one, the comparison knows less about what a difference means.
"""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...model.errors import short_repr
from .stages import VERSION, order, parse_name

MANIFEST = "manifest.json"
FILE = "trace.safetensors"
LARGE = 2**31  # bytes of stages; beyond, each layer has a file of its own


@dataclass
class Trace:
    """The stages of one sequence, each with its T tokens as the first axis."""

    stages: dict[str, torch.Tensor]  # by full name ("layers.0.latent"), in the order of computation
    manifest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stages = {
            name: self.stages[name] for name in sorted(self.stages, key=lambda name: order(name, self.layers))
        }

    @property
    def config(self) -> dict[str, Any]:
        """The model's configuration, under the names of ModelConfig; empty if the trace does not say."""
        config = self.manifest.get("config")
        return config if isinstance(config, dict) else {}

    @property
    def layers(self) -> int:
        """Of the main model."""
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
            finally:
                draft.unlink(missing_ok=True)
        described = {
            name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
            for name, tensor in self.stages.items()
        }
        text = json.dumps({"format": VERSION, **self.manifest, "stages": described}, indent=1) + "\n"
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
            raise ValueError(
                f"trace is {short_repr(str(directory))}; expected {FILE} in it, and it has no safetensors file"
            )
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
        """ValueError unless the stages are known, and have as many tokens as the others. Those of the MTP layer may lack one."""
        if unknown := [name for name in self.stages if parse_name(name) is None]:
            raise ValueError(
                f"stage is {short_repr(unknown[0])}; expected a name of docs/conformance.md, e.g. layers.0.latent"
            )
        if not self.stages:
            raise ValueError("the trace has no stages; expected at least 1")
        scalars = [name for name, tensor in self.stages.items() if not tensor.dim() or not tensor.shape[0]]
        if scalars:
            raise ValueError(f"{scalars[0]} has shape {tuple(self.stages[scalars[0]].shape)}; expected [tokens, …]")
        tokens = max(tensor.shape[0] for tensor in self.stages.values())
        for name, tensor in self.stages.items():
            if tensor.shape[0] not in (tokens, tokens - 1):
                raise ValueError(
                    f"{name} has {tensor.shape[0]} rows; expected {tokens}, one a token, as the other stages have"
                )


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
    """ValueError for a directory that holds something else than a trace."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out is {short_repr(str(directory))}; expected a directory, and this is a file")
    if not directory.parent.exists():
        raise ValueError(f"--out is {short_repr(str(directory))}; expected a directory in an existing folder")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MANIFEST).exists():
        raise ValueError(f"--out is {short_repr(str(directory))}; expected an empty directory or an older trace")


def jsonable(value: Any) -> Any:
    """A configuration value for a manifest."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
