"""Checkpoints without tokenizer.json: transformers' AutoTokenizer builds the same definition from their vocabulary files."""

import json
from pathlib import Path
from typing import Any

from .errors import TokenizerError

# Vocabulary files of the tokenizer classes in transformers: SentencePiece, tiktoken, byte-level BPE, WordPiece.
_VOCABULARIES = ("*.model", "*.tiktoken", "vocab.json", "vocab.txt")


def build_definition(directory: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(content of a tokenizer.json, {"bos_token", "eos_token"}) of a checkpoint directory; None without a vocabulary file.

    Reads local files only and runs no code of the checkpoint. Raises TokenizerError for files that AutoTokenizer cannot use, and
    for a tokenizer without a backend of the `tokenizers` library.
    """
    if not any(path.is_file() for pattern in _VOCABULARIES for path in directory.glob(pattern)):
        return None
    # Imported here: it takes seconds, and most checkpoints have a tokenizer.json.
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # ValueError, OSError, KeyError, ImportError …, as the tokenizer class has it
        reason = " ".join(str(error).split())[:300]
        raise TokenizerError(f"{directory}: no tokenizer.json, and AutoTokenizer cannot build it: {reason}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise TokenizerError(
            f"{directory}: the tokenizer is {type(tokenizer).__name__}, which is written in Python; expected one of the "
            "tokenizers library, or a tokenizer.json"
        )
    if not backend.get_vocab_size(with_added_tokens=False):
        raise TokenizerError(
            f"{directory}: the vocabulary of {type(tokenizer).__name__} is empty; expected its files, or a tokenizer.json"
        )
    return json.loads(backend.to_str()), {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
