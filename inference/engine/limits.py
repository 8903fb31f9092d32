"""How much the engine may hold and do at a time: plain data, made by `sizing.resolve_limits`."""

from dataclasses import dataclass

MAX_DRAFT_TOKENS = 4
AUTO = -1  # speculative_tokens: chosen from what is measured


def most_rows(max_sequences: int, max_batch_tokens: int, drafts: bool) -> int:
    """Of logits in a step: one for each sequence, and with drafts one for each of these."""
    return min(max_sequences * (1 + MAX_DRAFT_TOKENS if drafts else 1), max_batch_tokens)


@dataclass(frozen=True)
class CacheBudget:
    """What the number of cache pages is computed from, and the largest step."""

    max_batch_tokens: int
    max_sequences: int
    max_model_len: int
    memory_fraction: float
    observers: tuple[str, ...] = ()
    page_count: int | None = None  # if it is given


@dataclass(frozen=True)
class Limits:
    """Resolved and checked sizes."""

    max_model_len: int  # tokens of prompt and answer of one request together
    max_batch_tokens: int  # tokens per step
    max_sequences: int  # requests running at a time
    page_count: int  # pages of 64 tokens
    reuse_pages: bool  # serve a prefix that earlier prompts share from the cache
    decode_graphs: bool = True  # run decode steps as CUDA graphs, where that is possible
    observers: tuple[str, ...] = ()  # of the runner's steps, on every rank: names of the table in extensions.py
    speculative_tokens: int = 0  # drafts that the checkpoint's draft layer makes a step; 0: none; AUTO: as many as pay
