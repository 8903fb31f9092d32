"""How much the engine may hold and do at a time, resolved once from what was asked, the model and the machine."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...model.config import ModelConfig, Precision
from ...model.metadata import PAGE_SIZE
from .sizing import pages_in_memory


@dataclass(frozen=True)
class Room:
    """What the number of pages depends on."""

    max_batch_tokens: int
    max_sequences: int
    max_model_len: int
    memory_fraction: float


@dataclass(frozen=True)
class Limits:
    """Resolved sizes; `resolve` makes and checks them."""

    max_model_len: int  # tokens of prompt and answer of one request together
    max_batch_tokens: int  # tokens a step
    max_sequences: int  # requests running at a time
    page_count: int  # pages of 64 tokens
    reuse_pages: bool  # answer from the cache what earlier prompts share
    decode_graphs: bool = True  # run decode steps as CUDA graphs, where that is possible

    @classmethod
    def resolve(
        cls,
        config: ModelConfig,
        precision: Precision,
        device: torch.device | str,
        *,
        max_model_len: int | None = None,
        max_batch_tokens: int | None = None,
        max_sequences: int | None = None,
        page_count: int | None = None,
        memory_fraction: float | None = None,
        reuse_pages: bool = True,
        decode_graphs: bool = True,
        count_pages: Callable[[Room], int] | None = None,
    ) -> "Limits":
        """None stands for the default. ValueError names the argument, what came and the limit.

        max_model_len: what the model's positions and the pages allow. max_batch_tokens: 2048 on a CPU, 8192 on a GPU;
        max_sequences: 64 and 256. page_count: from memory_fraction, which is 0.25 of a CPU's available memory, or 0.9 of a GPU's
        memory less the weights; by `count_pages`, if given.
        """
        on_cpu = torch.device(device).type == "cpu"
        positions = config.max_position_embeddings
        for name, value in (
            ("max_model_len", max_model_len),
            ("max_batch_tokens", max_batch_tokens),
            ("max_sequences", max_sequences),
            ("page_count", page_count),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; at least 1 is wanted")
        if max_model_len is not None and not 2 <= max_model_len <= positions:
            raise ValueError(f"max_model_len is {max_model_len}; the model allows 2 to {positions} tokens")
        max_batch_tokens = max_batch_tokens or (2048 if on_cpu else 8192)
        max_sequences = max_sequences or (64 if on_cpu else 256)
        if page_count is None:
            fraction = memory_fraction if memory_fraction is not None else 0.25 if on_cpu else 0.9
            room = Room(max_batch_tokens, max_sequences, max_model_len or positions, fraction)
            if count_pages is not None:
                page_count = count_pages(room)
            else:
                page_count = pages_in_memory(config, precision, device, room.max_model_len, fraction)
        held = page_count * PAGE_SIZE
        if max_model_len is not None and max_model_len > held:
            raise ValueError(f"max_model_len is {max_model_len}; {page_count} pages of {PAGE_SIZE} hold {held} tokens")
        return cls(
            max_model_len=max_model_len or min(positions, held),
            max_batch_tokens=max_batch_tokens,
            max_sequences=max_sequences,
            page_count=page_count,
            reuse_pages=reuse_pages,
            decode_graphs=decode_graphs,
        )
