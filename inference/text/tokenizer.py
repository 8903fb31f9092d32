"""Text to token ids and back. The Rust ``tokenizers`` library does the work, from a checkpoint's ``tokenizer.json``."""

import ctypes
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from .errors import TokenizerError, TooManyTokens, check_text
from .longest_token import TokenBound
from .settings import build_definition, end_ids, read_chat_template, read_settings, token_text, vocabulary_size
from .token_bytes import TokenBytes

# DeepSeek's control tokens, by their texts.
BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"
DSML = "｜DSML｜"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that are not a character, or not yet
# Longer texts, in characters, give back the memory of their encoding at once: some 100 bytes a character.
LONG_TEXT = 2**18
# Characters that one search for control tokens covers, in up to 8 ms.
_SEARCHED = 2**16
# Decoding never skips these, whatever the tokenizer file says: the parser of the answer needs them.
MARKUP = (THINK, END_THINK, DSML)


@dataclass(frozen=True)
class Special:
    """A control token, named by its text. Equal text in a plain ``str`` is never a control token."""

    text: str


class Tokenizer:
    """A checkpoint's tokenizer. No code from the checkpoint is run; its chat template is data (see messages.py)."""

    def __init__(
        self,
        definition: dict[str, Any],
        *,
        bos: str | None = BOS,
        eos: Iterable[str | int] = (EOS,),
        chat_template: str | None = None,
    ):
        """``definition`` is the parsed tokenizer.json. ``eos`` names end tokens by text or id; unknown texts are ignored."""
        self._definition = definition
        try:
            self._full = _load(definition)
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"tokenizer.json: {error}") from error
        self.chat_template = chat_template
        self.special_ids: dict[str, int] = {
            token["content"]: token["id"] for token in definition.get("added_tokens", ())
        }
        self.bos_id: int | None = None if bos is None else self._full.token_to_id(bos)
        ids = (self._full.token_to_id(token) if isinstance(token, str) else token for token in eos)
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys(token for token in ids if token is not None))
        self.vocab_size: int = max(self._full.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        flagged = {token["id"] for token in definition.get("added_tokens", ()) if token.get("special")}
        kept = {self.special_ids.get(text) for text in MARKUP}
        self._skipped = (flagged | {self.bos_id, *self.eos_ids}) - kept - {None}
        # A byte-level decoder concatenates the bytes of the tokens; other decoders depend on the token before.
        self.is_byte_level: bool = (definition.get("decoder") or {}).get("type") == "ByteLevel"
        self.token_bytes = TokenBytes(self._full, self._skipped)
        self._bound = TokenBound(definition)

    @classmethod
    def from_directory(cls, path: str | Path) -> "Tokenizer | None":
        """Read the tokenizer of a checkpoint directory; None if the directory holds none.

        A checkpoint without ``tokenizer.json`` is read through transformers' AutoTokenizer. Its end tokens come
        from generation_config.json, config.json and tokenizer_config.json together. Raises TokenizerError, also for a tokenizer
        that has more ids than the vocabulary in config.json, which may be padded.
        """
        directory = Path(path)
        definition = read_settings(directory / "tokenizer.json")
        special: dict[str, Any] = {}
        if definition is None:
            built = build_definition(directory)
            if built is None:
                return None
            definition, special = built
        settings = {**(read_settings(directory / "tokenizer_config.json") or {}), **special}
        eos: list[str | int] = [*end_ids(directory)]
        eos.append(token_text(settings.get("eos_token")) or EOS)
        try:
            tokenizer = cls(
                definition,
                bos=token_text(settings.get("bos_token")) or BOS,
                eos=eos,
                chat_template=read_chat_template(directory, settings),
            )
        except TokenizerError as error:
            raise TokenizerError(f"{directory}/{error}") from error
        for name, is_missing in (("bos_token", tokenizer.bos_id is None), ("eos_token", not tokenizer.eos_ids)):
            if is_missing and (text := token_text(settings.get(name))):
                expected = "a token of the tokenizer"
                raise TokenizerError(f"{directory}/tokenizer_config.json: {name} is {text!r:.100}; expected {expected}")
        size = vocabulary_size(directory)
        if size is not None and tokenizer.vocab_size > size:
            raise TokenizerError(
                f"{directory}: the tokenizer has {tokenizer.vocab_size} ids; expected at most {size}, the vocabulary in "
                "config.json: it is another model's"
            )
        return tokenizer

    def encode(self, text: str, parse_special: bool = False, at_most: int | None = None) -> list[int]:
        """Encode ``text`` without a bos token. Other threads run meanwhile.

        With ``parse_special``, text that spells a control token becomes that token. That is for prompts written by hand,
        never for what users send. Raises TooManyTokens for more than ``at_most``, ArgumentError for half of a surrogate pair.
        """
        check_text("text", text)
        encoding: tokenizers.Encoding | None = None
        try:
            # A batch of one text: `Tokenizer.encode` would hold the interpreter's lock. "fast" leaves out offsets, which takes
            # 40 % of the time and half of the memory.
            [encoding] = (self._full if parse_special else self.plain).encode_batch_fast(
                [text], add_special_tokens=False
            )
            if at_most is not None and len(encoding) > at_most:
                raise TooManyTokens(len(encoding), at_most)
            return encoding.ids
        finally:
            if len(text) > LONG_TEXT:
                encoding = None
                return_memory()

    def least_tokens(self, pieces: Sequence[str | Special], parse_special: bool = False) -> int:
        """Return a lower bound on the number of tokens of ``encode_pieces``, or of ``encode`` for one text, without encoding.

        The bound is 0 for tokenizers that may drop or merge any number of characters.
        """
        texts = [
            p if isinstance(p, str) else p.text for p in pieces if isinstance(p, str) or p.text not in self.special_ids
        ]
        least = self._bound.of(texts, parse_special)
        return 0 if least is None else least + len(pieces) - len(texts)

    def encode_prompt(self, text: str, parse_special: bool = False) -> list[int]:
        """Encode a plain text prompt: the bos token, if the checkpoint has one, and the ids of ``text``."""
        bos = [] if self.bos_id is None else [self.bos_id]
        return bos + self.encode(text, parse_special)

    def encode_pieces(self, pieces: Sequence[str | Special], at_most: int | None = None) -> list[int]:
        """Encode text mixed with control tokens. Only ``Special`` pieces become control tokens.

        Neighbouring texts are joined first, so that the ids are the whole string's. A control token that this
        tokenizer lacks is encoded as text. Raises TooManyTokens as soon as a text has more than ``at_most``.
        """
        ids: list[int] = []
        text = ""
        for piece in pieces:
            if isinstance(piece, str):
                text += piece
            elif (special := self.special_ids.get(piece.text)) is None:
                text += piece.text
            else:
                ids += self.encode(text, at_most=at_most) if text else []
                ids.append(special)
                text = ""
        return ids + (self.encode(text, at_most=at_most) if text else [])

    def split_special(self, text: str) -> list[str | Special]:
        """Split ``text`` into pieces for ``encode_pieces``, with a ``Special`` for every control token that it spells.

        Each search covers a part of the text, because it holds the interpreter's lock.
        """
        pieces: list[str | Special] = []
        longest = max(map(len, self.special_ids), default=0)
        begun = position = 0
        while self.special_ids and position < len(text):
            end = position + _SEARCHED
            found = self._special_pattern.search(text, position, end + longest - 1)
            if found is None or found.start() >= end:  # a longer token might be cut there
                position = end
                continue
            pieces += [text[begun : found.start()], Special(found.group())]
            begun = position = found.end()
        return [piece for piece in (*pieces, text[begun:]) if piece]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode ``ids``. Ids outside the vocabulary (the model's may be padded) give no text.

        ``skip_special_tokens`` keeps ``<think>``, ``</think>`` and ``｜DSML｜``, which the parser of the answer needs.
        """
        kept = [token for token in ids if token not in self._skipped] if skip_special_tokens else list(ids)
        # A batch of one, as in `encode`, if it takes long.
        if len(kept) > LONG_TEXT // 16:
            return self._full.decode_batch([kept], skip_special_tokens=False)[0]
        return self._full.decode(kept, skip_special_tokens=False)

    @cached_property
    def plain(self) -> tokenizers.Tokenizer:
        """The same tokenizer without added tokens.

        The library can ignore tokens that the file flags as special, but many control tokens are not flagged.
        """
        return _load({**self._definition, "added_tokens": [], "post_processor": None})

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.special_ids, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))


def _load(definition: dict[str, Any]) -> tokenizers.Tokenizer:
    loaded = tokenizers.Tokenizer.from_str(json.dumps(definition))
    # Padding or truncation stored in the file would change prompts.
    loaded.no_padding()
    loaded.no_truncation()
    return loaded


def return_memory() -> None:
    """Give freed memory back to the system, in up to 30 ms. Otherwise GNU's C library keeps 700 MB after a text of 8 MB."""
    # musl, macOS; TypeError: Windows has no handle of the program itself.
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
