"""Whether a model fits, and how many cache pages do, is computed before loading. GPUs' reports are simulated here."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, offload_speed
from deepseek_v32.inference.cache_check.check import CacheCheck
from deepseek_v32.inference.config import CacheBudget, EngineConfig
from deepseek_v32.inference.distributed.model_source import ModelSource
from deepseek_v32.inference.engine import sizing
from deepseek_v32.inference.engine.running.cache import allocate, bytes_per_page
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.sizing import check_fits, has_room_for_heads, pages_in_memory, resolve_limits
from deepseek_v32.inference.engine.warm_up import (
    largest_step,
    prepare_largest_step,
    shortest_prompt,
    warm_up_logits,
)
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model, parameter_bytes
from deepseek_v32.model.synthetic.weights import fill_synthetic
from support.tiny import tiny_checkpoint
from tiny_model.checkpoint import TINY

RELEASED = ModelConfig()
GIB = 2**30


@pytest.fixture
def gpu(monkeypatch):
    """Simulates a GPU: call it with the GiB that are free and the GiB in total."""

    def simulate(free: float, total: float) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free * GIB), int(total * GIB)))

    return simulate


def test_the_released_models_weights():
    """671 B parameters in FP8 are 642 GiB on disk with the MTP layer; each of eight ranks holds an eighth and the replicated."""
    whole = parameter_bytes(RELEASED, "fp8")
    assert 620 * GIB < whole < 640 * GIB
    of_eight = [parameter_bytes(RELEASED, "fp8", rank, 8) for rank in range(8)]
    assert len(set(of_eight)) == 1
    assert whole / 8 < of_eight[0] < whole / 8 + 12 * GIB


@pytest.mark.parametrize(("chosen", "message"), [
    ({"max_sequences": 10**9}, r"max_sequences is 1000000000; expected at most 65536"),
    ({"page_count": 10**12}, r"page_count is 1000000000000; expected at most \d+, which fit in [\d.]+ GiB"),
])  # fmt: skip
def test_sizes_that_no_memory_has(chosen, message):
    with pytest.raises(ValueError, match=message):
        resolve_limits(TINY, "fp8", "cpu", EngineConfig(**chosen))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_bytes_are_those_of_the_model(size):
    config = replace(TINY, num_hidden_layers=2)
    model = build_model(config, "fp8", "reference", "cpu")
    assert parameter_bytes(config, "fp8") == sum(each.nbytes for each in model.parameters())
    assert sum(parameter_bytes(config, "bf16", rank, size) for rank in range(size)) >= parameter_bytes(config, "bf16")


def test_a_model_that_does_not_fit_is_refused_with_numbers(gpu, monkeypatch):
    gpu(79.1, 79.6)
    with pytest.raises(ValueError) as caught:
        check_fits(RELEASED, "fp8", "cuda:0")
    text = str(caught.value)
    assert text.startswith("the model takes 628.9 GiB of weights in fp8 precision (61 layers) and 2.9 MiB for one page")
    smallest = r"its smallest form, --precision fp8 --tensor-parallel-size 8, takes 8\d\.\d GiB$"
    assert re.search(rf"79.1 of cuda:0's 79.6 GiB are free: {smallest}", text)
    with pytest.raises(ValueError, match=rf"rank 0's shard of 8 takes 8.\.. GiB .* are free: {smallest}"):
        check_fits(RELEASED, "fp8", "cuda:0", 8)
    with pytest.raises(ValueError, match=r" free: use --layers N$"):
        check_fits(RELEASED, "fp8", "cuda:0", 8, synthetic=True)
    check_fits(replace(RELEASED, num_hidden_layers=5), "fp8", "cuda:0")
    gpu(139.0, 140.0)
    check_fits(RELEASED, "fp8", "cuda:0", 8)
    monkeypatch.setattr(sizing, "available_memory", lambda: 20 * GIB)
    with pytest.raises(ValueError, match=r"20.0 GiB are free: its smallest form, --precision fp8, takes 62\d\.\d GiB$"):
        check_fits(RELEASED, "exact", "cpu")
    gpu(5.0, 79.6)
    experts = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 4}
    for dims in ({"kv_lora_rank": 96}, {"index_head_dim": 64}, experts):  # neither fp8, or not eight ranks
        with pytest.raises(ValueError, match=r"5.0 of cuda:0's 79.6 GiB are free$"):
            check_fits(replace(RELEASED, **dims), "bf16", "cuda:0")


def test_whole_attention_leaves_room_for_the_caches(gpu):
    """All heads take 9.4 GiB more than an eighth of the model's 80.5; 14 of 140 GiB stay free unless the user chooses otherwise."""
    added = parameter_bytes(RELEASED, "fp8", 0, 8, whole_attention=True) - parameter_bytes(RELEASED, "fp8", 0, 8)
    assert 9.3 * GIB < added < 9.5 * GIB

    def has_room(free: float, **chosen: Any) -> bool:
        gpu(free, 140.0)
        return has_room_for_heads(RELEASED, "fp8", "cuda:0", 8, False, False, EngineConfig(**chosen))

    assert has_room(139.0) and has_room(114.0) and not has_room(113.0)
    assert has_room(101.0, memory_fraction=1.0) and not has_room(98.0, memory_fraction=1.0)
    # A context of 163,840 tokens takes 7.3 GiB.
    assert has_room(121.0, max_model_len=163_840) and not has_room(120.0, max_model_len=163_840)
    assert has_room(121.0, page_count=2560) and not has_room(120.0, page_count=2560)


