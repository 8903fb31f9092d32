"""Arrays of a recording as text for JSON: bitmaps and bytes in base64, scores as strengths from 0 to 1."""

import base64

import numpy as np


def relative_strengths(scores: np.ndarray | None, count: int) -> np.ndarray:
    """fp64 [K]: how clearly each position was selected, from 0 for the lowest selected score to 1 for the highest.

    Scores of different layers have different scales; this makes them comparable. `count` ones where the layer had no choice,
    that is, where it has no scores.
    """
    if scores is None or len(scores) == 0:
        return np.ones(count)
    low, high = float(scores.min()), float(scores.max())
    return (scores - low) / (high - low) if high > low else np.ones(len(scores))


def score_range(scores: np.ndarray | None) -> list[float] | None:
    """The lowest and the highest score; None where the layer had no choice."""
    if scores is None or len(scores) == 0:
        return None
    return [round(float(scores.min()), 4), round(float(scores.max()), 4)]


def pack_fractions(fractions: np.ndarray) -> str:
    """Fractions from 0 to 1 as one byte each, in base64."""
    return pack(np.round(fractions * 255).astype(np.uint8))


def pack_bitmap(positions: np.ndarray, length: int) -> str:
    """A bit for each of `length` positions, the lowest first, in base64."""
    bits = np.zeros(length, dtype=bool)
    bits[positions] = True
    return pack(np.packbits(bits, bitorder="little"))


def pack(array: np.ndarray) -> str:
    """The bytes of an array in base64."""
    return base64.b64encode(array.tobytes()).decode()
