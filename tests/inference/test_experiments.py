"""Requests with a SelectionPolicy, against models that are configured so, against arithmetic, and against themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.model.selection_policy import SelectionPolicy
from support.tiny import tiny_checkpoint

PROMPT = [3 + i * 7 % 200 for i in range(150)]
TOPK = 64
GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, logprobs=8)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LLM]:
    path: Path = tiny_checkpoint(tmp_path_factory.mktemp("experiments"))

    def llm(precision: Any = "exact", reuse: bool = False, chunk: int = 2048, **overrides: Any) -> LLM:
        overrides = {"index_topk": TOPK, **overrides}
        sizes = {"page_count": 32, "max_batch_tokens": chunk, "reuse_pages": reuse}
        return LLM(path, device="cpu", precision=precision, config_overrides=overrides, **sizes)

    return llm


# A policy from the first token on, and the configuration in which every request is computed so.
CONFIGURED = {
    "k of 16": (SelectionPolicy(topk=16), {"index_topk": 16}),
    "k of 100": (SelectionPolicy(topk=100), {"index_topk": 100}),
    "dense": (SelectionPolicy(selector="dense"), {"index_topk": 1024}),
    "wrong RoPE": (SelectionPolicy(selector="wrong_rope"), {"indexer_rope_interleave": True}),
}


@pytest.mark.parametrize("chunk", [2048, 40], ids=["whole", "chunks"])
@pytest.mark.parametrize("name", CONFIGURED)
def test_a_policy_computes_what_a_model_so_configured_computes(make: Any, name: str, chunk: int) -> None:
    policy, overrides = CONFIGURED[name]
    plain, altered = make(chunk=chunk), make(chunk=chunk, **overrides)
    [expected] = altered.generate(PROMPT, GREEDY, inspect=True)
    [ordinary] = plain.generate(PROMPT, GREEDY)
    [found] = plain.generate(PROMPT, GREEDY, inspect=True, policy=policy)
    assert _difference(found, expected) < 1e-4 < _difference(ordinary, expected)
    for ours, theirs in zip(found.selection, expected.selection, strict=True):
        assert all((ours.layers[layer] == theirs.layers[layer]).all() for layer in theirs.layers)
    assert found.timings.selected_fraction == expected.timings.selected_fraction


def test_wrong_rope_over_fp8_keys(make: Any) -> None:
    """Keys are rotated back from the cache. Queries and scores are in fp32 here, in FP8 in the configured model."""
    [expected] = make("fp8", indexer_rope_interleave=True).generate(PROMPT, GREEDY, inspect=True)
    llm = make("fp8")
    [ordinary] = llm.generate(PROMPT, GREEDY, inspect=True)
    [found] = llm.generate(PROMPT, GREEDY, inspect=True, policy=SelectionPolicy(selector="wrong_rope"))

    def shared(one: Any, other: Any) -> float:
        return len(np.intersect1d(one.selection[0].layers[0], other.selection[0].layers[0])) / TOPK

    assert shared(found, expected) > 0.95 > shared(ordinary, expected)


def test_window_forbidden_and_pinned_positions(make: Any) -> None:
    llm = make()
    [ordinary] = llm.generate(PROMPT, GREEDY, inspect=True)
    hidden = tuple(int(each) for each in ordinary.selection[0].layers[0][5:8])
    spans = tuple((each, each + 1) for each in hidden)
    missing = next(each for each in range(150) if each not in ordinary.selection[0].layers[0])
    pinned = ((missing, missing + 1),)
    window, changed, both = (
        llm.generate(PROMPT, GREEDY, inspect=True, policy=SelectionPolicy(149, **options))[0]
        for options in (
            {"selector": "window", "topk": 20},
            {"forbidden": spans, "pinned": pinned},
            {"selector": "dense", "forbidden": ((10, 20),)},
        )
    )
    for i in range(5):
        position = 149 + i
        for layer in (0, 1):
            assert window.selection[i].layers[layer].tolist() == list(range(position - 19, position + 1))
            chosen = changed.selection[i].layers[layer]
            assert len(chosen) == TOPK and not set(hidden) & set(chosen.tolist()) and missing in chosen
            assert both.selection[i].layers[layer].tolist() == [*range(10), *range(20, position + 1)]
    # Everything else is still selected by score: the pinned token took one place, the next best took the hidden tokens' places.
    before, after = (set(each.selection[0].layers[0].tolist()) for each in (ordinary, changed))
    assert len(before - after - set(hidden)) <= 1 and len(after - before) == len(before - after)


@pytest.mark.parametrize("chunk", [2048, 64], ids=["whole", "chunks"])
@pytest.mark.parametrize("length", [150, 40], ids=["selecting", "everything fits"])
def test_a_recorded_selection_is_replayed_bit_by_bit(make: Any, chunk: int, length: int) -> None:
    llm = make(chunk=chunk)
    [first] = llm.generate(PROMPT[:length], GREEDY, inspect=True)
    [again] = llm.generate(PROMPT[:length], GREEDY, inspect=True, policy=first.replay())
    assert again.logprobs == first.logprobs and again.token_ids == first.token_ids
    # It is the record that is read: with one of another answer, the bits differ.
    [window] = llm.generate(PROMPT[:length], GREEDY, inspect=True, policy=SelectionPolicy(selector="window", topk=9))
    [other] = llm.generate(PROMPT[:length], GREEDY, inspect=True, policy=window.replay())
    assert other.logprobs != first.logprobs
    assert all(len(chosen) == 9 for each in other.selection for chosen in each.layers.values())


def test_an_experiment_reads_shared_pages_and_leaves_none(make: Any) -> None:
    """Pages before its start are reused. Pages after it are found by no one, not even by the experiment itself."""
    llm = make(reuse=True)
    [ordinary] = llm.generate(PROMPT, GREEDY)
    policy = SelectionPolicy(100, "window", topk=9)
    [one], [two] = (llm.generate(PROMPT, GREEDY, policy=policy) for _ in range(2))
    assert one.usage.cached_tokens == two.usage.cached_tokens == 64 and one.logprobs == two.logprobs
    fresh = make(reuse=False)
    [expected] = fresh.generate(PROMPT, GREEDY, policy=policy)
    assert _difference(one, expected) < 1e-5
    [again] = llm.generate(PROMPT, GREEDY)
    assert again.usage.cached_tokens == 128 and _difference(again, ordinary) < 1e-5
    # An experiment that comes first leaves its ordinary prefix to others, and no more.
    llm = make(reuse=True)
    llm.generate(PROMPT, GREEDY, policy=policy)
    [ordinary] = llm.generate(PROMPT, GREEDY)
    assert ordinary.usage.cached_tokens == 64 and _difference(ordinary, again) < 1e-5


def test_experiments_and_ordinary_requests_share_steps(make: Any) -> None:
    llm = make(reuse=True, chunk=50)
    prompts = [PROMPT, PROMPT[::-1], PROMPT[30:], PROMPT[:70]]
    policies = [None, SelectionPolicy(60, "dense"), SelectionPolicy(2, topk=16), SelectionPolicy(9, "wrong_rope")]
    single = [llm.generate(prompt, GREEDY, policy=policy)[0] for prompt, policy in zip(prompts, policies, strict=True)]
    requests = [
        llm.engine.requests.from_tokens(prompt, GREEDY, policy=policy)
        for prompt, policy in zip(prompts, policies, strict=True)
    ]
    together = dict(llm.driver.completions(requests))
    assert max(_difference(together[i], single[i]) for i in range(4)) < 1e-4


def test_measured_mass_is_that_of_dense_attention(tmp_path: Path) -> None:
    """In the first layer hidden states do not depend on the selection, so transformers' dense attention weights say the mass."""
    pytest.importorskip("transformers")
    from support.oracle import Case, make_oracle

    oracle = make_oracle(Case("mass", 3, overrides={"index_topk": 512}), tmp_path)
    oracle.set_attn_implementation("eager")
    prompt = [5 + i * 11 % 50 for i in range(90)]
    llm = LLM(tmp_path, device="cpu", precision="exact", page_count=16, config_overrides={"index_topk": 24})
    policy = SelectionPolicy(89, measure=True)
    [answer] = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), True, policy)
    ids = torch.tensor([prompt + answer.token_ids])
    weights = oracle(ids, output_attentions=True).attentions[0][0]  # [H, T, T]
    for selection in answer.selection:
        assert len(selection.layers[0]) == 24
        expected = weights[:, selection.position, torch.from_numpy(selection.layers[0]).long()].sum(-1)
        assert torch.allclose(torch.from_numpy(selection.mass[0]), expected, atol=1e-4)
        assert float(expected.min()) > 0.05 and float(expected.max()) < 0.95
    [dense] = llm.generate(prompt, GREEDY, True, SelectionPolicy(89, "dense", measure=True))
    assert all(abs(mass - 1).max() < 1e-5 for each in dense.selection for mass in each.mass.values())


