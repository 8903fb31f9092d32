"""What DSA selected for one answer, as people look at it: JSON for programs, one self-contained HTML page, or pieces for the chat.

A recording costs memory in proportion to tokens x layers x index_topk. Past `budget` bytes later tokens keep only the share of
the context they read, and the report says how many tokens it covers.
"""

import base64
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..llm import LLM
from ..params import Completion, TokenSelection
from ..text.detokenizer import IncrementalDecoder
from ..text.tokenizer import Tokenizer

STATIC = Path(__file__).resolve().parent.parent / "chat_app" / "static"
SCRIPTS = ("inspector_plots.js", "inspector_text.js", "inspector.js")  # one scope, in this order
BUDGET = 128 << 20  # bytes of one recording; the released model's 61 layers x 2048 positions take 0.5 MB a token
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>What DeepSeek Sparse Attention read</title><style>{style}</style></head>
<body class="dsa-page"><main id="report"></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
<script>mountReport(document.getElementById("report"), JSON.parse(document.getElementById("data").textContent));</script>
</body></html>
"""


class Recording:
    """The selections behind one answer, as they come."""

    def __init__(self, llm: LLM, prompt: Sequence[int], budget: int = BUDGET) -> None:
        self.tokenizer = llm.tokenizer
        self.layers = llm.config.num_hidden_layers
        self.topk = llm.config.index_topk
        self.prompt = list(prompt)
        self.answer: list[int] = []
        self.shares: list[float] = []  # of the context, the part read: mean over the layers
        self.bytes = 0
        self._budget = budget
        self._selections: list[TokenSelection] = []

    @classmethod
    def of(cls, llm: LLM, prompt: Sequence[int], completion: Completion) -> "Recording":
        """From a completion that was made with inspect=True."""
        recording = cls(llm, prompt, budget=1 << 62)
        for token, selection in zip(completion.token_ids, completion.selection or (), strict=True):
            recording.add(token, selection)
        return recording

    @property
    def count(self) -> int:
        """Answer tokens whose selection is known in full."""
        return len(self._selections)

    def add(self, token: int, selection: TokenSelection) -> None:
        """The next token of the answer, and the selection that led to it."""
        context = selection.position + 1
        sizes = [len(selected) for selected in selection.layers.values()]
        self.answer.append(token)
        self.shares.append((sum(sizes) + (self.layers - len(sizes)) * context) / (self.layers * context))
        if self.bytes < self._budget and len(self._selections) + 1 == len(self.answer):
            self._selections.append(selection)
            self.bytes += 4 * (sum(sizes) + sum(len(scores) for scores in selection.scores.values()))

    def header(self) -> dict[str, Any]:
        """All but the selections themselves."""
        positions = [len(self.prompt) + i for i in range(len(self.answer))]
        return {
            "layers": self.layers,
            "index_topk": self.topk,
            "prompt_tokens": len(self.prompt),
            "recorded": self.count,
            "texts": self.texts,
            "control": [i for i, token in enumerate(self.prompt + self.answer) if token in self._control],
            "shares": [round(share, 5) for share in self.shares],
            "read": round(sum(share * context for share, context in zip(self.shares, positions, strict=True))),
            "dense": sum(positions),
        }

    def selection(self, index: int) -> dict[str, Any]:
        """The selection behind one token of the answer, for each layer: a bitmap of context positions (base64, lowest bit
        first), the strengths of the selected ones (uint8, base64), and the lowest and highest score where there was a choice.

        IndexError if it is not recorded.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"token {index} of {self.count}")
        selection = self._selections[index]
        length = selection.position + 1
        return {
            "position": selection.position,
            "layers": [_bitmap(selection.positions(layer), length) for layer in range(self.layers)],
            "strengths": [_base64(_bytes(_strengths(selection, layer))) for layer in range(self.layers)],
            "scores": [_extent(selection.scores.get(layer)) for layer in range(self.layers)],
        }

    def totals(self) -> dict[str, Any]:
        """Over the recorded tokens, for each layer: how many read each position (uint16, little-endian, base64), and its mean
        strength as [peak, uint8 shares of the peak, base64]."""
        length = len(self.prompt) + len(self.answer)
        counts = np.zeros((self.layers, length), dtype="<u2")
        strengths = np.zeros((self.layers, length))
        for selection in self._selections:
            for layer in range(self.layers):
                positions = selection.positions(layer)
                counts[layer, positions] += 1
                strengths[layer, positions] += _strengths(selection, layer)
        strengths /= max(self.count, 1)
        peaks = strengths.max(axis=1)
        return {
            "position": length - 1,
            "layers": [_base64(row.tobytes()) for row in counts],
            "strengths": [
                [round(float(peak), 5), _base64(_bytes(row / peak if peak else row))]
                for row, peak in zip(strengths, peaks, strict=True)
            ],
        }

    @cached_property
    def texts(self) -> list[str]:
        return token_texts(self.prompt + self.answer, self.tokenizer)

    @cached_property
    def _control(self) -> frozenset[int]:
        return frozenset(self.tokenizer.special_ids.values()) if self.tokenizer else frozenset()

    def to_json(self) -> dict[str, Any]:
        """For programs: token texts, and for each token of the answer the positions that each layer read, with the indexer's scores
        of them where it had to choose."""
        header = self.header()
        del header["control"]
        tokens = [
            {
                "token": self.texts[len(self.prompt) + i],
                "query_position": selection.position,
                "share": header["shares"][i],
                "selected": {str(layer): selection.positions(layer).tolist() for layer in range(self.layers)},
                "scores": {str(layer): np.round(scores, 4).tolist() for layer, scores in selection.scores.items()},
            }
            for i, selection in enumerate(self._selections)
        ]
        return {**header, "tokens": tokens}

    def to_html(self) -> str:
        """A page that needs nothing but itself."""
        data = self.header() | {
            "selections": [self.selection(i) for i in range(self.count)],
            "totals": self.totals(),
        }
        return PAGE.format(
            style=(STATIC / "inspector.css").read_text(encoding="utf-8"),
            script="\n".join((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS),
            data=json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
        )


def write_report(path: Path, recordings: Sequence[Recording]) -> None:
    """To a .json file, which holds all the recordings, or a .html file, which shows one. ValueError for anything else."""
    if path.suffix == ".json":
        reports = [recording.to_json() for recording in recordings]
        text = json.dumps(reports[0] if len(reports) == 1 else reports, ensure_ascii=False)
    elif path.suffix == ".html" and len(recordings) == 1:
        text = recordings[0].to_html()
    elif path.suffix == ".html":
        raise ValueError(f"{path}: a page shows one answer, these are {len(recordings)}; a .json file holds them all")
    else:
        raise ValueError(f"{path}: a name that ends in .json or .html is wanted")
    path.write_text(text, encoding="utf-8")


def token_texts(tokens: Sequence[int], tokenizer: Tokenizer | None) -> list[str]:
    """One text a token; joined they are the whole. A character spread over tokens stands at the last of them."""
    if tokenizer is None:
        return [f"{token} " for token in tokens]
    names = {token: text for text, token in tokenizer.special_ids.items()}
    decoder = IncrementalDecoder(tokenizer)
    texts: list[str] = []
    for token in tokens:
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


def _strengths(selection: TokenSelection, layer: int) -> np.ndarray:
    """How clearly each selected position was chosen: 0 for the lowest selected score, 1 for the highest.

    Scores of different layers have different scales, and only this makes them comparable. All 1 where nothing had to be chosen.
    """
    scores = selection.scores.get(layer)
    if scores is None or len(scores) == 0:
        return np.ones(len(selection.positions(layer)))
    low, high = float(scores.min()), float(scores.max())
    return (scores - low) / (high - low) if high > low else np.ones(len(scores))


def _extent(scores: np.ndarray | None) -> list[float] | None:
    return (
        None if scores is None or len(scores) == 0 else [round(float(scores.min()), 4), round(float(scores.max()), 4)]
    )


def _bytes(shares: np.ndarray) -> bytes:
    return np.round(shares * 255).astype(np.uint8).tobytes()


def _bitmap(positions: np.ndarray, length: int) -> str:
    bits = np.zeros(length, dtype=bool)
    bits[positions] = True
    return _base64(np.packbits(bits, bitorder="little").tobytes())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
