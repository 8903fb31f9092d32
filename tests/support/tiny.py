"""Checkpoints that are small enough to be written within a second."""

from dataclasses import replace
from pathlib import Path

from tiny_model.checkpoint import TINY, write_checkpoint
from tiny_model.tokenizer import write_tokenizer

# Every part divides by four into whole quantisation blocks: 2 heads of 192 and 128 dims, 128 columns of the shared expert.
DIVISIBLE = replace(
    TINY,
    num_attention_heads=8,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    moe_intermediate_size=512,
    num_hidden_layers=2,
    index_topk=32,
)
# No part divides by four, not even the experts.
ODD = replace(
    TINY,
    vocab_size=1003,
    num_attention_heads=3,
    intermediate_size=200,
    moe_intermediate_size=40,
    n_shared_experts=2,
    n_routed_experts=6,
    n_group=2,
    topk_group=1,
    num_experts_per_tok=2,
    tie_word_embeddings=True,
    num_hidden_layers=2,
    index_topk=32,
)


def tiny_checkpoint(parent: Path) -> Path:
    """Write random weights and a tokenizer, which transformers reads as well, to `parent`/tiny."""
    directory = parent / "tiny"
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2))
    write_tokenizer(directory, TINY.vocab_size)
    return directory