def test_whole_attention_needs_files_with_all_heads(tmp_path):
    """Of a checkpoint that was converted to a file for each rank, it has only its heads. Deterministic prompts are not divided."""
    synthetic = ModelSource(TINY, None, "exact", "auto", "cpu")
    converted = replace(synthetic, directory=tmp_path)
    cases = (
        synthetic,
        converted,
        replace(synthetic, directory=tiny_checkpoint(tmp_path)),
        replace(synthetic, deterministic=True),
    )
    whole = [each.with_whole_attention("cpu", 2, EngineConfig()).whole_attention for each in cases]
    assert whole == [True, False, True, False]


def test_a_refusal_says_what_offloading_gives(gpu, monkeypatch, tmp_path):
    """An expert has three matrices of 7168 x 2048 bytes, and a scale of 4 bytes for each block of 128 x 128."""
    monkeypatch.setattr(offload_speed, "SECONDS", 0.02)
    monkeypatch.setattr(offload_speed, "_copy_rate", lambda device: 1e9)
    monkeypatch.setattr(sizing, "available_memory", lambda: 60 * GIB)
    with (tmp_path / "a.safetensors").open("wb") as file:
        file.truncate(100 << 20)
    expert = 3 * 7168 * 2048 + 4 * 3 * 56 * 16
    speed = offload_speed.estimate_offload(RELEASED, "fp8", torch.device("cuda"), 1, False, tmp_path)
    assert (speed.experts, speed.token) == (58 * 256 * expert, 58 * 8 * expert)
    assert speed.residents + speed.experts == parameter_bytes(RELEASED, "fp8")
    assert speed.cached and speed.seconds(2e9) == speed.token / 1e9 and speed.seconds(None) is None
    gpu(79.1, 79.6)
    for device in ("cuda:0", "cpu"):
        with pytest.raises(
            ValueError, match=r"; with --offload experts 21.3 GB stay .* 654.1 GB of experts.* 20.4 GB of them \(f"
        ):
            check_fits(RELEASED, "fp8", device, directory=tmp_path)
    monkeypatch.setattr(sizing, "available_memory", lambda: 10 * GIB)
    with pytest.raises(ValueError) as caught:
        check_fits(RELEASED, "fp8", "cpu", directory=tmp_path)
    assert "--offload" not in str(caught.value), "it would not fit either"


@pytest.mark.parametrize(
    ("free", "mtp", "precision"), [(139.0, False, "fp8"), (81.5, True, "fp8"), (139.0, True, "bf16")]
)
def test_what_a_refusal_suggests_works(gpu, free, mtp, precision):
    gpu(free, 140.0)
    ranks = 8 if (mtp or precision == "bf16") else 1
    with pytest.raises(ValueError) as caught:
        check_fits(RELEASED, precision, "cuda:0", ranks, mtp)
    ways = str(caught.value).partition(" free: use ")[2].split(" or ")
    for way in ways:
        option, value = way.split()
        changed = {"ranks": ranks, "mtp": mtp, "precision": precision}
        key, chosen = {
            "--tensor-parallel-size": ("ranks", int),
            "--precision": ("precision", str),
            "--speculative-tokens": ("mtp", lambda text: text != "0"),
        }[option]
        changed[key] = chosen(value)
        check_fits(RELEASED, device="cuda:0", **changed)


def test_pages_fill_the_memory_that_weights_and_a_step_leave(gpu):
    """Of the GPU's 100 GiB, 90 may be used and 30 are in use."""
    gpu(70, 100)
    page = bytes_per_page(RELEASED, "fp8")
    assert pages_in_memory(CacheBudget(2048, 64, 4096, 0.9), RELEASED, "fp8", "cuda:0") == 60 * GIB // page
    assert (
        pages_in_memory(CacheBudget(2048, 64, 4096, 0.9), RELEASED, "fp8", "cuda:0", step_bytes=8 * GIB)
        == 52 * GIB // page
    )
    with pytest.raises(ValueError, match=r"leaves 0.0 MiB for the caches next to the 71680.0 MiB of a step"):
        pages_in_memory(CacheBudget(2048, 64, 4096, 0.9), RELEASED, "fp8", "cuda:0", step_bytes=70 * GIB)


