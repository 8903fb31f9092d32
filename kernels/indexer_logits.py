"""Lightning indexer scores: logits[t, s] = k_scale[s] * sum over heads h of weights[t, h] * relu(q[t, h] . k[s]).

Source: DeepSeek-V3.2 paper, section 2.1, equation 1. `weights` include the FP8 scale of each query and the constant factors.
"""

import torch
import torch.nn.functional as F

from .cache_write import index_record_bytes
from .checks import FLOATS, check_pages, check_tensor, check_whole_pages
from .registry import Preference, choose
from .types import IndexerOperands, PagedIndexerOperands

_QUERY_DTYPES = (*FLOATS, torch.float8_e4m3fn)


def check_indexer(given: IndexerOperands) -> None:
    """Raise a ValueError if these are not valid arguments of `indexer_logits`."""
    q, k, weights, starts, ends, k_scale = given
    check_tensor("q", q, (None, None, None), _QUERY_DTYPES)
    rows, heads, width = q.shape
    check_tensor("k", k, (None, width), q.dtype, q.device)
    check_tensor("weights", weights, (rows, heads), torch.float32, q.device)
    check_tensor("starts", starts, (rows,), torch.int32, q.device)
    check_tensor("ends", ends, (rows,), torch.int32, q.device)
    if (k_scale is not None) != (q.dtype == torch.float8_e4m3fn):
        raise ValueError(
            f"k_scale is {'missing' if k_scale is None else 'given'} for keys of {k.dtype}; expected only for FP8 keys"
        )
    if k_scale is not None:
        check_tensor("k_scale", k_scale, (k.shape[0],), torch.float32, q.device)


def indexer_logits(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Scores of T queries with S keys -> fp32 [T, S]; columns outside [starts[t], ends[t]) hold anything.

    q [T, H, D] and k [S, D] of one dtype (fp32, bf16, or e4m3 with k_scale fp32 [S]); weights fp32 [T, H]; starts, ends int32 [T].
    """
    given = IndexerOperands(q, k, weights, starts, ends, k_scale)
    check_indexer(given)
    if q.shape[0] == 0 or k.shape[0] == 0:
        return q.new_empty(q.shape[0], k.shape[0], dtype=torch.float32)
    return choose("indexer_logits", q, backend)(given)


def paged_indexer_logits(
    q: torch.Tensor,
    cache: torch.Tensor,
    weights: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    max_context: int,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Scores of each sequence's newest s_q tokens with all keys of its context, which are read from the cache pages.

    q [B, s_q, H, D] (e4m3 for a uint8 cache, else fp32 or bf16); cache: uint8 [P, 64, 1, D + 4] or plain [P, 64, 1, D];
    weights fp32 [B, s_q, H]; block_table int32 [B, pages]; lengths int32 [B], with the new tokens (checks.py: values outside).
    -> fp32 [B * s_q, max_context]; row b * s_q + i has lengths[b] - s_q + i + 1 valid columns, the others hold anything.
    """
    check_tensor("q", q, (None, None, None, None), _QUERY_DTYPES)
    batch, new, heads, width = q.shape
    quantized = q.dtype == torch.float8_e4m3fn
    record = index_record_bytes(width) if quantized else width
    check_tensor("cache", cache, (None, None, 1, record), torch.uint8 if quantized else FLOATS, q.device)
    check_whole_pages(cache)
    check_tensor("weights", weights, (batch, new, heads), torch.float32, q.device)
    check_tensor("block_table", block_table, (batch, None), torch.int32, q.device)
    check_tensor("lengths", lengths, (batch,), torch.int32, q.device)
    if max_context < 0:
        raise ValueError(f"max_context is {max_context}; expected at least 0")
    check_pages("lengths", lengths, block_table, cache.shape[1], cache.shape[0], max_context)
    if batch == 0:
        return q.new_empty(0, max_context, dtype=torch.float32)
    columns = min(max_context, block_table.shape[1] * cache.shape[1])
    given = PagedIndexerOperands(q, cache, weights, block_table, lengths, columns)
    result = choose("paged_indexer_logits", q, backend)(given)
    return result if columns == max_context else F.pad(result, (0, max_context - columns))
