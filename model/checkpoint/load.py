"""Stored tensors into the model's parameters, one band of rows at a time: from Hugging Face safetensors, or converted ones.

Everything that headers can tell is checked before any data is read, and before the model is allocated. A rank of several
reads what it keeps, but rows always whole: of the released model on eight ranks 87 GiB each, of which 80 are kept. Converted
files hold what a rank keeps and nothing else.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch

from ...kernels.quantize import dequantize_weight, quantize_weight
from ..config import FP8_BLOCK, ModelConfig, Precision, blocks
from ..errors import CheckpointError, short_repr
from ..parallel.collectives import Ranks
from ..parallel.plan import Cut, Plan
from ..parallel.shard import build_model
from ..transformer import Transformer
from ..weight_map import Piece, scale_parameter
from .config_json import read_config
from .locate import Placement, locate
from .prefetch import DTYPES, Rows, read_ahead

Progress = Callable[[int, int], None]  # (bytes read, bytes in all)

# Elements converted at a time, 2 MiB in fp32: small beside any real tensor, large enough for sequential reads. Those that need
# no conversion go by larger bands.
_BAND = 2**19
_PLAIN_BAND = 2**22


def load_model(
    path: str | Path,
    precision: Precision = "exact",
    backend: str = "auto",
    device: str | torch.device = "cpu",
    config_overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    ranks: Ranks | None = None,
) -> Transformer:
    """The model in a checkpoint directory (config.json and safetensors), with its weights, in `precision` on `device`.

    ranks: those that share it; None: all of it is here. Peak memory is the parameters plus less than twice the largest tensor.
    `config_overrides` are fields of `ModelConfig`. Raises ConfigError or CheckpointError, both of one line, before allocating
    anything.
    """
    config = read_config(path).with_overrides(**(config_overrides or {}))
    return load_checkpoint(Path(path), config, precision, backend, device, progress, ranks)


def load_checkpoint(
    directory: Path,
    config: ModelConfig,
    precision: Precision,
    backend: str,
    device: str | torch.device,
    progress: Progress | None = None,
    ranks: Ranks | None = None,
) -> Transformer:
    """`load_model` with a configuration that need not be the directory's own."""
    config.check_precision(precision)
    plan = Plan(config, ranks.rank, ranks.size) if ranks else Plan(config)
    placements = locate(plan, directory)
    model = build_model(config, precision, backend, device, ranks)
    load_weights(model, placements, config, progress)
    return model


@torch.no_grad()
def load_weights(
    model: torch.nn.Module, placements: list[Placement], config: ModelConfig, progress: Progress | None = None
) -> None:
    """Fill every parameter of `model`, in the dtype it has. `progress` is told after every band.

    float target: FP8 is dequantised, the rest cast. e4m3 target: FP8 is copied with its scales, the rest quantised.
    """
    targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
    if config.tie_word_embeddings:  # a model that shares the one tensor needs it read once
        head = targets.get("lm_head.weight")
        if head is None or head.data_ptr() == targets["embed_tokens.weight"].data_ptr():
            targets.pop("lm_head.weight", None)
            placements = [each for each in placements if each.share.piece.parameter != "lm_head.weight"]
    filled = dict.fromkeys(targets, 0)
    total = sum(placement.size for placement in placements)
    done = 0

    def work() -> Iterator[Rows]:
        # As it lies on disk: one file after the other, from its start to its end.
        for placement in sorted(placements, key=lambda each: (str(each.weight.file), each.weight.offset)):
            piece = placement.share.piece
            assert piece.parameter is not None
            target = place(targets[piece.parameter], piece, piece.row, piece.shape)
            filled[piece.parameter] += target.numel()
            scales = None
            if target.dtype == torch.float8_e4m3fn:
                name = scale_parameter(piece.parameter)
                scales = place(targets[name], piece, piece.scale_row, piece.scale_shape)
                filled[name] += scales.numel()
            yield from _Filling(placement, target, scales, config.ue8m0_scales).work()

    for size in read_ahead(work()):
        done += size
        if progress is not None and size:
            progress(done, total)
    for name, target in targets.items():
        assert filled[name] == target.numel(), f"{filled[name]} of {target.numel()} elements of {name} were filled"


def place(parameter: torch.Tensor, piece: Piece, row: int, shape: tuple[int, ...]) -> torch.Tensor:
    """The part of a parameter (or of its scales) that a piece fills."""
    stacked = parameter if piece.expert is None else parameter[piece.expert]
    part = stacked[row : row + shape[0]]
    assert part.shape == shape, f"{piece.parameter} holds {list(part.shape)} for {list(shape)} of {piece.name}"
    return part


class _Filling:
    """One tensor on its way into a parameter, in bands of whole blocks of rows."""

    def __init__(
        self, placement: Placement, target: torch.Tensor, scale_target: torch.Tensor | None, ue8m0: bool
    ) -> None:
        self._placement, self._target, self._scale_target, self._ue8m0 = placement, target, scale_target, ue8m0
        self._scale: torch.Tensor | None = None  # what is kept of the stored one, on the target's device

    def work(self) -> Iterator[Rows]:
        """What to read, in order."""
        weight, scale, target = self._placement.weight, self._placement.scale, self._target
        if scale is not None:
            yield Rows(scale, 0, scale.shape[0], self._take_scale)
        # Straight to its place, where nothing has to be converted or left out.
        plain = target.dtype == DTYPES[weight.dtype] and target.shape[1:] == weight.shape[1:]
        direct = plain and target.device.type == "cpu" and target.is_contiguous()
        elements = _PLAIN_BAND if plain else _BAND
        step = max(FP8_BLOCK, elements // max(prod(weight.shape[1:]), 1) // FP8_BLOCK * FP8_BLOCK)
        first, last = self._placement.rows
        for start in range(first, last, step):
            stop = min(start + step, last)
            band = slice(start - first, stop - first)
            yield Rows(weight, start, stop, self._take_band(band), target[band] if direct else None)

    def _take_scale(self, scale: torch.Tensor) -> None:
        placement = self._placement
        assert placement.scale is not None
        if not scale.isfinite().all():
            problem = (
                f"tensor {short_repr(placement.share.piece.scale_name)} holds non-finite scales; wanted finite ones"
            )
            raise CheckpointError(placement.scale.file, problem)
        cut = placement.share.cut
        kept = scale if cut is None else keep(scale, cut.in_blocks())
        if self._scale_target is not None:
            self._scale_target.copy_(kept)
        self._scale = kept.to(self._target.device)

    def _take_band(self, band: slice) -> Callable[[torch.Tensor], None]:
        target, scale_target = self._target[band], self._scale_target
        block_rows = slice(band.start // FP8_BLOCK, blocks(band.stop))
        cut = self._placement.share.cut

        def take(rows: torch.Tensor) -> None:
            if cut is not None and cut.dim:
                rows = keep(rows, cut)
            if self._scale is not None and scale_target is None:
                rows = dequantize_weight(rows.to(target.device), self._scale[block_rows], target.dtype)
            elif self._scale is None and scale_target is not None:
                rows, scale_target[block_rows] = quantize_weight(rows.to(target.device), self._ue8m0)
            if rows.data_ptr() != target.data_ptr():
                target.copy_(rows)

        return take


def keep(tensor: torch.Tensor, cut: Cut) -> torch.Tensor:
    """What a cut leaves of a tensor."""
    return tensor.narrow(cut.dim, cut.start, cut.size)
