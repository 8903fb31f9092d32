"""A model on several ranks against the same model on one, over random configurations; all ranks compute the same bits."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from deepseek_v32.kernels.alignment import aligned_rows
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.parallel.collectives import Ranks
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from support.forked_ranks import run_ranks
from tiny_model.checkpoint import TINY, write_checkpoint

COMPARE = """
import json, sys
from pathlib import Path
import torch
import torch.distributed as dist
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.model import prefill_form
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.parallel.collectives import Ranks

class Counting(Ranks):
    divided = 0
    def reduce_scatter(self, x, rows):
        Counting.divided += 1
        return super().reduce_scatter(x, rows)

if sys.argv[2] != "masked":  # as on GPUs; plain PyTorch prefers a mask for contexts this short
    prefill_form.REFERENCE_GATHER_COST = -1e9
precision = "fp8" if sys.argv[2] == "fp8" else "exact"
dist.init_process_group("gloo")
ranks = Counting(dist.get_rank(), dist.get_world_size())
results = []
for path in sorted(Path(sys.argv[1]).iterdir()):
    shared = load_model(path, precision, ranks=ranks, whole_attention=sys.argv[2] != "replicated")
    config = shared.config
    token_ids = [i * 7919 % config.vocab_size for i in range(100)]
    llm = LLM.from_model(shared, config, precision=precision, page_count=8)
    before = Counting.divided
    logits = llm.logits(token_ids, chunk=64)
    divided = Counting.divided - before
    digests = [None] * ranks.size
    dist.all_gather_object(digests, logits.view(torch.int32).long().sum().item())
    greedy = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    answer = llm.generate([token_ids[:70]], greedy)[0].token_ids
    if ranks.rank == 0:
        whole = LLM.from_model(load_model(path, precision), config, precision=precision, page_count=8)
        expected = whole.logits(token_ids, chunk=64)
        errors = (logits - expected).norm(dim=1) / expected.norm(dim=1)
        error = (errors.max() if precision == "exact" else errors.median()).item()  # a rounded score changes some selections
        same = answer == whole.generate([token_ids[:70]], greedy)[0].token_ids
        results.append([error, same, len(set(digests)) == 1, divided])
    dist.barrier()
