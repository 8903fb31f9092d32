"""Stand-ins for the model. The next token depends on every cache entry of the context, so every paging mistake changes it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from deepseek_v32.inference import LLM
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.step import Step
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import PAGE_SIZE, AttentionMetadata, LayerCache, Selection, context_slots

BYTES = 256  # ids below are bytes
EOS = 256
NAN = 257  # in a context, it makes the logits NaN
RAISE = 258  # among the new tokens, it makes the step fail
VOCAB = 260
PRIME = 2**31 - 1


def fake_config(**overrides: Any) -> ModelConfig:
    sizes: dict[str, Any] = dict(
        vocab_size=VOCAB, num_hidden_layers=2, kv_lora_rank=4, qk_rope_head_dim=2, index_head_dim=4
    )
    rest: dict[str, Any] = dict(
        bos_token_id=None, eos_token_ids=(EOS,), yarn=None, max_position_embeddings=4096, index_topk=16
    )
    return ModelConfig(**{**sizes, **rest, **overrides})


class FakeModel:
    """Logits are a hash of the (token, position) entries that earlier and present steps wrote to the context's slots.

    It asserts what the contract of metadata.py promises, and that each entry read is the one written for its position.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        powers = [1]
        for _ in range(config.max_position_embeddings):
            powers.append(powers[-1] * 48271 % PRIME)
        self.powers = torch.tensor(powers)
        self.multipliers = torch.arange(1, config.vocab_size + 1) * 2654435761 % PRIME
        self.steps: list[AttentionMetadata] = []
        self.before_step: Callable[[], None] = lambda: None

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor:
        self.before_step()
        self.steps.append(metadata)
        self._check(tokens, positions, metadata)
        if (tokens == RAISE).any():
            raise RuntimeError("the model was told to fail\nwith a second line")
        for cache in caches:
            latent, index = cache.latent.view(-1, cache.latent.shape[-1]), cache.index.view(-1, cache.index.shape[-1])
            latent[metadata.slots, 0] = tokens.to(latent.dtype)
            latent[metadata.slots, 1] = positions.to(latent.dtype)
            index[metadata.slots, 0] = tokens.to(index.dtype)
        logits = torch.empty(len(tokens), self.config.vocab_size)
        row = 0
        for b, (count, length) in enumerate(zip(metadata.query_lengths, metadata.context_lengths, strict=True)):
            context = self._read(caches, context_slots(metadata.block_table[b], length))
            hashes = ((context + 1) * self.powers[:length] % PRIME).cumsum(0)[length - count :] % PRIME
            mixed = hashes[:, None] * self.multipliers % PRIME % 1000003
            logits[row : row + count] = mixed.float() / 1000003 * 10
            logits[row : row + count, NAN:] = -1  # never the likeliest
            if (context == NAN).any():
                logits[row : row + count, 7] = torch.nan
            row += count
        self._report(metadata)
        return logits[metadata.logit_rows]

    def _read(self, caches: list[LayerCache], slots: torch.Tensor) -> torch.Tensor:
        first = caches[0].latent.view(-1, caches[0].latent.shape[-1])[slots, 0]
        for cache in caches:
            latent = cache.latent.view(-1, cache.latent.shape[-1])[slots]
            assert torch.equal(latent[:, 1], torch.arange(len(slots)).to(latent.dtype)), "entries of other positions"
            assert torch.equal(latent[:, 0], first), "layers disagree"
            assert torch.equal(cache.index.view(-1, cache.index.shape[-1])[slots, 0], first), "the caches disagree"
        return first.long()

    def _check(self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata) -> None:
        lengths, contexts = metadata.query_lengths, metadata.context_lengths
        assert sum(lengths) == len(tokens) == len(positions) == len(metadata.slots)
        assert [length == 1 for length in lengths] == [b < metadata.decodes for b in range(len(lengths))]
        starts = [np.arange(context - count, context) for count, context in zip(lengths, contexts, strict=True)]
        assert positions.tolist() == np.concatenate(starts).tolist()
        assert metadata.lengths.tolist() == list(contexts) and metadata.lengths.dtype == torch.int32
        assert metadata.block_table.dtype == torch.int32 and metadata.slots.dtype == torch.int64
        assert metadata.block_table.shape == (len(lengths), -(-max(contexts) // PAGE_SIZE))
        assert metadata.max_context >= max(contexts[: metadata.decodes], default=0)
        assert len(set(metadata.slots.tolist())) == len(metadata.slots), "two tokens share a slot"

    def _report(self, metadata: AttentionMetadata) -> None:
        """Reports that every layer selected the latest index_topk tokens, the newest first."""
        if metadata.on_selection is None:
            return
        row, topk = 0, self.config.index_topk
        for count, length in zip(metadata.query_lengths, metadata.context_lengths, strict=True):
            queries = torch.arange(length - count, length, dtype=torch.int32)
            for layer in range(self.config.num_hidden_layers):
                selected = queries[:, None] - torch.arange(topk, dtype=torch.int32)
                metadata.on_selection(layer, torch.arange(row, row + count), Selection(selected.clamp(min=-1)))
            row += count


class ScriptedModel:
    """With near certainty, every sequence's token at position p is ``script[p]``."""

    def __init__(self, config: ModelConfig, script: list[int]) -> None:
        self.config, self.script = config, script

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor:
        rows = positions[metadata.logit_rows]
        logits = torch.zeros(len(rows), self.config.vocab_size)
        for row, position in enumerate(rows.tolist()):
            logits[row, self.script[min(position + 1, len(self.script) - 1)]] = 100
        return logits


class ByteTokenizer:
    """One token per byte, so that characters come in pieces."""

    bos_id = None
    eos_ids = (EOS,)
    chat_template = None
    is_byte_level = True
    special_ids: ClassVar[dict[str, int]] = {}

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_prompt(self, text: str) -> list[int]:
        return ([] if self.bos_id is None else [self.bos_id]) + self.encode(text)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return bytes(id for id in ids if id < BYTES).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < BYTES else b""


def fake_llm(model: Any = None, poison: bool = True, ahead: bool = False, **options: Any) -> LLM:
    """An LLM around a FakeModel, whose caches start out as NaN. ahead: it launches steps of decodes ahead."""
    config = fake_config()
    options = {"page_count": 64, **options}
    tokenizer: Any = ByteTokenizer()
    llm = LLM.from_model(model or FakeModel(config), config, tokenizer, **options)
    runner: Any = llm.engine.runner
    if poison:
        for cache in runner.caches:
            cache.latent.fill_(torch.nan)
            cache.index.fill_(torch.nan)
    if ahead:
        llm.engine.runner = AsyncRunner(runner.model, runner.caches)
    return llm


class AsyncRunner(Runner):
    """Supports asynchronous scheduling with any model: like decode graphs, it takes tokens that `stage_tokens` was given."""

    supports_async_scheduling = True
    ahead = 0  # steps that were launched ahead, by all runners

    def is_quick(self, batch: Batch) -> bool:
        return True

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        self._kept = tokens.tolist()

    def run(self, batch: Batch, *arguments: Any) -> Step:
        AsyncRunner.ahead += bool(batch.sampled_rows)
        for request, row in zip(batch.requests, batch.sampled_rows, strict=False):
            request.tokens.append(self._kept[row])
        try:
            return super().run(replace(batch, sampled_rows=()), *arguments)
        finally:
            for request in batch.requests[: len(batch.sampled_rows)]:
                request.tokens.pop()


def reference_tokens(prompt: list[int], count: int) -> list[int]:
    """The greedy answer of a FakeModel, computed without an engine. It ends after EOS."""
    config = fake_config()
    model = FakeModel(config)
    tokens = list(prompt)
    for _ in range(count):
        weighted = (torch.tensor(tokens) + 1) * model.powers[: len(tokens)] % PRIME
        mixed = weighted.sum() % PRIME * model.multipliers % PRIME % 1000003
        tokens.append(int(mixed[:NAN].argmax()))
        if tokens[-1] == EOS:
            break
    return tokens[len(prompt) :]
