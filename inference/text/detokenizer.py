"""Text as it grows: token ids to stable text, and stop strings in text that comes in pieces."""

from collections.abc import Sequence

from .tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class IncrementalDecoder:
    """Decodes a growing list of ids; all pushes and ``finish`` joined equal the decoding of all ids at once.

    A character whose bytes are spread over tokens comes out with its last byte. Trailing U+FFFD may be the start of
    such a character, so they wait for what follows.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._window: list[int] = []  # ids since the last character boundary
        self._given = 0  # characters of the window's text already returned

    def push(self, ids: Sequence[int]) -> str:
        """The text that these ids make certain; may be empty."""
        if not ids:
            return ""
        self._window += ids
        text = self._tokenizer.decode(self._window)
        stable = text.rstrip(REPLACEMENT)
        new = stable[self._given :]
        self._given = max(self._given, len(stable))
        if len(stable) == len(text) and self._tokenizer.is_byte_level:
            self._window, self._given = [], 0
        return new

    def finish(self) -> str:
        """What is still held back; an incomplete character becomes U+FFFD. The decoder starts afresh."""
        rest = self._tokenizer.decode(self._window)[self._given :] if self._window else ""
        self._window, self._given = [], 0
        return rest


class StopStrings:
    """Cuts text at the first stop string, without ever giving away part of one.

    The stop that is complete first wins; of two complete at the same character, the longer. The result does not
    depend on how the text is cut into pushes.
    """

    def __init__(self, stops: Sequence[str]):
        if any(not stop for stop in stops):
            raise ValueError("stop: an empty stop string would match everywhere")
        self._stops = tuple(stops)
        self._firsts = {stop[0] for stop in stops}
        self.rest = ""  # after a hit: what the push that brought it held behind the stop string
        self._held = ""
        self._hit: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found). After a hit nothing more comes."""
        if self._hit is not None:
            return "", self._hit
        if not self._held and self._firsts.isdisjoint(text):  # most pieces: nothing begins here
            return text, None
        self._held += text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            end, at, self._hit = min(found)
            safe, self.rest, self._held = self._held[:at], self._held[end:], ""
            return safe, self._hit
        keep = max((self._partial(stop) for stop in self._stops), default=0)
        safe = self._held[: len(self._held) - keep]
        self._held = self._held[len(safe) :]
        return safe, None

    def finish(self) -> str:
        """The held text, which turned out to be no stop string."""
        rest, self._held = self._held, ""
        return rest

    def _partial(self, stop: str) -> int:
        """Length of the longest proper prefix of ``stop`` that ends the held text."""
        at = self._held.find(stop[0], max(len(self._held) - len(stop) + 1, 0))
        while at >= 0 and not stop.startswith(self._held[at:]):
            at = self._held.find(stop[0], at + 1)
        return len(self._held) - at if at >= 0 else 0