def test_a_given_number_of_pages_leaves_the_warm_up(tmp_path, monkeypatch):
    """On a GPU, the largest step compiles the kernels, which otherwise the first requests would wait for."""
    budgets = []
    monkeypatch.setattr(sizing, "measure_largest_step", lambda model, budget, ranks: budgets.append(budget) or 0)
    llm = LLM(tiny_checkpoint(tmp_path), device="cpu", page_count=3)
    assert llm.limits.page_count == 3 and [budget.page_count for budget in budgets] == [3]


def test_logits_of_every_small_number_of_rows_are_computed_once(monkeypatch):
    model = build_model(replace(TINY, num_hidden_layers=2), "fp8", "reference", "cpu")
    fill_synthetic(model, Plan(model.config), 0)
    counts, logits = [], model.lm_head.logits
    monkeypatch.setattr(model.lm_head, "logits", lambda hidden: counts.append(len(hidden)) or logits(hidden))
    warm_up_logits(model, 100)
    assert counts == [*range(1, 65), 80, 96, 100]
    counts.clear()
    warm_up_logits(model, 3)
    assert counts == [1, 2, 3]


def test_a_model_in_memory_leaves_room_for_the_draft_layers_cache(gpu):
    gpu(70, 100)
    plain, drafting = (resolve_limits(RELEASED, "fp8", "cuda:0", EngineConfig(), count) for count in (0, 2))
    assert plain.page_count == 60 * GIB // bytes_per_page(RELEASED, "fp8")
    assert drafting.page_count == 60 * GIB // bytes_per_page(RELEASED, "fp8", mtp=True) < plain.page_count


def test_ranks_divide_a_cpus_memory():
    single, shared = (
        pages_in_memory(CacheBudget(2048, 64, 163840, 0.4), RELEASED, "exact", "cpu", ranks=ranks) for ranks in (1, 4)
    )
    assert shared <= single / 3


@pytest.mark.parametrize(
    "tokens, sequences, context", [(256, 8, 4096), (64, 64, 4096), (300, 4, 200), (1, 1, 64), (16, 300, 100)]
)
def test_the_largest_step_runs_in_its_own_pages(tokens, sequences, context):
    """It has as many tokens as a step may have, decodes among them, and contexts above index_topk where the limits allow them."""
    batch, pages = largest_step(TINY, tokens, sequences, context)
    assert batch.tokens == min(tokens, batch.decodes + context) and len(batch.requests) <= sequences
    assert max(start + count for start, count in zip(batch.starts, batch.counts, strict=True)) <= context
    if context > 2 * TINY.index_topk + tokens:
        assert max(batch.starts) > TINY.index_topk
    model = build_model(replace(TINY, num_hidden_layers=2), "exact", "reference", "cpu")
    fill_synthetic(model, Plan(model.config))
    caches = allocate(model.config, "exact", pages)
    for cache in caches:
        cache.latent.zero_()
        cache.index.zero_()
    logits = Runner(model, caches).run(batch).logits
    assert logits.shape == (len(batch.requests), TINY.vocab_size) and logits.isfinite().all()


def test_ranks_have_equal_shares_of_the_largest_step():
    """If sequences are divided, each rank has a quarter of the tokens and of the sequences, on the pages of its own caches."""
    batch, pages = largest_step(TINY, 1001, 30, 4096, data_ranks=4)
    shares = [[], [], [], []]
    for request, count in zip(batch.requests, batch.counts, strict=True):
        shares[request.cache.rank].append(count)
    assert shares == [[1] * 7 + [251 - 7]] * 4
    assert pages == largest_step(TINY, 251, 8, 4096)[1] and batch.decodes == 28


def test_weights_of_all_heads_that_do_not_fit_are_refused(gpu):
    """An eighth of the released model takes 80.5 GiB, with all heads 89.9."""
    gpu(85.0, 140.0)
    check_fits(RELEASED, "fp8", "cuda:0", 8)
    with pytest.raises(ValueError, match=r"takes 89.9 GiB .* are free: use no --attention data$"):
        check_fits(RELEASED, "fp8", "cuda:0", 8, whole_attention=True)


@pytest.mark.parametrize("checks", [False, True])
def test_the_step_that_is_measured_stamps_what_it_writes(checks):
    """With checks of the caches, the kernels that store stamps are compiled before the first request, too."""
    model = build_model(replace(TINY, num_hidden_layers=2), "exact", "reference", "cpu")
    fill_synthetic(model, Plan(model.config))
    runner, batch = prepare_largest_step(model, CacheBudget(256, 8, 4096, 0.9, observers=("CacheCheck",) * checks))
    short = shortest_prompt()
    assert short.decodes == 0
    for each in (short, batch, batch):  # as it is measured
        assert runner.run(each).logits.isfinite().all()
    assert len(runner.observers) == checks
    for check in runner.observers:
        assert isinstance(check, CacheCheck)
        slots = short.tokens + batch.tokens - batch.decodes + 1  # decodes share one
        assert check.stamps.columns.count_nonzero() == 2 * 2 * slots
