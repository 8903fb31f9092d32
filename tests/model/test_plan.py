"""How the released model is sharded, and which models cannot be."""

from dataclasses import replace

import pytest

from deepseek_v32.model.config import ModelConfig, blocks
from deepseek_v32.model.errors import ConfigError
from deepseek_v32.model.mtp import MTPTables
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.weight_map import tensor_specs

RELEASED = ModelConfig()


@pytest.mark.parametrize("size", [2, 4, 8])
def test_every_part_of_the_released_model_divides(size):
    plans = [Plan(RELEASED, rank, size, MTPTables(embedding=True, head=True)) for rank in range(size)]
    assert all(plans[0].split.values())
    assert sorted(expert for plan in plans for expert in plan.experts) == list(range(256))
    for spec in tensor_specs(replace(RELEASED, num_hidden_layers=4)):
        shards = [shard for plan in plans if (shard := plan.shard(spec)) is not None]
        if spec.parameter is None or spec.expert is not None:
            assert len(shards) == (spec.parameter is not None)
            continue
        cuts = [shard.kept for shard in shards]
        if cuts[0] is None:
            assert cuts == [None] * size
            continue
        # The slices are contiguous, in order, and in whole blocks if there are scales.
        dim = cuts[0].dim
        assert [kept.start for kept in cuts] == [0, *(kept.stop for kept in cuts[:-1])] and cuts[-1].stop == spec.shape[
            dim
        ]
        if spec.quantised:
            assert not any(kept.start % 128 for kept in cuts)
            assert sum(kept.of_scales().size for kept in cuts) == blocks(spec.shape[dim])


def test_splits_of_the_released_model():
    """By name and dimension, as in the technical reports. The indexer, the router and all norms are replicated."""
    plan = Plan(RELEASED, 5, 8)
    cuts = {spec.name: shard.kept for spec in tensor_specs(RELEASED) if (shard := plan.shard(spec)) and shard.kept}
    layer = {
        name.removeprefix("model.layers.3."): kept for name, kept in cuts.items() if name.startswith("model.layers.3.")
    }
    assert {name: (kept.dim, kept.start, kept.stop) for name, kept in layer.items()} == {
        "self_attn.q_b_proj.weight": (0, 5 * 3072, 6 * 3072),
        "self_attn.kv_b_proj.weight": (0, 5 * 4096, 6 * 4096),
        "self_attn.o_proj.weight": (1, 5 * 2048, 6 * 2048),
        "mlp.shared_experts.gate_proj.weight": (0, 5 * 256, 6 * 256),
        "mlp.shared_experts.up_proj.weight": (0, 5 * 256, 6 * 256),
        "mlp.shared_experts.down_proj.weight": (1, 5 * 256, 6 * 256),
    }
    assert cuts["model.layers.0.mlp.down_proj.weight"].size == 2304
    assert cuts["lm_head.weight"].size == cuts["model.embed_tokens.weight"].size == 16160
    whole = replace(plan, whole_attention=True)
    assert not [
        name for name in cuts if "self_attn" in name and whole.slice_of(name.replace("model.", ""), (1 << 20,) * 2)
    ]
    assert list(plan.experts) == [5 + 8 * i for i in range(32)]
    assert plan.describe() == "8 ranks, 32 of 256 experts on each, 16 of 128 heads, prompts not divided by tokens"


def test_parts_that_do_not_divide_are_named():
    odd = replace(RELEASED, vocab_size=129281, num_attention_heads=100, intermediate_size=18432 + 128)
    odd = replace(odd, moe_intermediate_size=2048 + 128)
    assert Plan(odd, 0, 8).describe() == (
        "8 ranks, 32 of 256 experts on each, prompts not divided by tokens; not divisible, so whole on every rank: "
        "vocabulary, heads, dense MLPs; not divisible, so only on rank 0: shared expert"
    )
    assert Plan(odd, 0, 8).holds("layers.3.mlp.shared_experts.down_proj.weight")
    assert not Plan(odd, 1, 8).holds("layers.3.mlp.shared_experts.down_proj.weight")


@pytest.mark.parametrize(
    "config, size, message",
    [
        (RELEASED, 3, "number of ranks is 3; expected 1, 2, 4 or 8"),
        (RELEASED, 16, "number of ranks is 16; expected 1, 2, 4 or 8"),
        (
            replace(RELEASED, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2),
            8,
            "number of ranks is 8; expected at most the 4 routed experts",
        ),
    ],
    ids=["three", "sixteen", "fewer experts than ranks"],
)
def test_models_that_cannot_be_sharded(config, size, message):
    with pytest.raises(ConfigError, match=message):
        Plan(config, 0, size)
