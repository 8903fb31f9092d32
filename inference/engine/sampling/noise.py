"""Stateless random numbers: Gumbel noise for (seed, place in the output, token id), the same wherever it is needed.

A token drawn as argmax(scores + Gumbel noise) has the distribution softmax(scores) (Gumbel, 1954). A draw from other scores with
the same noise mostly gives the same token: so the draft layer's guesses agree, and never change the model's choice (a coupling).
"""

from typing import NamedTuple

import torch

# SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), as signed 64-bit integers.
_GAMMA, _FIRST, _SECOND = (value - 2**64 for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """float64 [N, vocab]: row i is the noise for place ``positions[i]`` of an output with ``seeds[i]``, int64 [N] each."""
    keys = _mix(_mix(seeds.clone()) + (positions + 1) * _GAMMA)
    steps = torch.arange(1, vocab + 1, device=seeds.device) * _GAMMA
    bits = _shift(_mix(keys[:, None] + steps), 11)
    # u in (0, 1); −log(1 − u) is exponential. Small values decide, and log1p keeps all their digits.
    exponential = bits.double().add_(0.5).mul_(-(2.0**-53)).log1p_().neg_()
    return exponential.log_().neg_()


def signed(seed: int) -> int:
    """An unsigned 64-bit seed as the int64 with the same bits."""
    return seed - 2**64 if seed >= 2**63 else seed


class DraftNoise(NamedTuple):
    """Settings for drawing tokens of M requests without penalties and filters: for the draft layer's guesses, and in graphs."""

    random: bool  # whether any request is not greedy
    temperatures: torch.Tensor  # float64 [M] on the device; 0 is greedy
    seeds: torch.Tensor  # int64 [M]
    positions: torch.Tensor  # int64 [M]: the place in the output of the step's first token

    def choose(self, logits: torch.Tensor, accepted: torch.Tensor | int = 0, number: int = 0) -> torch.Tensor:
        """int64 [M], one token for each row of logits fp32 [M, vocab], at the places ``positions + accepted + number``."""
        if not self.random:
            return logits.argmax(-1)
        drawn = (self.temperatures > 0)[:, None]
        temperatures = torch.where(drawn, self.temperatures[:, None], 1.0)
        scores = (logits.double() - logits.amax(-1, keepdim=True)) / temperatures
        noise = gumbel(self.seeds, self.positions + accepted + number, logits.shape[-1])
        return torch.where(drawn, scores + noise, scores).argmax(-1)


def _mix(bits: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finalizer, in place."""
    bits.bitwise_xor_(_shift(bits, 30)).mul_(_FIRST)
    bits.bitwise_xor_(_shift(bits, 27)).mul_(_SECOND)
    return bits.bitwise_xor_(_shift(bits, 31))


def _shift(bits: torch.Tensor, places: int) -> torch.Tensor:
    """Shifted right, with zeros coming in: torch's own shift of int64 repeats the sign."""
    return (bits >> places).bitwise_and_((1 << (64 - places)) - 1)
