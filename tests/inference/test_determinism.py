"""In deterministic mode a request's logits have the same bits by itself and under load, and mistakes are caught."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from campaigns.determinism import (
    Answer,
    Asked,
    differences,
    make_case,
    run,
    run_alone,
)
from campaigns.determinism_mutants import MUTANTS
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands.cli import app
from deepseek_v32.inference.config import EngineConfig
from deepseek_v32.inference.distributed import model_source
from deepseek_v32.inference.distributed.model_source import ModelSource
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.server.api.health import Measurements
from deepseek_v32.inference.server.api.metrics import Latencies
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.kernels import device as hardware
from deepseek_v32.kernels.registry import choose_implementation
from deepseek_v32.model.config import Precision
from deepseek_v32.model.metadata import Prefill
from deepseek_v32.model.mtp import MTPTables
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.prefill_form import PrefillForm
from deepseek_v32.model.synthetic.weights import fill_synthetic
from deepseek_v32.model.transformer import Transformer
from support.forked_ranks import run_ranks
from tiny_model.checkpoint import TINY, write_checkpoint

CONFIG = replace(
    TINY,
    num_hidden_layers=2,
    num_nextn_predict_layers=1,
    n_routed_experts=20,  # not a multiple of the vector width: torch's sigmoid has other code for the rest
    v_head_dim=192,
    index_topk=64,
    weight_block=(128, 128),
)
PROMPT = [random.Random(5).randrange(3, CONFIG.vocab_size) for _ in range(200)]
GREEDY = SamplingParams(temperature=0, max_tokens=3, logprobs=1, ignore_eos=True)
SAMPLED = replace(GREEDY, temperature=1.0, seed=7, top_p=0.9)
# Below and above index_topk, a shared prefix, a late arrival; chunks of 70 tokens, and too few pages for all at once.
ASKED = [
    Asked(PROMPT[:20], GREEDY),
    Asked(PROMPT[:131], SAMPLED),
    Asked(PROMPT[:7], GREEDY),
    Asked([*PROMPT[:130], 9], SAMPLED, arrival=9),
]
LIMITS = {
    "max_batch_tokens": 70,
    "max_sequences": 4,
    "page_count": 5,
    "reuse_pages": True,
    "speculative_tokens": 2,
    "threads": 1,
}
PREEMPTING = 22  # a seed that preempts a request in its first steps


def build(precision: Precision, deterministic: bool = True) -> Transformer:
    model = build_model(CONFIG, precision, "auto", "cpu", mtp=MTPTables(), deterministic=deterministic)
    fill_synthetic(model, Plan(CONFIG, mtp=MTPTables()))
    return model


@pytest.fixture(scope="module", params=["exact", "fp8"])
def model(request: pytest.FixtureRequest) -> Transformer:
    return build(request.param)


def compare(model: Transformer, asked: list[Asked]) -> tuple[list[dict[str, int]], dict[str, int]]:
    """Return the differences by request, and what happened under load."""
    answers, seen = run(model, LIMITS, asked, random.Random(PREEMPTING))
    return [
        dict(differences(run_alone(model, each), answer)) for each, answer in zip(asked, answers, strict=True)
    ], seen


def test_the_same_bits_alone_and_under_load(model: Transformer) -> None:
    wrong, seen = compare(model, ASKED)
    assert not any(wrong)
    assert seen["cached"] and seen["accepted"] and seen["preempted"], "the load reuses a prefix, speculates, preempts"


def test_without_the_mode_bits_differ() -> None:
    """Without the mode bits differ, so the comparison can fail."""
    wrong, _ = compare(build("exact", deterministic=False), ASKED[:2])
    assert any("rows" in each and "logprobs" in each for each in wrong)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_each_mistake_is_caught_under_load(name: str) -> None:
    model = build("exact")
    with MUTANTS[name].applied():
        wrong, _ = compare(model, ASKED)
    assert any(wrong)


@pytest.mark.parametrize("precision", ["exact", "bf16", "fp8"])
def test_chunks_and_steps_of_one_token(precision: Precision) -> None:
    """Teacher forcing through contexts below and above index_topk: prompts, parts of them, and decodes; close to plain logits."""
    tokens = PROMPT[:90]
    llm = LLM.from_model(build(precision), CONFIG, precision=precision, page_count=6)
    whole = llm.logits(tokens)
    for chunk in (64, 7, 1):
        assert torch.equal(llm.logits(tokens, chunk), whole), chunk
    plain = LLM.from_model(build(precision, False), CONFIG, precision=precision, page_count=6).logits(tokens)
    error = (plain - whole).norm() / plain.norm()
    assert error < (1e-5 if precision == "exact" else 0.1)


def test_prompts_and_decodes_have_one_form() -> None:
    """Whatever the length of a prompt: no chunk is computed in the multi-head form."""
    model = build_model(TINY, "exact", "auto", "cpu", deterministic=True)
    q = torch.empty(1, TINY.num_attention_heads, 8)
    plain = PrefillForm(TINY, build_model(TINY, "exact", "auto", "cpu").compute)
    form = PrefillForm(TINY, model.compute)
    lengths = (1, TINY.index_topk, TINY.index_topk + 1)
    chunks = [Prefill(slice(0, 1), length - 1, length, torch.arange(length)) for length in lengths]
    assert not any(form.is_multi_head(chunk, q) for chunk in chunks)
    assert plain.is_multi_head(chunks[0], q)


@pytest.mark.parametrize(
    ("mistake", "found_by"),
    [
        ("multi-head if short", test_prompts_and_decodes_have_one_form),
        ("pieces from the prefix", lambda: test_chunks_and_steps_of_one_token("exact")),
    ],
    ids=["multi-head-if-short", "pieces-from-the-prefix"],
)
def test_mistakes_of_whole_prompts_are_found(mistake: str, found_by: Callable[[], None]) -> None:
    """Mistakes of whole prompts are found. tests/kernels/test_determinism.py has mistakes of single operations."""
    with MUTANTS[mistake].applied(), pytest.raises(AssertionError):
        found_by()


def test_differences_are_found() -> None:
    one = Answer([1, 2], [0.5, 0.25], ["a", "b"], "length")
    assert not differences(one, replace(one))
    assert differences(one, replace(one, rows=["a", "c"])) == {"rows": 1}
    assert differences(one, replace(one, logprobs=[0.5, 0.125])) == {"logprobs": 1}
    assert differences(one, replace(one, tokens=[1])) == {"ends": 1}
    assert not differences(one, Answer([1], [0.5], ["a"], "abort"))
    assert differences(one, replace(one, end="error")) == {"ends": 1}


def test_cases_cover_what_they_should() -> None:
    cases = [make_case(seed, 4096) for seed in range(40)]
    assert {limits["speculative_tokens"] for limits, _ in cases} == {0, 1, 2, 3, 4}
    assert {limits["reuse_pages"] for limits, _ in cases} == {True, False}
    asked = [each for _, requests in cases for each in requests]
    lengths = [len(each.prompt) for each in asked]
    assert min(lengths) == 1 and max(lengths) > 200 and sorted(lengths)[len(lengths) // 2] < 40
    assert any(each.cancelled for each in asked) and {each.params.greedy for each in asked} == {True, False}


@pytest.mark.parametrize(("precision", "hopper"), [("exact", True), ("fp8", False)])
def test_what_is_refused_on_a_gpu(precision: Precision, hopper: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """fp32 products have no batch-invariant kernel on a GPU, and other GPUs than Hopper's have none at all."""
    for name in ("check_device", "check_backend"):
        monkeypatch.setattr(model_source, name, lambda *arguments: None)
    monkeypatch.setattr(hardware, "is_hopper", lambda device: hopper)
    monkeypatch.setattr(hardware, "describe", lambda device: "some GPU")
    choose_implementation.cache_clear()
    words = rf"deterministic is True in {precision} precision on cuda; expected a CPU, or fp8 or bf16 on a Hopper GPU: .* some GPU"
    try:
        with pytest.raises(ValueError, match=words) as error:
            ModelSource.resolve(DEMO, EngineConfig(device="cuda", precision=precision, deterministic=True))
    finally:
        choose_implementation.cache_clear()
    assert len(str(error.value).splitlines()) == 1


