"""Weights from a configuration alone, drawn where they shall lie: to measure the speed of a model without having it."""

import hashlib

import torch

from ...kernels.quantize import quantize_weight
from ..checkpoint.load import place
from ..config import FP8_BLOCK, ModelConfig, blocks
from ..parallel.plan import Cut, Plan
from ..weight_map import Piece, pieces, scale_parameter
from .checkpoint import scaled

_ROWS = 4 * FP8_BLOCK  # drawn at a time


@torch.no_grad()
def fill_synthetic(model: torch.nn.Module, plan: Plan, seed: int = 0) -> None:
    """Fill a rank's share of a model with random weights of the released ones' statistics, without going through the host.

    Each 512 rows of a tensor depend on the seed, its name and the kind of device alone, so all ranks together hold the model that
    one would. The router's correction bias is 0: experts are chosen about evenly, as in a trained model.
    """
    targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
    config = plan.config
    tied = config.tie_word_embeddings
    for whole in pieces(config):
        share = plan.share(whole)
        if share is None or (tied and whole.parameter == "lm_head.weight"):
            continue
        piece = share.piece
        assert piece.parameter is not None
        target = place(targets[piece.parameter], piece, piece.row, piece.shape)
        scales = None
        if target.dtype == torch.float8_e4m3fn:
            scales = place(targets[scale_parameter(piece.parameter)], piece, piece.scale_row, piece.scale_shape)
        _fill(target, scales, whole, share.cut, config, seed)


def _fill(
    target: torch.Tensor, scales: torch.Tensor | None, whole: Piece, cut: Cut | None, config: ModelConfig, seed: int
) -> None:
    """What a cut leaves of one tensor."""
    rows = Cut(0, 0, whole.shape[0]) if cut is None or cut.dim else cut
    for first in range(rows.start // _ROWS * _ROWS, rows.stop, _ROWS):
        band = _draw(whole, first, config, seed, target.device)
        start, stop = max(first, rows.start), min(first + _ROWS, rows.stop)
        band = band[start - first : stop - first]
        if cut is not None and cut.dim:
            band = band[:, cut.start : cut.stop]
        kept = slice(start - rows.start, stop - rows.start)
        if scales is not None:
            band, scales[kept.start // FP8_BLOCK : blocks(kept.stop)] = quantize_weight(band, config.ue8m0_scales)
        target[kept].copy_(band)


def _draw(piece: Piece, first: int, config: ModelConfig, seed: int, device: torch.device) -> torch.Tensor:
    """fp32 rows of a tensor, from its row `first` on."""
    digest = hashlib.sha256(f"{seed}/{piece.name}/{first}".encode()).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    shape = (min(_ROWS, piece.shape[0] - first), *piece.shape[1:])
    values = torch.randn(shape, generator=generator, device=device)
    return values.zero_() if piece.name.endswith("correction_bias") else scaled(values, piece, config)
