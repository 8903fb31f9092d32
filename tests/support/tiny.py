"""A checkpoint that is small enough to be written within a second."""

from dataclasses import replace
from pathlib import Path

from tiny_model.checkpoint import TINY, write_checkpoint
from tiny_model.tokenizer import write_tokenizer


def tiny_checkpoint(parent: Path) -> Path:
    """Write random weights and a tokenizer, which transformers reads as well, to `parent`/tiny."""
    directory = parent / "tiny"
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2))
    write_tokenizer(directory, TINY.vocab_size)
    return directory
