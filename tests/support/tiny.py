"""A checkpoint directory small enough to write in a second."""

from dataclasses import replace
from pathlib import Path

from deepseek_v32.model.synthetic.checkpoint import TINY, write_checkpoint
from deepseek_v32.model.synthetic.tokenizer import write_tokenizer


def tiny_checkpoint(parent: Path) -> Path:
    """Random weights and a tokenizer that transformers reads as well."""
    directory = parent / "tiny"
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2))
    write_tokenizer(directory, TINY.vocab_size)
    return directory