@pytest.mark.parametrize("chunk", [2048, 64], ids=["whole", "chunks"])
@pytest.mark.parametrize("policy", [None, SelectionPolicy(100, "window", topk=9)], ids=["ordinary", "window"])
def test_an_answer_is_scored_as_it_was_sampled(make: Any, policy: SelectionPolicy | None, chunk: int) -> None:
    llm = make(reuse=True, chunk=chunk)
    prompt = PROMPT + PROMPT[:30]
    [sampled] = llm.generate(prompt, GREEDY, True, policy)
    before = llm.stats()
    scores = llm.score_answer(prompt, sampled.token_ids, policy, top=8)
    assert llm.stats().pages_used == 0 and llm.stats().pages_cached == before.pages_cached
    for ours, theirs in zip(scores.logprobs, sampled.logprobs, strict=True):
        assert (ours.token_id, len(ours.top)) == (theirs.token_id, 8) and abs(ours.logprob - theirs.logprob) < 1e-4
    for ours, theirs in zip(scores.selections, sampled.selection, strict=True):
        assert ours.position == theirs.position
        assert all((ours.layers[layer] == theirs.layers[layer]).all() for layer in theirs.layers)


def test_a_recorded_completion_shows_itself(make: Any, tmp_path: Path) -> None:
    llm = make()
    [plain] = llm.generate(PROMPT, GREEDY)
    assert plain.recording is None and plain._repr_html_() is None
    for refused in (lambda: plain.save_html(tmp_path / "a.html"), plain.replay, lambda: llm.measure(plain)):
        with pytest.raises(ValueError, match="inspect=True"):
            refused()
    [answer] = llm.generate(PROMPT, GREEDY, inspect=True)
    *_, last = llm.stream(PROMPT, GREEDY, inspect=True)
    assert last.completion.recording.answer == answer.recording.answer == answer.token_ids
    about = {"model": "tiny", "precision": "exact", "temperature": 0, "top_p": 1.0}
    assert last.completion.recording.about == answer.recording.about == about
    [drawn] = llm.generate(PROMPT, SamplingParams(max_tokens=1, temperature=0.5, seed=7), inspect=True)
    assert drawn.recording.about == about | {"temperature": 0.5, "seed": 7}
    llm.measure(answer)
    assert np.shape(answer.recording.mass()["shares"])[:2] == (5, 2)
    assert answer.recording.logprobs == pytest.approx([each.logprob for each in answer.logprobs], abs=1e-3)
    assert answer._repr_html_().startswith("<iframe srcdoc=")
    answer.save_html(tmp_path / "answer.html")
    assert "What DeepSeek Sparse Attention read" in (tmp_path / "answer.html").read_text()


