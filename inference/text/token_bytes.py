"""The bytes of a byte-level tokenizer's tokens: it writes each byte as a character of a fixed alphabet."""

from collections.abc import Set

from tokenizers import Tokenizer, pre_tokenizers


def _byte_characters() -> dict[str, int]:
    """Return the byte for which each character of byte-level tokens stands: its own if printable, else one past 255."""
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    others = iter(sorted(character for character in alphabet if ord(character) > 255))
    return {chr(byte) if chr(byte) in alphabet else next(others): byte for byte in range(256)}


BYTES = _byte_characters()


class TokenBytes:
    """Call it with a token for the bytes that a byte-level tokenizer decodes it to; none for ids without text."""

    def __init__(self, library: Tokenizer, skipped: Set[int | None]) -> None:
        """skipped: tokens that are no part of a text."""
        self._library, self._skipped = library, skipped
        self._known: dict[int, bytes] = {}

    def __call__(self, token: int, skip_special_tokens: bool = True) -> bytes:
        if skip_special_tokens and (known := self._known.get(token)) is not None:
            return known
        text = (self._library.id_to_token(token) if token >= 0 else None) or ""
        written = bytes(map(BYTES.__getitem__, text)) if BYTES.keys() >= set(text) else text.encode()
        if skip_special_tokens:
            written = self._known[token] = b"" if token in self._skipped else written
        return written
