"""fp8 precision, stage by stage, against a simulation that shares no code with the model.

Each stage gets the model's own input (a layer's hidden states, what the caches hold, what was selected): otherwise one
rounding that falls the other way changes a selection, and everything after it. Two sequences run through chunked prefill,
a mixed step and decode, one beyond index_topk, the other within it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from deepseek_v32.model.config import ModelConfig, YarnScaling
from deepseek_v32.model.metadata import AttentionMetadata, LayerCache, Selection
from deepseek_v32.model.moe import ExpertOutputs
from deepseek_v32.model.prefill_form import PrefillForm
from deepseek_v32.model.transformer import Transformer
from support import caches, e4m3
from support.simulation import Latents, Simulation, random_parameters, read_caches

# Largest allowed relative L2 difference of a stage in a token, and why it is not zero. e4m3 steps by 2^-4 to 2^-3 of a
# value, so a stage without a quantisation differs by 2e-2.
TOLERANCE = {
    "attended": 4e-3,  # beyond half an e4m3 step; absorbed queries, latents and values round to bf16 once each: 3 x 2^-9
    "attention": 1e-3,  # only o_proj, from the model's own input: an fp32 sum sometimes rounds to another bf16
    "output": 1e-3,  # MLP and both residual sums: as above, and values that round differently are quantised again
    "logits": 2e-4,  # bf16 operands, fp32 sums: one of 320 normed values that rounds to another bf16 is 2^-8 / 320^0.5
}
# A value at a bf16 midpoint may round the other way before it is quantised, which changes its token slightly everywhere.
# Therefore this fraction of tokens must be within the tolerance (in the caches: have every byte right), and the others
# within this relative L2 difference, the size of one group's rounding.
MOST_TOKENS, OTHER_TOKENS = 0.95, 2e-2

CONFIG = ModelConfig(
    vocab_size=97,
    hidden_size=320,  # two blocks and a half
    intermediate_size=272,  # not a multiple of 128: gate and up have separate blocks
    moe_intermediate_size=160,
    num_hidden_layers=3,
    first_k_dense_replace=1,
    num_attention_heads=4,
    q_lora_rank=192,
    n_routed_experts=12,
    n_group=4,
    topk_group=2,
    num_experts_per_tok=3,
    index_n_heads=16,
    index_topk=24,
    max_position_embeddings=256,
    yarn=YarnScaling(8.0, 32, mscale=1.0, mscale_all_dim=1.0),
    num_nextn_predict_layers=0,
)
LONG, SHORT = 0, 1
PAGES = {LONG: [3, 1], SHORT: [2]}  # page 0 belongs to no sequence
PAGE_COUNT = 5
# Sequences of each step and their new tokens, decodes first: a prompt chunk of each, a decode and a chunk, decodes.
STEPS = [
    [(LONG, 70), (SHORT, 13)],
    [(SHORT, 1), (LONG, 7)],
    [(LONG, 1), (SHORT, 1)],
    [(LONG, 1)],
    [(SHORT, 1), (LONG, 1)],
]


@dataclass
class Run:
    """Recorded activations: every sequence's rows over all steps, by (layer, sequence)."""

    simulation: Simulation
    tokens: np.ndarray  # [sequence, position]
    caches: list[LayerCache]
    inputs: dict[tuple[int, int], np.ndarray]
    outputs: dict[tuple[int, int], np.ndarray]
    attended: dict[tuple[int, int], np.ndarray]
    attention: dict[tuple[int, int], np.ndarray]
    selected: dict[tuple[int, int], list[list[int]]]
    logits: dict[int, np.ndarray]

    def held(self, layer: int, sequence: int) -> Latents:
        slots = [PAGES[sequence][s // 64] * 64 + s % 64 for s in range(len(self.inputs[layer, sequence]))]
        return read_caches(self.caches[layer].latent, self.caches[layer].index, slots)


def values_of(operand: Any) -> np.ndarray:
    """A projection's effective input: e4m3 values times scales, also if the projection quantises it itself."""
    if isinstance(operand, torch.Tensor):
        return e4m3.dequantize(*e4m3.quantize(operand.float().numpy()))
    values, scales = operand
    return e4m3.dequantize(e4m3.codes_of(values), scales.numpy())


def metadata_of(step: list[tuple[int, int]], lengths: dict[int, int], chosen: Any) -> AttentionMetadata:
    new = [count for _, count in step]
    contexts = [lengths[sequence] for sequence, _ in step]
    table = torch.zeros(len(step), 2, dtype=torch.int32)
    slots = []
    for row, (sequence, count) in enumerate(step):
        table[row, : len(PAGES[sequence])] = torch.tensor(PAGES[sequence], dtype=torch.int32)
        span = range(lengths[sequence] - count, lengths[sequence])
        slots += [PAGES[sequence][s // 64] * 64 + s % 64 for s in span]
    decodes = sum(count == 1 for count in new)
    return AttentionMetadata(
        query_lengths=tuple(new),
        context_lengths=tuple(contexts),
        decodes=decodes,
        block_table=table,
        lengths=torch.tensor(contexts, dtype=torch.int32),
        slots=torch.tensor(slots),
        logit_rows=torch.arange(sum(new)),
        max_context=max(contexts[:decodes], default=0),
        on_selection=chosen,
    )


@pytest.fixture(scope="module", params=[True, False], ids=["masked multi-head form", "gathered absorbed form"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Prompts beyond index_topk have two forms of attention; on a CPU the cheaper one is chosen."""
    with patch.object(PrefillForm, "masked_mha_is_cheaper", return_value=request.param) as choice:
        yield execute()
        assert choice.called


def execute() -> Run:
    model = Transformer(CONFIG, "fp8")
    random_parameters(model, seed=0)
    layers = [
        LayerCache(caches.poisoned(PAGE_COUNT, 64, 1, 656), caches.poisoned(PAGE_COUNT, 64, 1, 132))
        for _ in range(CONFIG.num_hidden_layers)
    ]
    parts: dict[str, dict[Any, list[np.ndarray]]] = {name: defaultdict(list) for name in ("in", "out", "o", "a", "l")}
    selections: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    rows_of: list[tuple[int, slice]] = []  # of the current step

    def stream(h: torch.Tensor, update: torch.Tensor | ExpertOutputs | None) -> np.ndarray:
        """A block's inputs and outputs; the next norm adds the update."""
        if isinstance(update, ExpertOutputs):
            update = update.sum(model.compute)
        return (h if update is None else h + update).double().numpy()

    def keep(name: str, layer: int, values: np.ndarray) -> None:
        for sequence, rows in rows_of:
            parts[name][layer, sequence].append(values[rows])

    for i, block in enumerate(model.layers):
        block.register_forward_hook(lambda m, args, out, i=i: keep("in", i, stream(*args[:2])))
        block.register_forward_hook(lambda m, args, out, i=i: keep("out", i, stream(*out)))
        block.self_attn.register_forward_hook(lambda m, args, out, i=i: keep("a", i, out.double().numpy()))
        block.self_attn.o_proj.register_forward_hook(lambda m, args, out, i=i: keep("o", i, values_of(args[0])))

    lengths = {LONG: 0, SHORT: 0}
    tokens = torch.randint(CONFIG.vocab_size, (2, 128), generator=torch.Generator().manual_seed(1))
    for step in STEPS:
        rows_of.clear()
        for sequence, count in step:
            start = rows_of[-1][1].stop if rows_of else 0
            rows_of.append((sequence, slice(start, start + count)))
            lengths[sequence] += count
        positions = torch.cat([torch.arange(lengths[s] - n, lengths[s]) for s, n in step])
        chosen: dict[int, dict[int, list[int]]] = defaultdict(dict)

        def on_selection(layer: int, rows: torch.Tensor, selection: Selection, chosen: Any = chosen) -> None:
            for row, positions in zip(rows.tolist(), selection.positions.tolist(), strict=True):
                assert row not in chosen[layer]
                chosen[layer][row] = [p for p in positions if p >= 0]

        ids = torch.cat([tokens[s, lengths[s] - n : lengths[s]] for s, n in step])
        with torch.inference_mode():
            logits = model(ids, positions, metadata_of(step, lengths, on_selection), layers)
        assert logits.dtype == torch.float32
        keep("l", -1, logits.double().numpy())
        for layer in range(CONFIG.num_hidden_layers):
            for sequence, rows in rows_of:
                selections[layer, sequence] += [chosen[layer][row] for row in range(rows.start, rows.stop)]
    joined = {name: {key: np.concatenate(value) for key, value in part.items()} for name, part in parts.items()}
    return Run(
        Simulation(CONFIG, model),
        tokens.numpy(),
        layers,
        joined["in"],
        joined["out"],
        joined["o"],
        joined["a"],
        selections,
        {sequence: joined["l"][-1, sequence] for sequence in (LONG, SHORT)},
    )


def places() -> Iterator[Any]:
    for layer in range(CONFIG.num_hidden_layers):
        for sequence, name in ((LONG, "beyond top-k"), (SHORT, "within top-k")):
            yield pytest.param(layer, sequence, id=f"layer {layer}, {name}")


everywhere = pytest.mark.parametrize(("layer", "sequence"), list(places()))


def assert_near(got: np.ndarray, expected: np.ndarray, stage: str) -> None:
    difference = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
    worst = f"{stage}: {difference.max():.2e} in token {difference.argmax()}, median {np.median(difference):.2e}"
    assert (difference <= TOLERANCE[stage]).mean() >= MOST_TOKENS and difference.max() <= OTHER_TOKENS, worst


def rows_of(held: Latents) -> np.ndarray:
    """The cache entries of each token, as numbers."""
    latent = e4m3.dequantize(held.codes, held.scales)
    return np.concatenate([latent, held.rope, e4m3.VALUES[held.key_codes] * held.key_scales[:, None]], axis=1)


@everywhere
def test_caches_hold_the_simulated_bytes(run: Run, layer: int, sequence: int) -> None:
    held, expected = run.held(layer, sequence), run.simulation.cached(layer, run.inputs[layer, sequence])
    exact = np.ones(len(held.codes), bool)
    for name in ("codes", "scales", "rope", "key_codes", "key_scales"):
        same = getattr(held, name) == getattr(expected, name)
        exact &= same if same.ndim == 1 else same.all(1)
    assert exact.mean() >= MOST_TOKENS
    got, simulated = rows_of(held), rows_of(expected)
    assert (np.linalg.norm(got - simulated, axis=1) <= OTHER_TOKENS * np.linalg.norm(simulated, axis=1)).all()


@pytest.mark.parametrize("layer", range(CONFIG.num_hidden_layers))
def test_unused_cache_entries_stay_untouched(run: Run, layer: int) -> None:
    """Every byte that belongs to no token still holds poison."""
    latent, index = np.ones(PAGE_COUNT * 64 * 656, bool), np.ones(PAGE_COUNT * caches.INDEX_PAGE, bool)
    for sequence, pages in PAGES.items():
        for s in range(len(run.inputs[layer, sequence])):
            slot = pages[s // 64] * 64 + s % 64
            latent[slot * 656 : (slot + 1) * 656] = False
            index[caches.key_offset(slot) : caches.key_offset(slot) + 128] = False
            index[caches.scale_offset(slot) : caches.scale_offset(slot) + 4] = False
    for cache, untouched in ((run.caches[layer].latent, latent), (run.caches[layer].index, index)):
        assert (cache.view(-1).numpy()[untouched] == caches.POISON).all()


@everywhere
def test_selection_follows_the_quantised_scores(run: Run, layer: int, sequence: int) -> None:
    """Each token selects min(index_topk, t + 1) tokens, which score at least as high as all others."""
    queries = run.simulation.queries(layer, run.inputs[layer, sequence])
    held = run.held(layer, sequence)
    agreed = total = 0
    for token, selected in enumerate(run.selected[layer, sequence]):
        count = min(CONFIG.index_topk, token + 1)
        assert len(selected) == len(set(selected)) == count and set(selected) <= set(range(token + 1))
        scores = run.simulation.scores(queries, held, token)
        left = np.setdiff1d(np.arange(token + 1), selected)
        if len(left):
            # a query value that rounds the other way changes a score by about a thousandth of the scores' spread
            assert scores[selected].min() >= scores[left].max() - 0.01 * scores.std()
            best = np.argsort(-scores, kind="stable")[:count]
            agreed, total = agreed + len(set(selected) & set(best.tolist())), total + count
    assert agreed >= 0.99 * total
    assert (total > 0) == (sequence == LONG)


@everywhere
def test_attention_reads_what_the_cache_holds(run: Run, layer: int, sequence: int) -> None:
    queries = run.simulation.queries(layer, run.inputs[layer, sequence])
    expected = run.simulation.attended(layer, queries, run.held(layer, sequence), run.selected[layer, sequence])
    got = run.attended[layer, sequence]
    with np.errstate(divide="ignore"):
        half_step = 2.0 ** (np.floor(np.log2(np.abs(got))) - 4)  # largest change by the quantisation of o_proj's input
    beyond = np.maximum(np.abs(got - expected) - half_step, 0)
    assert_near(expected + beyond, expected, "attended")


@everywhere
def test_output_projection(run: Run, layer: int, sequence: int) -> None:
    expected = run.simulation.linear(f"layers.{layer}.self_attn.o_proj", run.attended[layer, sequence])
    assert_near(run.attention[layer, sequence], expected, "attention")


@everywhere
def test_mlp_and_residuals(run: Run, layer: int, sequence: int) -> None:
    """Dense in the first layer, experts after it; both residual sums round to bf16."""
    between = caches.to_bf16(run.inputs[layer, sequence] + run.attention[layer, sequence])
    expected = caches.to_bf16(between + run.simulation.mlp(layer, between))
    assert_near(run.outputs[layer, sequence], expected, "output")


def test_layers_follow_each_other_from_the_embedding(run: Run) -> None:
    for (layer, sequence), given in run.inputs.items():
        embedded = run.simulation.parameters["embed_tokens.weight"][run.tokens[sequence, : len(given)]]
        np.testing.assert_array_equal(given, run.outputs[layer - 1, sequence] if layer else embedded)


@pytest.mark.parametrize("sequence", [LONG, SHORT])
def test_logits(run: Run, sequence: int) -> None:
    expected = run.simulation.head(run.outputs[CONFIG.num_hidden_layers - 1, sequence])
    assert_near(run.logits[sequence], expected, "logits")
