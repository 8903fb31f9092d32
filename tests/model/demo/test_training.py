"""Training further from the shipped checkpoint: its weights come back, the plan fits, and a run that stopped goes on."""

import argparse
import json
import multiprocessing
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file

from deepseek_v32.inference.llm import DEMO
from demo_model.training.arguments import parse
from demo_model.training.data import Batches, _claim
from demo_model.training.export import restore, tensors
from demo_model.training.model import Model
from demo_model.training.pace import Pace, expected_seconds
from demo_model.training.routing import largest, route
from demo_model.training.schedule import ANEW, CONTINUED, schedule
from demo_model.training.shape import Shape
from demo_model.training.trainer import Trainer


def dequantised(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Every weight in fp32: each block of 128 × 128 times its scale."""
    out = {}
    for name, value in weights.items():
        if name.endswith("_scale_inv"):
            continue
        scale = weights.get(f"{name}_scale_inv")
        out[name] = value.float()
        if scale is not None:
            rows, columns = value.shape
            out[name] *= scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    return out


def test_the_shipped_weights_come_back_as_they_are():
    model = Model(Shape())
    restore(model, DEMO)
    shipped = dequantised(load_file(DEMO / "model.safetensors"))
    again = dequantised(tensors(model))
    assert again.keys() == shipped.keys()
    for name, value in shipped.items():
        assert torch.equal(again[name], value), name
    # One of each kind by hand: a stacked expert, a split norm, the draft layer.
    assert torch.equal(model.layers[1].expert_up[3], shipped["model.layers.1.mlp.experts.3.up_proj.weight"])
    assert torch.equal(model.layers[0].index_k_bias, shipped["model.layers.0.self_attn.indexer.k_norm.bias"])
    assert torch.equal(model.draft.layer.kv_b, shipped["model.layers.3.self_attn.kv_b_proj.weight"])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({}, "expected a folder with config.json and model.safetensors"),
        ({"hidden_size": 512}, "hidden_size of .* is 512; expected 256"),
        ({"index_topk": None}, "index_topk of .* is None; expected 128"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(tmp_path, broken, message):
    if broken:
        config = json.loads((DEMO / "config.json").read_text()) | broken
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "model.safetensors").symlink_to(DEMO / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        restore(Model(Shape()), tmp_path)


def test_training_further_ends_at_long_texts_and_fits_the_time_it_states():
    plan = schedule(1.0, 1, course=CONTINUED)
    rates = [step.rate for step in plan if step.stage == "dense"]
    assert rates[0] < 0.01 and max(rates) <= CONTINUED.rate, "a new optimizer warms up"
    lengths = [step.length for step in plan if step.stage == "sparse"]
    assert 0.7 < sum(length >= 8192 for length in lengths) / len(lengths) < 0.8
    assert max(lengths) == Shape().positions
    # Seconds that a step took on one H200, by stage; 32K tokens estimated.
    seconds = {"dense": 0.0395, "indexer": 0.112, "sparse": 0.187, "draft": 0.081}
    total = sum(0.25 if step.length > 16384 else seconds[step.stage] for step in plan)
    assert 18 * 60 < total < 20 * 60
    assert all(step.length == 128 for step in schedule(0.01, 1, tokens=128, course=ANEW) if step.stage != "dense")


@pytest.mark.parametrize(("k", "count"), [(1, 4), (2, 2), (2, 4), (2, 8)])
def test_the_largest_are_those_of_topk_and_of_equal_ones_the_first(k, count):
    values = torch.randn(500, count, generator=torch.Generator().manual_seed(count))
    mask = largest(values, k)
    assert torch.equal(mask, torch.zeros_like(values).scatter_(1, values.topk(k, -1).indices, 1.0).bool())
    assert largest(torch.zeros(count), k).nonzero().flatten().tolist() == list(range(k))


def test_a_token_goes_to_two_experts_of_the_two_best_groups():
    shape, generator = Shape(), torch.Generator().manual_seed(1)
    h, router = (torch.randn(n, 256, generator=generator) for n in (300, shape.experts))
    bias = torch.randn(shape.experts, generator=generator) / 4
    weights, load = route(h, router / 16, bias, shape)
    assert torch.equal((weights > 0).sum(-1), torch.full((300,), 2)) and load.sum() == pytest.approx(2.0)
    assert weights.sum(-1).tolist() == pytest.approx([shape.routed_scaling] * 300, rel=1e-5)
    for token in range(300):
        scores = torch.sigmoid(h[token] @ router.T / 16)
        biased = (scores + bias).view(4, 2)
        groups = biased.sum(-1).argsort(descending=True)[:2].tolist()
        rest = sorted(((biased[g, e].item(), 2 * g + e) for g in groups for e in (0, 1)), reverse=True)
        assert sorted(expert for _, expert in rest[:2]) == weights[token].nonzero().flatten().tolist()


def run_in_time(plan, seconds, slowness, too_long=None, compiling=1):
    """A machine on which a stage takes `slowness` times what is expected, and the first 25 dense steps `compiling` times as long:
    (its clock at the end, steps trained by stage)."""
    left_out, clock, window = [0] * len(plan), 0.0, []
    pace, trained = Pace(plan, left_out, 0, seconds), Counter()
    for number, step in enumerate(plan):
        if left_out[number]:
            continue
        if too_long and step.stage == "sparse" and step.length >= too_long:
            pace.drop(step.stage, step.length)
            continue
        if window and window[-1].stage != step.stage:
            window = []
        window.append(step)
        factor = slowness.get(step.stage, 1.0) * (compiling if trained.total() < 25 else 1)
        trained[step.stage] += 1
        clock += expected_seconds(step) * factor
        if len(window) == 25:
            pace.record(window, sum(expected_seconds(s) for s in window) * factor)
            pace.update(number + 1, clock)
            window = []
    return clock, trained


@pytest.mark.parametrize(
    "slowness",
    [{}, {"dense": 1.5}, {"sparse": 1.5, "draft": 1.3}, {"dense": 3}, dict.fromkeys(["dense", "sparse", "draft"], 3)],
)
def test_a_plan_ends_in_time_on_a_machine_of_any_speed(slowness):
    """Time is short: dense steps give way, and the stages after them stay whole unless they would need most of it."""
    plan = schedule(1.0, 1, course=CONTINUED)
    clock, trained = run_in_time(plan, 1110.0, slowness)
    assert 1110 * 0.75 < clock < 1110 * 1.04, clock
    kept = {stage: trained[stage] / CONTINUED.steps[stage] for stage in CONTINUED.steps}
    least = 0.3 if slowness.get("draft") == 3 else 0.7 if "sparse" in slowness else 0.9
    assert min(kept["sparse"], kept["draft"], kept["indexer"]) > least and kept["dense"] > 0.1, kept


def test_what_the_first_steps_compile_is_not_the_speed_of_the_next_ones():
    plan = schedule(1.0, 1, course=CONTINUED)
    _, whole = run_in_time(plan, 1110.0, {})
    clock, trained = run_in_time(plan, 1110.0, {}, compiling=50)
    assert 1110 * 0.95 < clock < 1110 * 1.01, clock
    assert trained["dense"] > whole["dense"] * 0.94 and trained["sparse"] == whole["sparse"]


def test_without_a_limit_no_step_is_left_out():
    plan = schedule(0.1, 1, course=CONTINUED)
    assert run_in_time(plan, None, {"dense": 9.0})[1].total() == len(plan)


def test_steps_that_do_not_fit_the_memory_are_left_out():
    plan = schedule(1.0, 1, course=CONTINUED)
    clock, trained = run_in_time(plan, 1110.0, {}, too_long=32768)
    shorter = sum(step.stage == "sparse" and step.length < 32768 for step in plan)
    assert trained["draft"] and 0.7 * shorter < trained["sparse"] <= shorter
    assert clock < 1110 * 1.03


def test_steps_that_are_left_out_leave_no_worker_without_work():
    """One step in four, and four workers: each claims the next one that is left, whichever it is."""
    taken = multiprocessing.get_context("spawn").Value("l", 3)
    flags = [int(number % 4 != 1) for number in range(20)]
    assert [_claim(taken, flags) for _ in range(4)] == [5, 9, 13, 17] and _claim(taken, flags) >= 20


def test_batches_leave_out_what_is_flagged(tmp_path):
    batches = Batches(DEMO / "tokenizer.json", 1, [(256, 1)] * 6, 1)
    batches.left_out[2] = 1
    try:
        assert [number for number, *_ in batches] == [0, 1, 3, 4, 5]
    finally:
        batches.close()


@pytest.mark.slow
def test_a_run_that_stopped_goes_on_with_its_own_plan(tmp_path):
    first = Trainer(
        argparse.Namespace(
            out=tmp_path, seed=3, scale=0.01, rate=0.5, tokens=1024, device="cpu", checkpoint=DEMO, resume=False
        )
    )
    assert (tmp_path / "tokenizer.json").read_bytes() == (DEMO / "tokenizer.json").read_bytes()
    first.step = 17
    with torch.no_grad():
        first.model.norm += 1.0
    first.save()
    again = Trainer(
        argparse.Namespace(
            out=tmp_path, seed=1, scale=1.0, rate=1.0, tokens=65536, device="cpu", checkpoint=None, resume=True
        )
    )
    assert again.step == 17 and again.plan == first.plan and again.draft_started
    assert max(step.rate for step in first.plan) == 0.5, "half of the learning rate, from the first command"
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
    with pytest.raises(ValueError, match="--resume needs"):
        Trainer(
            argparse.Namespace(
                out=tmp_path / "no", seed=1, scale=1.0, rate=1.0, tokens=1, device="cpu", checkpoint=None, resume=True
            )
        )


@pytest.mark.parametrize("argument", ["--rate=0", "--scale=nan", "--seconds=-1", "--minutes=inf"])
def test_numbers_that_are_not_positive_are_refused(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["train_demo.py", "--out", "nowhere", argument])
    with pytest.raises(SystemExit):
        parse("")
    name, value = argument.split("=")
    assert f"{name} is {float(value)}; expected a positive number" in capsys.readouterr().err
