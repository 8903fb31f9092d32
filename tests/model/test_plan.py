"""What ranks keep of the released model, and which models cannot be shared."""

from dataclasses import replace

import pytest

from deepseek_v32.model.config import ModelConfig, blocks
from deepseek_v32.model.errors import ConfigError
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.weight_map import pieces

RELEASED = ModelConfig()


@pytest.mark.parametrize("size", [2, 4, 8])
def test_every_part_of_the_released_model_divides(size):
    plans = [Plan(RELEASED, rank, size) for rank in range(size)]
    assert all(plans[0].split.values())
    assert sorted(expert for plan in plans for expert in plan.experts) == list(range(256))
    for piece in pieces(replace(RELEASED, num_hidden_layers=4)):
        shares = [share for plan in plans if (share := plan.share(piece)) is not None]
        if piece.parameter is None or piece.expert is not None:
            assert len(shares) == (piece.parameter is not None)
            continue
        cuts = [share.cut for share in shares]
        if cuts[0] is None:
            assert cuts == [None] * size
            continue
        # End to end, in order, and where there are scales in whole blocks.
        dim = cuts[0].dim
        assert [cut.start for cut in cuts] == [0, *(cut.stop for cut in cuts[:-1])] and cuts[-1].stop == piece.shape[
            dim
        ]
        if piece.quantised:
            assert not any(cut.start % 128 for cut in cuts)
            assert sum(cut.in_blocks().size for cut in cuts) == blocks(piece.shape[dim])


def test_what_the_released_model_shares():
    """By name and dimension, as the technical reports have it; the indexer, the router and all norms are everyone's."""
    plan = Plan(RELEASED, 5, 8)
    cuts = {piece.name: share.cut for piece in pieces(RELEASED) if (share := plan.share(piece)) and share.cut}
    layer = {
        name.removeprefix("model.layers.3."): cut for name, cut in cuts.items() if name.startswith("model.layers.3.")
    }
    assert {name: (cut.dim, cut.start, cut.stop) for name, cut in layer.items()} == {
        "self_attn.q_b_proj.weight": (0, 5 * 3072, 6 * 3072),
        "self_attn.kv_b_proj.weight": (0, 5 * 4096, 6 * 4096),
        "self_attn.o_proj.weight": (1, 5 * 2048, 6 * 2048),
        "mlp.shared_experts.gate_proj.weight": (0, 5 * 256, 6 * 256),
        "mlp.shared_experts.up_proj.weight": (0, 5 * 256, 6 * 256),
        "mlp.shared_experts.down_proj.weight": (1, 5 * 256, 6 * 256),
    }
    assert cuts["model.layers.0.mlp.down_proj.weight"].size == 2304
    assert cuts["lm_head.weight"].size == cuts["model.embed_tokens.weight"].size == 16160
    assert list(plan.experts) == [5 + 8 * i for i in range(32)]
    assert plan.describe() == "8 ranks, 32 of 256 experts on each, 16 of 128 heads"


def test_what_does_not_divide_is_named():
    odd = replace(RELEASED, vocab_size=129281, num_attention_heads=100, intermediate_size=18432 + 128)
    odd = replace(odd, moe_intermediate_size=2048 + 128)
    assert Plan(odd, 0, 8).describe() == (
        "8 ranks, 32 of 256 experts on each; not divisible, so whole on every rank: vocabulary, heads, dense MLPs; "
        "not divisible, so on rank 0 alone: shared expert"
    )
    assert Plan(odd, 0, 8).holds("layers.3.mlp.shared_experts.down_proj.weight")
    assert not Plan(odd, 1, 8).holds("layers.3.mlp.shared_experts.down_proj.weight")


@pytest.mark.parametrize(
    "config, size, message",
    [
        (RELEASED, 3, "the model would run on 3 ranks; it can on 1, 2, 4 or 8"),
        (RELEASED, 16, "the model would run on 16 ranks; it can on 1, 2, 4 or 8"),
        (
            replace(RELEASED, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2),
            8,
            "8 ranks share 4 experts",
        ),
    ],
    ids=["three", "sixteen", "fewer experts than ranks"],
)
def test_models_that_cannot_be_shared(config, size, message):
    with pytest.raises(ConfigError, match=message):
        Plan(config, 0, size)
