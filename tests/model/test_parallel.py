"""A model on several ranks against the same model on one, over random configurations; all ranks compute the same bits."""

import gc
import json
import random
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.alignment import aligned_rows
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import AttentionMetadata, context_slots
from deepseek_v32.model.parallel.collectives import Ranks
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from support.forked_ranks import run_ranks
from tiny_model.checkpoint import TINY, write_checkpoint

COMPARE = """
import hashlib, json, sys
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
chunks = json.loads(sys.argv[3])
if precision == "fp8":  # the only form whose bits do not depend on the number of heads and tokens
    prefill_form.PrefillForm.is_multi_head = lambda *_: False

def cleared(llm):
    caches = [each for cache in llm.engine.runner.caches for each in (cache.latent, cache.index)]
    return [each.zero_() for each in caches]

def digest(x):
    return hashlib.sha1(x.view(torch.uint8).numpy()).hexdigest()

dist.init_process_group("gloo")
ranks = Counting(dist.get_rank(), dist.get_world_size())
results = []
for path in sorted(Path(sys.argv[1]).iterdir()):
    shared = load_model(path, precision, ranks=ranks, whole_attention=sys.argv[2] != "replicated")
    config = shared.config
    token_ids = [i * 7919 % config.vocab_size for i in range(sum(chunks))]
    llm = LLM.from_model(shared, config, precision=precision, page_count=8)
    caches = cleared(llm)
    before = Counting.divided
    logits = llm.logits(token_ids, chunk=chunks[0])
    divided = Counting.divided - before
    digests = [None] * ranks.size
    dist.all_gather_object(digests, " ".join(map(digest, (logits, *caches))))
    caches = [each.clone() for each in caches]
    greedy = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    answer = llm.generate([token_ids[:70]], greedy)[0].token_ids
    if ranks.rank == 0:
        whole = LLM.from_model(load_model(path, precision), config, precision=precision, page_count=8)
        others = cleared(whole)
        expected = whole.logits(token_ids, chunk=chunks[0])
        pairs = ((mine.double(), theirs.double()) for mine, theirs in zip((*logits, *caches), (*expected, *others)))
        error = max((mine - theirs).norm() / theirs.norm() for mine, theirs in pairs).item()
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


@pytest.mark.parametrize("rows", [1, 3])
def test_gathered_rows_have_the_same_bytes_on_ranks_with_any_number_of_rows(rows: int) -> None:
    """A tensor of one row is contiguous whatever its stride is, which says nothing about the bytes between rows."""

    class TwoRanks(Ranks):
        def all_gather(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape == (3, 2 * 128 // 8 + 2 + 128 // 8)
            return torch.stack((x, x))

    hidden, chosen = torch.randn(3, 128).bfloat16()[:rows], torch.arange(6).view(3, 2)[:rows, :1]
    codes = torch.arange(3 * 132).to(torch.uint8).view(3, 132)[:rows, :128]
    parts = TwoRanks(0, 2).gather_rows([hidden, chosen, codes], 3, torch.tensor([3, 0]))
    assert all(torch.equal(each, mine[[0, 0]]) for each, mine in zip(parts, (hidden, chosen, codes), strict=True))


def a_step() -> AttentionMetadata:
    """Four decodes, of which three verify a request's drafts, then chunks of 40, 2 and 3 tokens, from the middle of a page on."""
    counts, lengths = (1, 1, 1, 1, 40, 2, 3), (130, 67, 68, 69, 100, 2, 64)
    table = torch.randperm(7 * 3, generator=torch.Generator().manual_seed(0)).int().view(7, 3)
    table[1:4] = table[1]
    slots = [context_slots(*each)[-count:] for *each, count in zip(table, lengths, counts, strict=True)]
    return AttentionMetadata(
        query_lengths=counts,
        context_lengths=lengths,
        decodes=4,
        block_table=table,
        lengths=torch.tensor(lengths, dtype=torch.int32),
        slots=torch.cat(slots),
        logit_rows=torch.tensor([0, 1, 2, 3, 43, 45, 48]),
        max_context=130,
    )


def contexts(step: AttentionMetadata) -> list[tuple[bool, list[int]]]:
    """For each row, whether it is a decode's, and the slots of its context."""
    decodes = zip(step.block_table[: step.decodes], step.lengths[: step.decodes], strict=True)
    found = [(True, context_slots(*each).tolist()) for each in decodes]
    for prefill in step.prefills:
        assert prefill.rows.start == len(found)
        found += [(False, prefill.context_slots[:end].tolist()) for end in prefill.ends]
    return found


def test_parts_of_a_step_describe_the_same_rows() -> None:
    step = a_step()
    whole = contexts(step)
    assert [context[-1] for _, context in whole] == step.slots.tolist() and len(whole) == 49
    for first in range(49):
        for stop in range(first + 1, 50):
            part = step.part(slice(first, stop))
            assert contexts(part) == whole[first:stop]
            assert part.slots.tolist() == step.slots[first:stop].tolist()
            assert max((0, *part.lengths[: part.decodes])) <= part.max_context <= 130 * bool(part.decodes)


def test_a_divided_step_is_freed_when_it_ends() -> None:
    """Without waiting for Python's search for cycles, which on a GPU would keep contexts' slots of many steps."""
    model: Any = build_model(
        replace(TINY, num_hidden_layers=1), "exact", "auto", "meta", Ranks(1, 2), whole_attention=True
    )
    part = model.divide(a_step(), torch.empty(49, 16), torch.empty(49, 16))
    assert part.rows.divided
    rows = weakref.ref(part.rows)
    gc.disable()
    try:
        del part
        assert rows() is None
    finally:
        gc.enable()


def test_the_configurations_divide_in_different_ways():
    splits = [tuple(Plan(random_config(seed), 0, 4).split.values()) for seed in SEEDS]
    assert len(set(splits)) > 4
    assert all(any(split[part] for split in splits) and not all(split[part] for split in splits) for part in range(4))


@pytest.mark.parametrize(("way", "size"), [("masked", 4), ("gathered", 2), ("replicated", 2), ("fp8", 4)])
@pytest.mark.heavy
def test_ranks_compute_the_same_as_one(tmp_path, size, way):
    """Prompts mask dense attention or gather keys, divided by tokens, or by heads where a rank has no others."""
    for seed in SEEDS:
        config = random_config(seed)
        if way == "fp8":  # every sum over ranks has one term, so that nothing is rounded
            config = replace(config, num_experts_per_tok=1, n_shared_experts=0, intermediate_size=200)
        write_checkpoint(tmp_path / str(seed), config, ("fp8", "bf16", "fp32")[seed % 3], seed)
    counts = [68, 64] if way == "fp8" else [64, 36]  # tokens of each step; in fp8 all are divided
    first, *rest = run_ranks(size, COMPARE, tmp_path, way, counts)
    assert first.code == 0, first.err
    assert [each.code for each in rest] == [0] * (size - 1)
    for seed, (error, same_tokens, same_bits, divided) in zip(SEEDS, json.loads(first.out), strict=True):
        close = error == 0 if way == "fp8" else same_tokens and error < 1e-4
        assert same_bits and close, (seed, error, same_tokens, same_bits)
        config = random_config(seed)
        if way == "fp8":
            config = replace(config, intermediate_size=200)
        # A sum in each layer whose MLP ranks divide.
        split = Plan(config, 0, size).split
        chunks = sum(count >= 16 * size for count in counts) * (way != "replicated")
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
