"""The longest tokens of a tokenizer, which tell how many tokens a text has at least."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from tokenizers import pre_tokenizers


def _byte_characters() -> dict[str, int]:
    """Return the byte for which each character of byte-level tokens stands: its own if printable, else one past 255."""
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    others = iter(sorted(character for character in alphabet if ord(character) > 255))
    return {chr(byte) if chr(byte) in alphabet else next(others): byte for byte in range(256)}


BYTES = _byte_characters()


def longest_tokens(definition: Mapping[str, Any]) -> np.ndarray | None:
    """Return by byte the length in bytes of the longest token of plain text with this byte, int64 [256]; None without a bound.

    `definition`: a parsed tokenizer.json. Byte-level tokenizers have a bound: they keep every byte of a text and write it as one
    character of a fixed alphabet. There is none with a normalizer, which may delete text, or if a byte has no token of its own:
    then text may be dropped or become one unknown token.
    """
    model = definition.get("model") or {}
    vocabulary = model.get("vocab")
    if model.get("type") != "BPE" or not isinstance(vocabulary, Mapping) or not _is_empty(definition.get("normalizer")):
        return None
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    if not _keeps_every_byte(definition.get("pre_tokenizer")) or not BYTES.keys() <= vocabulary.keys():
        return None
    longest = np.ones(256, dtype=np.int64)
    unseen = set(BYTES)
    for token in sorted(vocabulary, key=len, reverse=True):
        if not unseen.isdisjoint(token) and BYTES.keys() >= (characters := set(token)):
            longest[[BYTES[character] for character in characters & unseen]] = len(token)
            unseen -= characters
    return longest


def _is_empty(normalizer: Any) -> bool:
    """Tell whether a normalizer changes nothing: there is none, or a sequence of none, as in DeepSeek-V3's file."""
    if not isinstance(normalizer, Mapping):
        return normalizer is None
    return normalizer.get("type") == "Sequence" and all(map(_is_empty, normalizer.get("normalizers") or ()))


def _keeps_every_byte(pre_tokenizer: Any) -> bool:
    """Tell whether a pre-tokenizer writes bytes in the alphabet's characters and removes none of them."""
    if not isinstance(pre_tokenizer, Mapping):
        return False
    if pre_tokenizer.get("type") != "Sequence":
        return pre_tokenizer.get("type") == "ByteLevel"
    steps = [step for step in pre_tokenizer.get("pretokenizers") or () if isinstance(step, Mapping)]
    return (
        bool(steps)
        and steps[-1].get("type") == "ByteLevel"
        and all(
            step.get("type") in ("ByteLevel", "Digits")
            or (step.get("type") == "Split" and step.get("behavior") != "Removed")
            for step in steps
        )
    )
