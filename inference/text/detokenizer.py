"""Token ids to text: complete characters while tokens stream, stop strings in pieces of text, and the text of each token."""

import codecs
from collections.abc import Sequence

from ...kernels.errors import ArgumentError
from .tokenizer import REPLACEMENT, Tokenizer

MOST_UNFINISHED = 3  # the most bytes of a character that is not complete
_CONTEXT = 8  # tokens before a new one that decoders other than the byte-level one are given


class IncrementalDecoder:
    """Decodes a growing list of ids. With a byte-level tokenizer the texts of all pushes and of ``finish``, joined, equal the
    decoding of all ids at once.

    A character whose bytes are spread over several tokens is returned with its last byte. Only bytes that may begin a character
    are held back, at most three; bytes that form none become U+FFFD at once. The work for a token does not grow with the text.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        # For other decoders: the latest ids, and how many characters of their text have been returned.
        self._window: list[int] = []
        self._returned = 0

    def push(self, ids: Sequence[int]) -> str:
        """Add ids; return the new complete characters, perhaps none."""
        if self._tokenizer.is_byte_level:
            return "".join([self._utf8.decode(self._tokenizer.token_bytes(token)) for token in ids])
        return "".join(map(self._push_other, ids))

    def finish(self) -> str:
        """Return the text that is held back, with U+FFFD for an incomplete character, and start afresh."""
        rest = self._utf8.decode(b"", final=True)
        if self._window:
            rest += self._tokenizer.decode(self._window)[self._returned :]
        self._window, self._returned = [], 0
        return rest

    def _push_other(self, token: int) -> str:
        """Add a token whose text may depend on the tokens before it."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        stable = max(len(text.rstrip(REPLACEMENT)), len(text) - MOST_UNFINISHED)
        new = text[self._returned : stable]
        self._returned = max(self._returned, stable)
        if len(self._window) > 2 * _CONTEXT:
            held = len(text) - self._returned
            self._window = self._window[-_CONTEXT:]
            self._returned = max(len(self._tokenizer.decode(self._window)) - held, 0)
        return new


class StopStrings:
    """Cuts text at the first stop string, without ever returning part of one.

    The stop string that ends first counts; the longer one if two end at the same character. The result does not depend on how
    the text is divided into pushes.
    """

    def __init__(self, stops: Sequence[str]):
        if any(not stop for stop in stops):
            raise ArgumentError("stop", "''", "strings that are not empty", "holds")
        self._stops = tuple(stops)
        self._first_characters = {stop[0] for stop in stops}
        # Once a stop string has been found: the text that followed it in the same push.
        self.rest = ""
        self._held = ""
        self._found: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """Add text; return the text that is safe to show, and the stop string if one was found. No text follows a stop string."""
        if self._found is not None:
            return "", self._found
        # True of most pieces: no stop string begins here.
        if not self._held and self._first_characters.isdisjoint(text):
            return text, None
        self._held += text
        matches = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if matches:
            end, at, self._found = min(matches)
            safe, self.rest, self._held = self._held[:at], self._held[end:], ""
            return safe, self._found
        keep = max((self._partial(stop) for stop in self._stops), default=0)
        safe = self._held[: len(self._held) - keep]
        self._held = self._held[len(safe) :]
        return safe, None

    def finish(self) -> str:
        """Return the text that was held back and is not a stop string."""
        rest, self._held = self._held, ""
        return rest

    def _partial(self, stop: str) -> int:
        """Length of the longest proper prefix of ``stop`` that ends the held text."""
        at = self._held.find(stop[0], max(len(self._held) - len(stop) + 1, 0))
        while at >= 0 and not stop.startswith(self._held[at:]):
            at = self._held.find(stop[0], at + 1)
        return len(self._held) - at if at >= 0 else 0


def token_texts(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return one text for each token; joined, they are the whole text. A character of several tokens belongs to the last one."""
    names = {token: text for text, token in tokenizer.special_ids.items()}
    decoder = IncrementalDecoder(tokenizer)
    texts: list[str] = []
    for token in token_ids:
        if token in names:
            rest = decoder.finish()
            if rest and texts:
                texts[-1] += rest
            texts.append(names[token])
        else:
            texts.append(decoder.push([token]))
    if texts:
        texts[-1] += decoder.finish()
    return texts
