"""How many tokens a text has at least, by the longest tokens of a tokenizer and without encoding the text."""

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .token_bytes import BYTES

# Bytes that are counted at a time, for which numpy takes eight times as much memory.
_COUNTED = 2**20
_ROUNDING = 1e-6  # more than the error of a sum of shares of tokens


class TokenBound:
    """A lower bound on the number of tokens of texts: each byte of a token of n bytes is 1/n of it.

    A byte is at least the share that it has of the longest token with such a byte.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self._definition = definition

    def of(self, texts: Iterable[str], parse_special: bool) -> int | None:
        """Return the bound for texts, in which control tokens are parsed or not; None if the tokenizer has none."""
        longest = self._longest_parsed if parse_special else self._longest
        if longest is None:
            return None
        return math.ceil(float(sum((_byte_counts(text) / longest).sum() for text in texts)) - _ROUNDING)

    @cached_property
    def _longest(self) -> np.ndarray | None:
        return longest_tokens(self._definition)

    @cached_property
    def _longest_parsed(self) -> np.ndarray | None:
        """The same as ``_longest`` with control tokens; None if one may swallow all spaces around it."""
        added = self._definition.get("added_tokens", ())
        if self._longest is None or any(token.get("lstrip") or token.get("rstrip") for token in added):
            return None
        longest = self._longest.copy()
        for written in (token["content"].encode() for token in added):
            longest[list(written)] = np.maximum(longest[list(written)], len(written))
        return longest


def utf8_length(text: str) -> int:
    """Count the bytes of a text, which may hold lone surrogates."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _byte_counts(text: str) -> np.ndarray:
    """Count each byte of a text, int64 [256], as it is encoded. Other threads run meanwhile."""
    counts = np.zeros(256, dtype=np.int64)
    written = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    for start in range(0, len(written), _COUNTED):
        counts += np.bincount(written[start : start + _COUNTED], minlength=256)
    return counts


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
