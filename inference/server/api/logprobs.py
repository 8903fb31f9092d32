"""Log-probabilities in OpenAI's two shapes."""

from collections.abc import Iterable, Sequence
from typing import Any

from ...completion import TokenLogprob
from ...text.detokenizer import IncrementalDecoder
from ...text.tokenizer import REPLACEMENT, Tokenizer

# JSON has no −inf; OpenAI writes this number for it.
LOWEST = -9999.0


def chat_logprobs(tokenizer: Tokenizer, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    content = [
        {
            **_entry(tokenizer, entry.token_id, entry.logprob),
            "top_logprobs": [_entry(tokenizer, *top) for top in entry.top],
        }
        for entry in logprobs
    ]
    return {"content": content, "refusal": None}


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    text = token_text(tokenizer, token)
    whole = REPLACEMENT not in text
    return {"token": text, "logprob": max(logprob, LOWEST), "bytes": list(text.encode()) if whole else None}


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special_tokens=False)


class TextLogprobsBuilder:
    """Builds the lists of a plain completion, token by token, with the position of each token in the text."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._offset = 0  # characters of the answer so far
        self._decoder = IncrementalDecoder(tokenizer) if tokenizer else None

    def block(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The lists for the next tokens of the answer."""
        block: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for entry in entries:
            block["tokens"].append(self._text(entry.token_id))
            block["token_logprobs"].append(max(entry.logprob, LOWEST))
            block["top_logprobs"].append(self._top(entry))
            block["text_offset"].append(self._advance(entry.token_id))
        return block

    def prompt(self, tokens: Sequence[int], scores: Sequence[TokenLogprob]) -> dict[str, Any]:
        """As `block`, for an echoed prompt. Its first token follows no other, so that it has no probability."""
        first = {
            "tokens": [self._text(tokens[0])],
            "token_logprobs": [None],
            "top_logprobs": [None],
            "text_offset": [self._advance(tokens[0])],
        }
        rest = self.block(scores)
        return {name: values + rest[name] for name, values in first.items()}

    def _advance(self, token: int) -> int:
        """The position at which the token's text begins; moves past it."""
        start = self._offset
        if self._decoder:
            self._offset += len(self._decoder.push([token]))
        return start

    def _text(self, token: int) -> str:
        return token_text(self._tokenizer, token) if self._tokenizer else f"token_id:{token}"

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        """{text: log-probability} of the most likely tokens and the chosen one.

        Parts of characters may all decode to the same text, so that their keys are token ids.
        """
        top: dict[str, float] = {}
        for token, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            text = self._text(token)
            top[f"token_id:{token}" if REPLACEMENT in text else text] = max(logprob, LOWEST)
        return top
