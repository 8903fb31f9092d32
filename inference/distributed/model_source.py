"""Which model to load and how to run it: resolved on rank 0, the same on every rank."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from ...kernels.availability import check_backend, not_deterministic
from ...kernels.device import check_device
from ...kernels.errors import ArgumentError
from ...model.checkpoint.config_json import parse_config, read_config
from ...model.checkpoint.load import load_model
from ...model.checkpoint.locate import has_mtp_layer
from ...model.checkpoint.manifest import Progress
from ...model.checkpoint.safetensors import is_plain
from ...model.config import ModelConfig, Precision, YarnScaling
from ...model.mtp import MTPTables
from ...model.parallel.collectives import Ranks
from ...model.parallel.plan import Plan
from ...model.parallel.shard import build_model, divide_sequences
from ...model.synthetic.weights import fill_synthetic
from ...model.transformer import Transformer
from ..config import AUTO, EngineConfig, check_drafts
from ..engine.sizing import has_room_for_heads


@dataclass(frozen=True)
class ModelSource:
    """A model's configuration and weights, with the precision, kernels and device that run it."""

    config: ModelConfig
    directory: Path | None  # of the checkpoint; None: synthetic weights
    precision: Precision
    backend: str
    device: str  # "cuda" stands for each rank's own GPU
    seed: int = 0  # of synthetic weights
    verify_hashes: bool = True  # against the checkpoint's manifest
    mtp: bool = False  # with the MTP layer, for speculative decoding
    deterministic: bool = False  # batch-invariant arithmetic (docs/determinism.md)
    offload: bool = False  # the routed experts stay in the checkpoint's files
    whole_attention: bool = False  # on each of several ranks: see Plan
    divides_sequences: bool = False  # ranks attend each for their own sequences (model/parallel/rows.py)

    @classmethod
    def resolve(cls, model: str | Path | Mapping[str, Any], chosen: EngineConfig, ranks: int = 1) -> "ModelSource":
        """Fill in this machine's defaults. model: a checkpoint; for synthetic weights also a config.json, or its content."""
        backend, precision, synthetic = chosen.backend, chosen.precision, chosen.synthetic
        if isinstance(model, Mapping) and not synthetic:
            raise ArgumentError("model", "a configuration without weights", "a checkpoint directory, or synthetic=True")
        config = parse_config(dict(model)) if isinstance(model, Mapping) else read_config(model)
        config = config.with_overrides(**(chosen.config_overrides or {}))
        device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
        if ranks > 1 and ":" in device:
            raise ArgumentError("device", f"{device!r}", f"cuda or cpu: each of the {ranks} ranks has a GPU of its own")
        check_device(device)
        check_backend(backend, device)
        precision = precision or ("exact" if torch.device(device).type == "cpu" else config.stored_precision)
        if chosen.deterministic and (reason := not_deterministic(torch.device(device), precision)) is not None:
            found = f"True in {precision} precision on {torch.device(device)}"
            raise ArgumentError("deterministic", found, f"a CPU, or fp8 or bf16 on a Hopper GPU: {reason}")
        directory = None if synthetic or isinstance(model, Mapping) else Path(model)
        options = {"verify_hashes": chosen.verify_hashes, "deterministic": chosen.deterministic}
        options["offload"] = chosen.offload is not None
        if chosen.attention == "data":
            if ranks == 1:
                expected = "None on one rank: it divides sequences among several (--tensor-parallel-size)"
                raise ArgumentError("attention", "'data'", expected)
            if directory is not None and not is_plain(directory):
                expected = "None for a checkpoint converted for ranks: each file has only a part of the heads"
                raise ArgumentError("attention", "'data'", expected)
            options["whole_attention"] = options["divides_sequences"] = True
        return cls(config, directory, precision, backend, device, **options)

    def with_drafts(self, value: int | Literal["auto"]) -> tuple["ModelSource", int]:
        """This source, with the MTP layer if it is to guess tokens, and Limits.speculative_tokens. ArgumentError for others."""
        config, here = self.config, self.directory
        check_drafts(value)
        # With offloaded experts, a step with drafts reads more experts than its tokens save, and has no graphs (docs/offload.md).
        # Steps of many sequences, which `divides_sequences` is for, gain nothing by drafts.
        if value == 0 or (value == "auto" and (here is None or self.offload or self.divides_sequences)):
            return self, 0
        if config.num_nextn_predict_layers > 0 if here is None else has_mtp_layer(here, config):
            return replace(self, mtp=True), AUTO if value == "auto" else value
        if value == "auto":
            return self, 0
        layer = f"model.layers.{config.num_hidden_layers}"
        expected = f"0 or 'auto': the checkpoint has no MTP layer ({layer}) that could guess tokens"
        raise ArgumentError("speculative_tokens", value, expected)

    def load(self, device: str, ranks: Ranks | None, progress: Progress | None = None) -> Transformer:
        """Load the model, or this rank's shard of it. The caller has called `check_fits`. ValueError for a damaged checkpoint."""
        if self.directory is not None:
            arguments = (self.directory, self.precision, self.backend, device, progress, ranks)
            options = self.verify_hashes, self.mtp, self.deterministic, self.config, self.offload, self.whole_attention
            model = load_model(*arguments, *options)
        else:
            self.config.check_precision(self.precision)
            mtp = MTPTables() if self.mtp else None  # as in the released checkpoint, it has no tables of its own
            parts = (ranks, mtp, self.deterministic, False, self.whole_attention)
            model = build_model(self.config, self.precision, self.backend, device, *parts)
            rank, size = (ranks.rank, ranks.size) if ranks else (0, 1)
            fill_synthetic(model, Plan(self.config, rank, size, mtp, self.whole_attention), self.seed)
        if self.divides_sequences:
            assert ranks is not None
            plan = Plan(self.config, ranks.rank, ranks.size, whole_attention=True)
            divide_sequences(model, plan, ranks)
        return model

    def with_whole_attention(self, device: str, ranks: int, chosen: EngineConfig) -> "ModelSource":
        """This source, with all heads' weights on every rank if prompts are to be divided by tokens and there is room for them."""
        if self.divides_sequences:
            return self
        has_all = self.directory is None or is_plain(self.directory)  # a converted file has only its rank's heads
        sizes = (self.config, self.precision, device, ranks, self.mtp, self.offload, chosen)
        return replace(self, whole_attention=has_all and not self.deterministic and has_room_for_heads(*sizes))

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the message to the other ranks."""
        directory = None if self.directory is None else str(self.directory.resolve())
        return asdict(self) | {"directory": directory}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ModelSource":
        """The source that `to_json` was called on."""
        directory = None if values["directory"] is None else Path(values["directory"])
        config, yarn, block = values["config"], values["config"]["yarn"], values["config"]["weight_block"]
        config |= {"yarn": yarn and YarnScaling(**yarn), "weight_block": block and tuple(block)}
        config["eos_token_ids"] = tuple(config["eos_token_ids"])
        return cls(**values | {"config": ModelConfig(**config), "directory": directory})
