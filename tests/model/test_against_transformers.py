"""Exact precision against an independent implementation: transformers' deepseek_v32, in fp32.

index_topk is 24 throughout: lengths of 20, 24, 25 and 72 lie below, at, just above and far above it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.kernels.reference import indexer_logits
from deepseek_v32.model.indexer import Indexer, IndexQueries
from deepseek_v32.model.metadata import LayerCache, Prefill, Selection
from deepseek_v32.model.moe import Router
from support.oracle import VOCAB, Case, decisive_case, make_oracle, oracle_logits, random_tokens, relative_error

TOLERANCE = 1e-5  # relative L2 of a token's logits; fp32 reordering by itself gives 2e-6 to 4e-6
MUTANT_ERROR = 1e-2  # least error of a wrong formula: a thousand times the tolerance

GROUPS = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 3), (4, 4)]
CASES = (
    [
        Case(f"groups {n} keep {kept} seed {seed}", seed, overrides={"n_group": n, "topk_group": kept})
        for seed, (n, kept) in enumerate(GROUPS * 2)
        if 8 // n * kept >= 3
    ]
    + [
        Case(f"dense layers {dense}, yarn {yarn}", 20 + dense, yarn=yarn, overrides={"first_k_dense_replace": dense})
        for dense in (0, 1, 3)
        for yarn in (False, True)
    ]
    + [Case(f"lengths around index_topk, seed {seed}", seed, lengths=(1, 20, 24, 25, 72)) for seed in range(30, 36)]
    + [
        Case("no renormalised expert weights", 40, overrides={"norm_topk_prob": False}),
        Case("two shared experts", 41, overrides={"n_shared_experts": 2}),
        Case("one expert a token", 42, overrides={"num_experts_per_tok": 1}),
        Case("64 index heads", 44, overrides={"index_n_heads": 64}),
        Case("index_topk 1", 45, overrides={"index_topk": 1}),
        Case("index_topk beyond every length", 46, overrides={"index_topk": 512}),
        Case("released head dimensions", 47, overrides={"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
             | {"kv_lora_rank": 512, "index_head_dim": 128}),
        Case("one layer", 48, overrides={"num_hidden_layers": 1}),
        Case("rotary part as wide as the index head", 49, overrides={"qk_rope_head_dim": 32}),
        Case("long prompt", 50, lengths=(300,)),
        Case("narrow ranks", 51, overrides={"q_lora_rank": 17, "kv_lora_rank": 20, "hidden_size": 36}),
        Case("tied embeddings", 52, overrides={"tie_word_embeddings": True}),
        Case("one head", 53, overrides={"num_attention_heads": 1, "num_key_value_heads": 1}),
        Case("other seed, no yarn", 54, yarn=False, lengths=(25, 130)),
        Case("another norm epsilon", 56, overrides={"rms_norm_eps": 1e-2}),
        Case("large scaling factor", 55, overrides={"routed_scaling_factor": 10.0}),
    ]
)  # fmt: skip


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_logits(case: Case, tmp_path: Path) -> None:
    prompts = [random_tokens(length, case.seed) for length in case.lengths]
    oracle, llm = decisive_case(case, tmp_path, lambda llm: [llm.logits(tokens) for tokens in prompts], page_count=16)
    for tokens in prompts:
        expected = oracle_logits(oracle, tokens)
        for chunk in (None, 64, 7, 1):  # whole; a page; inside pages; token by token, which is the decode path
            error = relative_error(llm.logits(tokens, chunk), expected)
            assert error <= TOLERANCE, f"length {len(tokens)}, chunk {chunk}: relative error {error:.2e}"


@pytest.mark.parametrize("masked", [True, False], ids=["masked multi-head form", "gathered absorbed form"])
def test_both_forms_of_sparse_prefill(masked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = 10**9 if masked else -(10**9)
    monkeypatch.setattr("deepseek_v32.model.prefill_form.REFERENCE_GATHER_COST", cost)
    tokens = random_tokens(150, 60)
    oracle, llm = decisive_case(Case("both forms", 60), tmp_path, lambda llm: llm.logits(tokens), page_count=16)
    for chunk in (None, 7):
        assert relative_error(llm.logits(tokens, chunk), oracle_logits(oracle, tokens)) <= TOLERANCE


@pytest.mark.parametrize("reuse_pages", [True, False], ids=["prefix reused", "nothing reused"])
def test_ragged_batch_through_the_engine(reuse_pages: bool, tmp_path: Path) -> None:
    """Prompts of many lengths at once, small steps, greedy decoding: each step's distribution against the oracle's."""
    shared = random_tokens(130, 70)
    prompts = [shared[:n] for n in (130, 1, 24, 66, 130)] + [random_tokens(n, n) for n in (2, 25, 97)]
    params = SamplingParams(temperature=0, max_tokens=12, logprobs=VOCAB, ignore_eos=True)
    oracle, llm = decisive_case(
        Case("ragged", 70),
        tmp_path,
        lambda llm: llm.generate(prompts, params),
        page_count=40,
        max_batch_tokens=48,
        reuse_pages=reuse_pages,
    )
    for _ in range(2):  # in the second round every full page is cached
        for prompt, completion in zip(prompts, llm.generate(prompts, params), strict=True):
            expected = oracle_logits(oracle, prompt + completion.token_ids).log_softmax(-1)[len(prompt) - 1 : -1]
            assert completion.logprobs is not None
            got = torch.empty_like(expected)
            for row, logprob in zip(got, completion.logprobs, strict=True):
                ids, values = zip(*logprob.top, strict=True)
                row[list(ids)] = torch.tensor(values)
            assert relative_error(got, expected) <= TOLERANCE
            assert completion.token_ids == expected.argmax(-1).tolist()
    assert (llm.stats().cached_tokens > 0) == reuse_pages


def _no_relu(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, k_scale: torch.Tensor | None) -> torch.Tensor:
        return torch.einsum("thd,sd,th->ts", q, k, weights)

    monkeypatch.setattr(indexer_logits, "_scores", scores)


def _no_correction_bias(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in llm.model.modules():  # type: ignore[attr-defined]
        if isinstance(module, Router):
            module.e_score_correction_bias.zero_()


def _no_mscale(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in llm.model.layers:  # type: ignore[attr-defined]
        layer.self_attn.softmax_scale = llm.config.qk_head_dim**-0.5


def _keys_of_this_chunk_only(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Indexer.select_prefill

    def select(
        self: Indexer, queries: IndexQueries, prefill: Prefill, cache: LayerCache, with_scores: bool
    ) -> Selection:
        chunk = Prefill(prefill.rows, 0, prefill.length - prefill.start, prefill.context_slots[prefill.start :])
        positions = whole(self, queries, chunk, cache, with_scores).positions
        return Selection(torch.where(positions < 0, -1, positions + prefill.start))

    monkeypatch.setattr(Indexer, "select_prefill", select)


def _unit_weights(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Indexer.queries

    def queries(self: Indexer, *args: torch.Tensor) -> IndexQueries:
        found = original(self, *args)
        return found._replace(weights=torch.ones_like(found.weights))

    monkeypatch.setattr(Indexer, "queries", queries)


MUTANTS: dict[str, Callable[[LLM, pytest.MonkeyPatch], None] | None] = {
    "interleaved indexer RoPE": None,  # a configuration key, see test_mutants_are_caught
    "no ReLU": _no_relu,
    "no correction bias": _no_correction_bias,
    "mscale missing": _no_mscale,
    "indexer keys of the current chunk only": _keys_of_this_chunk_only,
    "unit weights": _unit_weights,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plausible bug changes the logits by far more than the tolerance of the tests above."""
    oracle = make_oracle(Case("mutants", 80), tmp_path)
    plant = MUTANTS[mutant]
    overrides = {"indexer_rope_interleave": True} if plant is None else None
    llm = LLM(tmp_path, device="cpu", precision="exact", page_count=16, config_overrides=overrides)
    if plant is not None:
        plant(llm, monkeypatch)
    tokens = random_tokens(100, 80)
    assert relative_error(llm.logits(tokens, 40), oracle_logits(oracle, tokens)) > MUTANT_ERROR
