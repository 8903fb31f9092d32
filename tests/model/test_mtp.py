"""The MTP layer against transformers' decoder layer, with the entry and the head written out here, in fp32."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV32Config, DeepseekV32ForCausalLM
from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32DecoderLayer

from deepseek_v32.inference.engine.running.cache import allocate
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.metadata import PAGE_SIZE, AttentionMetadata, Selection
from deepseek_v32.model.transformer import Transformer
from support.configs import random_arguments
from support.oracle import CLOSE_CALL, randomize, recording_closest_call, relative_error

TOLERANCE = 1e-5
MUTANT_ERROR = 1e-3
LENGTH = 70  # tokens: more than one page, and more than index_topk
PASSES = 3


class Oracle:
    """The library's model with a further decoder layer: entry and head as in section 2.2 of the DeepSeek-V3 report."""

    def __init__(self, seed: int, directory: Path, own_tables: bool = False) -> None:
        arguments = random_arguments(seed)
        layers = arguments["num_hidden_layers"]
        config = DeepseekV32Config(**arguments)
        generator = torch.Generator().manual_seed(seed)
        self.model = DeepseekV32ForCausalLM(config).float().eval()
        # A layer of experts after the last one: only the layer's number decides its kind.
        sparse = DeepseekV32Config(**{**arguments, "num_hidden_layers": layers + 1, "first_k_dense_replace": 0})
        sparse._attn_implementation = "eager"
        self.layer = DeepseekV32DecoderLayer(sparse, layers).float().eval()
        hidden, vocab, eps = config.hidden_size, config.vocab_size, config.rms_norm_eps
        self.entry = {
            "enorm.weight": torch.ones(hidden),
            "hnorm.weight": torch.ones(hidden),
            "eh_proj.weight": torch.zeros(hidden, 2 * hidden),
            "shared_head.norm.weight": torch.ones(hidden),
        }
        if own_tables:
            self.entry["embed_tokens.weight"] = torch.zeros(vocab, hidden)
            self.entry["shared_head.head.weight"] = torch.zeros(vocab, hidden)
        self.eps = eps
        for weights in (self.model.state_dict(), self.layer.state_dict(), self.entry):
            randomize(weights, generator)
        self.model.save_pretrained(directory)
        self._add_layer(directory, layers)

    def _add_layer(self, directory: Path, number: int) -> None:
        """Add the layer to the checkpoint, under the released names."""
        file = directory / "model.safetensors"
        tensors, prefix = load_file(file), f"model.layers.{number}."
        for name, tensor in self.layer.state_dict().items():
            if name in ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"):
                for expert, weight in enumerate(tensor):
                    parts = {"down_proj": weight}
                    if "gate_up" in name:
                        parts = dict(zip(("gate_proj", "up_proj"), weight.chunk(2), strict=True))
                    for part, value in parts.items():
                        tensors[f"{prefix}mlp.experts.{expert}.{part}.weight"] = value.contiguous()
            else:
                tensors[prefix + name] = tensor
        tensors |= {prefix + name: tensor for name, tensor in self.entry.items()}
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, file, {"format": "pt"})

    @torch.inference_mode()
    def first_pass(self, tokens: list[int]) -> torch.Tensor:
        """Logits [T - 1, V]: row i drafts token i + 2 from the tokens up to i + 1."""
        x, _ = self._true_rows(tokens)
        return self._outputs(x) @ self._head().T

    @torch.inference_mode()
    def further_passes(self, tokens: list[int], last: int, passes: int) -> list[torch.Tensor]:
        """Logits [V] of pass 1, 2, …: tokens `last` + 2, `last` + 3, … as drafted with `tokens` as the earlier drafts.

        Rows up to `last` are made from hidden states of the main model, each further one from the pass before.
        """
        x, _ = self._true_rows(tokens)
        x, found = x[: last + 1], []
        for position in range(last, last + passes):
            hidden = self._outputs(x)[-1]
            found.append(hidden @ self._head().T)
            x = torch.cat(
                (x, self._rows(torch.tensor(tokens[position + 2 : position + 3]), hidden[None], position + 1))
            )
        return found

    def _true_rows(self, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The layer's inputs [T - 1, D] from the main model's hidden states, and those."""
        hidden = self.model.model(torch.tensor([tokens])).last_hidden_state[0]  # after the final norm
        return self._rows(torch.tensor(tokens[1:]), hidden[:-1], 0), hidden

    def _rows(self, following: torch.Tensor, hidden: torch.Tensor, first: int) -> torch.Tensor:
        """The layer's inputs at positions from `first`."""
        table = self.entry.get("embed_tokens.weight", self.model.get_input_embeddings().weight)
        embedded = table[following]
        if first == 0:
            embedded = torch.cat((torch.zeros_like(embedded[:1]), embedded[1:]))
        both = torch.cat((self._norm("enorm", embedded), self._norm("hnorm", hidden)), 1)
        return both @ self.entry["eh_proj.weight"].T

    def _head(self) -> torch.Tensor:
        weight: torch.Tensor = self.entry.get("shared_head.head.weight", self.model.get_output_embeddings().weight)
        return weight

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's outputs after its norm, for inputs [T, D] at positions 0 to T - 1."""
        count, positions = len(x), torch.arange(len(x))[None]
        mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
        rotary = self.model.model.rotary_emb(x[None], positions)
        out = self.layer(x[None], attention_mask=mask, position_ids=positions, position_embeddings=rotary)
        return self._norm("shared_head.norm", out[0])

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.entry[f"{name}.weight"]


class Sequence:
    """One sequence that our model runs, with its MTP layer."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.pages = [3, 0, 2]  # of four, in no order
        self.caches = allocate(model.config, model.compute.precision, 4, mtp=True)

    def metadata(self, start: int, count: int, decode: bool) -> AttentionMetadata:
        """Make the metadata of `count` tokens from position `start`: a prompt's chunk, or rows on the decode path."""
        ends = range(start + 1, start + count + 1)
        positions = torch.arange(start, start + count)
        table = torch.tensor([self.pages], dtype=torch.int32)
        lengths = tuple(ends) if decode else (start + count,)
        return AttentionMetadata(
            query_lengths=(1,) * count if decode else (count,),
            context_lengths=lengths,
            decodes=count if decode else 0,
            block_table=table.expand(len(lengths), -1).contiguous(),
            lengths=torch.tensor(lengths, dtype=torch.int32),
            slots=table[0].long()[positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE,
            logit_rows=torch.arange(count),
            max_context=start + count if decode else 0,
        )

    def step(self, tokens: list[int], start: int, count: int, decode: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Main model and MTP layer over `count` tokens: drafts' logits [count, V] and the layer's outputs [count, D]."""
        metadata = self.metadata(start, count, decode)
        positions = torch.arange(start, start + count)
        ids = torch.tensor(tokens[start : start + count + 1])
        _, hidden = self.model.forward_with_hidden(ids[:-1], positions, metadata, self.caches)
        return self.model.draft(ids[1:], hidden, positions, metadata, self.caches[-1])

    def draft_again(self, token: int, hidden: torch.Tensor, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One row of a further pass: `token` follows `position`, `hidden` [1, D] is the output of the pass before."""
        metadata = self.metadata(position, 1, True)
        return self.model.draft(torch.tensor([token]), hidden, torch.tensor([position]), metadata, self.caches[-1])


def run(sequence: Sequence, tokens: list[int], chunk: int, decode: bool = False) -> torch.Tensor:
    """Logits [T - 1, V] of all first passes, `chunk` tokens at a time."""
    count = len(tokens) - 1
    steps = [(start, min(chunk, count - start)) for start in range(0, count, chunk)]
    return torch.cat([sequence.step(tokens, start, size, decode)[0] for start, size in steps])


def decisive(seed: int, directory: Path, own_tables: bool = False) -> tuple[Oracle, Path, list[int]]:
    """An oracle and tokens for which no selection is too close to call, and the directory of its checkpoint."""
    for attempt in range(20):
        oracle = Oracle(seed + 1000 * attempt, path := directory / str(attempt), own_tables)
        vocab = oracle.model.config.vocab_size
        tokens = random.Random(seed).choices(range(vocab), k=LENGTH)
        with recording_closest_call() as closest:
            run(Sequence(load_model(path, mtp=True)), tokens, LENGTH)
        if closest[0] > CLOSE_CALL:
            return oracle, path, tokens
    raise AssertionError(f"seed {seed}: twenty attempts, and each has a choice closer than {CLOSE_CALL}")


@pytest.mark.parametrize("seed", range(10))
def test_logits(seed: int, tmp_path: Path) -> None:
    oracle, path, tokens = decisive(seed, tmp_path, own_tables=seed % 3 == 0)
    model, expected = load_model(path, mtp=True), oracle.first_pass(tokens)
    assert model.mtp is not None and (model.mtp.lm_head is not None) == (seed % 3 == 0)
    for chunk, decode in ((LENGTH, False), (7, False), (3, True)):  # the last as in verification
        assert relative_error(run(Sequence(model), tokens, chunk, decode), expected) <= TOLERANCE, (chunk, decode)


@pytest.mark.parametrize("seed", range(40, 44))
def test_further_passes(seed: int, tmp_path: Path) -> None:
    """Drafts from the layer's own output, and that what they have written into its cache is written over."""
    oracle, path, tokens = decisive(seed, tmp_path)
    sequence = Sequence(load_model(path, mtp=True))
    for start, count in ((0, 40), (40, 4), (42, 6)):  # two tokens of the second step were rejected
        logits, hidden = sequence.step(tokens, start, count, decode=start > 0)
        last = start + count - 1
        expected = oracle.further_passes(tokens, last, PASSES)
        for number in range(PASSES):
            assert relative_error(logits[-1:], expected[number][None]) <= TOLERANCE
            position = last + 1 + number
            logits, hidden = sequence.draft_again(tokens[position + 1], hidden[-1:], position)


def _hidden_before_the_norm(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        h, update = model._run_layers(*arguments)
        hidden = h if update is None else h + update
        return model.lm_head.logits(model.norm(hidden)), hidden

    monkeypatch.setattr(model, "forward_with_hidden", torch.inference_mode()(forward))


def _shared_selection(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.mtp is not None
    last, own = model.layers[-1].self_attn.indexer, model.mtp.block.self_attn.indexer
    select, selected = last.select_prefill, []  # type: ignore[operator, union-attr]

    def remember(*arguments: Any) -> Selection:
        selected.append(select(*arguments))  # type: ignore[operator]
        return selected[-1]

    monkeypatch.setattr(last, "select_prefill", remember)
    monkeypatch.setattr(own, "select_prefill", lambda *_: selected[-1])


def _position_off_by_one(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = model.draft
    monkeypatch.setattr(model, "draft", lambda ids, h, positions, *rest: draft(ids, h, positions + 1, *rest))


def _embedding_at_position_0(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.mtp is not None
    forward = model.mtp.forward
    monkeypatch.setattr(model.mtp, "forward", lambda e, h, positions, *rest: forward(e, h, positions + 1, *rest))


def _hidden_first(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.mtp is not None
    model.mtp.eh_proj.weight.copy_(model.mtp.eh_proj.weight.roll(model.config.hidden_size, 1))


MUTANTS: dict[str, Callable[[Transformer, pytest.MonkeyPatch], None]] = {
    "h before the norm": _hidden_before_the_norm,
    "selection of the last layer": _shared_selection,
    "position off by one": _position_off_by_one,
    "embedding at position 0": _embedding_at_position_0,
    "hidden state before the embedding": _hidden_first,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle, path, tokens = decisive(60, tmp_path)
    model = load_model(path, mtp=True)
    MUTANTS[mutant](model, monkeypatch)
    assert relative_error(run(Sequence(model), tokens, LENGTH), oracle.first_pass(tokens)) > MUTANT_ERROR


def test_unnormed_hand_over_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle, path, tokens = decisive(60, tmp_path)
    model = load_model(path, mtp=True)
    assert model.mtp is not None
    norm, unnormed = model.mtp.norm.forward, []

    def remember(x: torch.Tensor) -> torch.Tensor:
        unnormed.append(x)
        return norm(x)

    monkeypatch.setattr(model.mtp.norm, "forward", remember)
    sequence = Sequence(model)
    sequence.step(tokens, 0, 40, decode=False)
    logits, _ = sequence.draft_again(tokens[41], unnormed[-1][-1:], 40)
    assert relative_error(logits, oracle.further_passes(tokens, 39, 2)[1][None]) > MUTANT_ERROR