def test_the_mode_is_on_or_off() -> None:
    with pytest.raises(ValueError, match="deterministic is 'yes'; expected"):
        LLM(deterministic="yes")  # type: ignore[arg-type]


def test_the_command_says_that_the_mode_is_on(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", replace(TINY, num_hidden_layers=1))
    (tmp_path / "in.jsonl").write_text(json.dumps({"token_ids": [5, 6, 7]}) + "\n")
    arguments = ["generate", "--model", str(tmp_path / "model"), "--device", "cpu", "--max-new-tokens", "2"]
    files = ["--input-file", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    result = CliRunner().invoke(app, [*arguments, *files, "--deterministic"])
    assert result.exit_code == 0, result.output
    assert "batch-invariant kernels, deterministic, context of" in result.stderr


def test_metrics_say_that_the_mode_is_on() -> None:
    for deterministic in (True, False):
        model = build_model(CONFIG, "exact", "reference", "cpu", deterministic=deterministic)
        llm = LLM.from_model(model, CONFIG, precision="exact", page_count=4)
        with_service = Service(llm)
        try:
            text = Measurements(with_service, Latencies()).text().decode()
        finally:
            with_service.stop()
        assert f"deepseek_v32_deterministic {float(deterministic)}" in text.splitlines()


RANKS = """
import json, sys
import torch
import torch.distributed as dist
from deepseek_v32.inference import LLM
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.parallel.collectives import Ranks

dist.init_process_group("gloo")
ranks = Ranks(dist.get_rank(), dist.get_world_size())
same = []
for precision in ("exact", "fp8") if ranks.size == 2 else ("exact",):
    whole_attention = ranks.size == 2  # with which other modes divide prompts of at least 16 tokens a rank
    model = load_model(sys.argv[1], precision, ranks=ranks, deterministic=True, whole_attention=whole_attention)
    llm = LLM.from_model(model, model.config, precision=precision, page_count=8)
    tokens = [i * 7919 % model.config.vocab_size for i in range(70)]
    whole = llm.logits(tokens)
    same += [torch.equal(llm.logits(tokens, 33), whole), torch.equal(llm.logits(tokens[:20], 1), whole[:20])]
print(json.dumps(same))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.heavy
def test_ranks_are_deterministic_for_their_number(tmp_path: Path, size: int) -> None:
    """Heads, experts and MLPs are split, in chunks as in decodes."""
    config = replace(TINY, num_attention_heads=8, num_hidden_layers=2, index_topk=16, intermediate_size=512)
    write_checkpoint(tmp_path / "model", config)
    for rank in run_ranks(size, RANKS, tmp_path / "model"):
        assert rank.code == 0, rank.err
        assert all(json.loads(rank.out.splitlines()[-1]))
