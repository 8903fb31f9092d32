"""The longest token of a tokenizer, which bounds from below how many tokens a text has."""

from collections.abc import Mapping
from typing import Any

from tokenizers import pre_tokenizers


def longest_token(definition: Mapping[str, Any]) -> int | None:
    """Return the bytes of the longest token of plain text, without added tokens; None if there is no bound.

    `definition`: a parsed tokenizer.json. Byte-level tokenizers have a bound: they keep every byte of a text and write it as one
    character of a fixed alphabet. There is none with a normalizer, which may delete text, or if a byte has no token of its own:
    then text may be dropped or become one unknown token.
    """
    model = definition.get("model") or {}
    vocabulary = model.get("vocab")
    if model.get("type") != "BPE" or definition.get("normalizer") is not None or not isinstance(vocabulary, Mapping):
        return None
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    if not _keeps_every_byte(definition.get("pre_tokenizer")) or not alphabet <= vocabulary.keys():
        return None
    return max(len(token) for token in vocabulary if alphabet.issuperset(token))


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