@pytest.mark.parametrize("most", [0, 2, 50])
def test_only_so_many_tokens_are_recorded(make: Any, most: int) -> None:
    """A recording keeps the texts and shares of the others."""
    llm = make()
    [whole] = llm.generate(PROMPT, GREEDY, inspect=True)
    with Service(llm) as service, service.stream(PROMPT, GREEDY, inspect=most) as stream:
        deltas = list(stream)
    assert deltas[-1].completion.token_ids == whole.token_ids
    recording = llm.recorder.begin(PROMPT, GREEDY)
    for delta in deltas:
        recording.add(delta.token_ids[0], delta.selection)
    assert recording.count == min(most, len(whole.token_ids))
    assert recording.header()["shares"] == whole.recording.header()["shares"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"selector": "magic"}, "selector is 'magic'"),
        ({"topk": 0}, "topk is 0"),
        ({"start": -1}, "start is -1"),
        ({"forbidden": ((3, 3),)}, "forbidden holds"),
        ({"forbidden": ((100, 151),)}, "forbidden ends at position 151"),
        ({"pinned": ((0, 65),)}, "pinned has 65 positions; expected at most topk, which is 64"),
    ],
)
def test_a_wrong_policy_is_refused_before_anything_runs(make: Any, policy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().generate(PROMPT, GREEDY, policy=SelectionPolicy(**policy))


def test_a_policy_survives_its_message() -> None:
    recorded = {7: {0: np.array([1, 5], np.int32), 3: np.array([], np.int32)}, 9: {0: np.arange(9, dtype=np.int32)}}
    policy = SelectionPolicy(3, "wrong_rope", 17, ((1, 4), (9, 12)), ((5, 6),), recorded, True)
    again = SelectionPolicy.from_json(json.loads(json.dumps(policy.to_json())))
    assert again.to_json() == policy.to_json() and again.recorded[7][0].dtype == np.int32
    assert (again.start, again.selector, again.topk, again.forbidden) == (3, "wrong_rope", 17, ((1, 4), (9, 12)))
    assert (again.pinned, again.measure, again.recorded[9][0].tolist()) == (((5, 6),), True, list(range(9)))


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference between the log-probabilities of equal answers; infinite for different answers."""
    if one.token_ids != other.token_ids:
        return float("inf")
    return float(
        torch.tensor([a.logprob - b.logprob for a, b in zip(one.logprobs, other.logprobs, strict=True)]).abs().max()
    )