print(json.dumps(results))
dist.destroy_process_group()
"""


def random_config(seed: int) -> ModelConfig:
    """Any combination of dimensions that divide into blocks and dimensions that do not, with at least eight experts."""
    draw = random.Random(seed)
    groups = draw.choice((1, 2, 4))
    return replace(
        TINY,
        vocab_size=draw.choice((512, 515)),
        hidden_size=draw.choice((128, 136)),
        intermediate_size=draw.choice((512, 200)),
        moe_intermediate_size=draw.choice((512, 128, 20)),
        num_hidden_layers=2,
        first_k_dense_replace=draw.choice((0, 1, 2)),
        num_attention_heads=draw.choice((4, 8, 3)),
        q_lora_rank=draw.choice((128, 72)),
        qk_nope_head_dim=draw.choice((128, 64, 20)),
        qk_rope_head_dim=64,
        v_head_dim=draw.choice((128, 48)),
        n_routed_experts=groups * draw.choice((8, 9)),
        n_shared_experts=draw.choice((0, 1, 2)),
        n_group=groups,
        topk_group=draw.randint(1, groups),
        num_experts_per_tok=draw.randint(1, 6),
        index_topk=draw.choice((16, 64)),
        tie_word_embeddings=draw.random() < 0.3,
    )


SEEDS = range(6)


def test_own_heads_are_views_that_kernels_take_as_they_are() -> None:
    config = replace(TINY, num_attention_heads=8, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    model: Any = build_model(config, "fp8", "auto", "cpu", Ranks(1, 4), whole_attention=True)
    whole = model.layers[0].self_attn
    own = model.divide.__self__._replicated.attention_of(whole)
    assert (own.heads, own.kv_b_proj.heads, own.partial) == (2, 2, True)
    assert (whole.heads, whole.kv_b_proj.heads, whole.partial) == (8, 8, False)
    for name, rows, columns in (("q_b_proj", slice(384, 768), slice(None)), ("o_proj", slice(None), slice(256, 512))):
        part, all_of_it = getattr(own, name), getattr(whole, name)
        assert part.weight.data_ptr() == all_of_it.weight[rows, columns].data_ptr()
        assert aligned_rows(part.weight) is part.weight
        scales = all_of_it.weight_scale_inv
        assert part.weight_scale_inv.numel() * 4 == scales.numel()


def test_the_configurations_divide_in_different_ways():
    splits = [tuple(Plan(random_config(seed), 0, 4).split.values()) for seed in SEEDS]
    assert len(set(splits)) > 4
    assert all(any(split[part] for split in splits) and not all(split[part] for split in splits) for part in range(4))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("way", ["masked", "gathered", "replicated", "fp8"])
@pytest.mark.heavy
def test_ranks_compute_the_same_as_one(tmp_path, size, way):
    """Prompts mask dense attention or gather keys, divided by tokens, or by heads where a rank has no others."""
    for seed in SEEDS:
        write_checkpoint(tmp_path / str(seed), random_config(seed), ("fp8", "bf16", "fp32")[seed % 3], seed)
    first, *rest = run_ranks(size, COMPARE, tmp_path, way)
    assert first.code == 0, first.err
    assert [each.code for each in rest] == [0] * (size - 1)
    for seed, (error, same_tokens, same_bits, divided) in zip(SEEDS, json.loads(first.out), strict=True):
        close = error < 0.05 if way == "fp8" else same_tokens and error < 1e-4
        assert same_bits and close, (seed, error, same_tokens, same_bits)
        config = random_config(seed)
        # Chunks of 64 and 36 tokens, with at least 16 for each rank: a sum in each layer whose MLP ranks divide.
        split = Plan(config, 0, size).split
        chunks = sum(count >= 16 * size for count in (64, 36)) * (way != "replicated")
        dense = min(config.first_k_dense_replace, 2)
        assert divided == chunks * (2 - dense + dense * split["dense MLPs"])


FUSED = """
import json, sys
from pathlib import Path
import torch
import torch.distributed as dist
from deepseek_v32.inference import LLM
from deepseek_v32.model import transformer
from deepseek_v32.kernels.quantize import rms_norm_quantize
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.parallel.collectives import Ranks

class Fusing(Ranks):  # as on GPUs that share memory
    norms = []
    def fuses_norm(self, x):
        return True
    def all_reduce_norm(self, x, residual, norm_weight, eps, ue8m0):
        Fusing.norms.append(len(x))
        return rms_norm_quantize(residual, norm_weight, eps, ue8m0, self.all_reduce(x))

transformer.LOGIT_BYTES = 0  # logits in parts of 64 rows, which the ranks compute together
dist.init_process_group("gloo")
[path] = Path(sys.argv[1]).iterdir()
logits = []
for kind in (Ranks, Fusing):
    model = load_model(path, "fp8", ranks=kind(dist.get_rank(), dist.get_world_size()))
    llm = LLM.from_model(model, model.config, precision="fp8", page_count=8)
    token_ids = [i * 7919 % model.config.vocab_size for i in range(100)]
    logits.append([llm.logits(token_ids, chunk=64), llm.logits(token_ids[:65], chunk=65)])
same = all(torch.equal(a, b) for a, b in zip(*logits))
print(json.dumps([same, Fusing.norms]))
dist.destroy_process_group()
"""


def test_sums_that_are_left_to_the_next_norm_change_nothing(tmp_path):
    """Sums of up to 64 tokens are left to the norm: chunks of 64 and 36, but not of 65. The last layer's sum has no norm."""
    config = replace(TINY, num_hidden_layers=2, num_attention_heads=8, qk_rope_head_dim=64)
    assert Plan(config, 0, 2).split["heads"]
    write_checkpoint(tmp_path / "model", config, "fp8", 1)
    for each in run_ranks(2, FUSED, tmp_path):
        assert each.code == 0, each.err
        assert json.loads(each.out or "[true, null]") in ([True, [64] * 3 + [36] * 3], [True, None])
