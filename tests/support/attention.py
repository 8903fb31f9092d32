"""Softmax attention over given rows in float64, one query at a time."""

import math

import numpy as np


def attend(
    q: np.ndarray, keys: np.ndarray, scale: float, value_dim: int, sink: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q [H, D], keys [K, D] -> out [H, value_dim], max_logits [H], logsumexp [H] (natural); without keys 0, -inf, -inf."""
    heads = len(q)
    if not len(keys):
        return np.zeros((heads, value_dim)), np.full(heads, -math.inf), np.full(heads, -math.inf)
    logits = q @ keys.T * scale
    top = logits.max(1)
    lse = top + np.log(np.exp(logits - top[:, None]).sum(1))
    out = np.exp(logits - lse[:, None]) @ keys[:, :value_dim]
    if sink is not None:  # out * e^lse / (e^lse + e^sink), without overflow
        with np.errstate(over="ignore"):
            out = out / (1 + np.exp(sink - lse))[:, None]
    return out, top, lse
