"""Optional parts of a response: log-probabilities, and the positions that DSA selected."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...completion import Delta, TokenLogprob
from ...text.detokenizer import IncrementalDecoder
from ...text.tokenizer import REPLACEMENT, Tokenizer
from ...token_selection import TokenSelection
from .context import ApiContext

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
        return {
            "tokens": [self._text(entry.token_id) for entry in entries],
            "token_logprobs": [max(entry.logprob, LOWEST) for entry in entries],
            "top_logprobs": [self._top(entry) for entry in entries],
            "text_offset": [self._advance(entry.token_id) for entry in entries],
        }

    def prompt(self, tokens: Sequence[int], scores: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Like `block`, for an echoed prompt. Its first token follows no other, so it has no probability."""
        whole = self.block([TokenLogprob(tokens[0], 0.0, ()), *scores])
        whole["token_logprobs"][0] = whole["top_logprobs"][0] = None
        return whole

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


async def prompt_logprobs(context: ApiContext, prompt: Sequence[int], count: int) -> list[Any]:
    """Return for each token of a prompt, by id, its log-probability and the `count` likeliest tokens' ones; null for the first.

    Raises ApiError and Busy.
    """
    entries: list[Any] = [None]
    for score in await context.score(prompt, count):
        ranks = {token: rank for rank, (token, _) in enumerate(score.top, 1)}
        values = {**dict(score.top), score.token_id: score.logprob}
        entries.append(
            {
                str(token): {
                    "logprob": max(value, LOWEST),
                    "rank": ranks.get(token),
                    "decoded_token": token_text(context.tokenizer, token),
                }
                for token, value in values.items()
            }
        )
    return entries


def selections(found: Sequence[TokenSelection]) -> list[dict[str, Any]]:
    """Return for each token its query's position in prompt and answer, and by layer the positions that were attended to,
    ascending, and their scores where the layer had more to choose from than it takes."""
    return [
        {
            "query_position": each.position,
            "layers": {str(layer): positions.tolist() for layer, positions in each.layers.items()},
            "scores": {str(layer): np.round(scores.astype(float), 5).tolist() for layer, scores in each.scores.items()},
        }
        for each in found
    ]


def selections_of(deltas: Sequence[Delta]) -> list[dict[str, Any]]:
    """The selections of a chunk's tokens."""
    return selections([delta.selection for delta in deltas if delta.selection is not None])
