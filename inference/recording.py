"""A recording of what DSA selected for one answer, as values for JSON: no model, engine or tokenizer.

It needs memory in proportion to tokens x layers x index_topk. Once `budget` bytes are used, each further token keeps only the
fraction of the context that was selected for it. Arrays are read, and passages found, on first use.
"""

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .passages import Passage, Story, Word, find_passages, find_sources, find_words
from .token_selection import TokenSelection

LONG_MESSAGE = 256  # tokens; of a longer one, the question is the last passage
MOST_HEAD_GROUPS = 4
Namer = Callable[[Sequence[int]], Sequence[str]]  # token ids -> one text for each


class Recording:
    """The selections that led to one answer."""

    def __init__(
        self,
        prompt: Sequence[int],
        num_layers: int,
        index_topk: int,
        *,
        entry_bytes: tuple[int, int] = (0, 0),
        budget: float = math.inf,
    ) -> None:
        """prompt: token ids. entry_bytes: of a token's latent and of its index key, in one layer's caches. budget: bytes of
        selections that are kept."""
        self.entry_bytes = entry_bytes
        self._drafted: list[int] = []  # indices of answer tokens
        self.logprobs: list[float] | None = None  # of the answer's tokens, once `measured`
        self._mass: np.ndarray | None = None  # [tokens, layers, head groups]
        self._user_id: int | None = None
        self._sources: dict[int, tuple[float, Story]] = {}  # by answer token, once `words` are found
        self.about: dict[str, Any] = {}  # what a report says of the model and the settings
        self.num_layers = num_layers
        self.index_topk = index_topk
        self.prompt = list(prompt)
        self.answer: list[int] = []
        # By answer token: positions selected in all layers together, and the context.
        self._read: list[tuple[int, int]] = []
        self.bytes = 0
        self._budget = budget
        self._selections: list[TokenSelection] = []
        self._name: Namer | None = None
        self._texts: list[str] | None = None
        self._control: frozenset[int] = frozenset()

    @property
    def token_ids(self) -> list[int]:
        return self.prompt + self.answer

    @property
    def count(self) -> int:
        """Answer tokens whose selections are kept in full."""
        return len(self._selections)

    @property
    def fractions(self) -> list[float]:
        """The selected share of the context, mean over the layers, for each answer token."""
        return [selected / (self.num_layers * context) for selected, context in self._read]

    def add(self, token: int, selection: TokenSelection | None) -> None:
        """Append the answer's next token and the selection that led to it, if it is known. It runs between steps, so it reads no
        arrays."""
        context = len(self.prompt) + len(self.answer) if selection is None else selection.position + 1
        if selection is not None and selection.is_read:
            recorded = sum(map(len, selection.layers.values()))
            scores = sum(map(len, selection.scores.values()))
            selected = recorded + (self.num_layers - len(selection.layers)) * context
        else:
            selected = recorded = self.num_layers * min(context, self.index_topk)
            scores = recorded if context > self.index_topk else 0
        if selection is not None and selection.drafted:
            self._drafted.append(len(self.answer))
        self.answer.append(token)
        self._read.append((selected, context))
        if selection is not None and self.bytes < self._budget and len(self._selections) + 1 == len(self.answer):
            self._selections.append(selection)
            self.bytes += 4 * (recorded + scores)

    def label(self, name: Namer, control_ids: Iterable[int], user_id: int | None = None) -> None:
        """Name tokens and control tokens. name: called when texts are needed. user_id: of the token that begins a message."""
        self._user_id, self._name, self._texts, self._control = user_id, name, None, frozenset(control_ids)

    @property
    def texts(self) -> list[str]:
        """One text for each token of prompt and answer; joined, they are the whole text."""
        if self._name is None:
            return [f"{token} " for token in self.token_ids]
        if self._texts is None:
            self._texts = list(self._name(self.token_ids))
            assert len(self._texts) == len(self.token_ids)
        return self._texts

    def measured(self, logprobs: Sequence[float], selections: Sequence[TokenSelection]) -> None:
        """Add the answer's log-probabilities and the mass of dense attention that its selections catch, by groups of heads."""
        self.logprobs = [round(float(value), 4) for value in logprobs]
        rows = [[each.mass[layer] for layer in range(self.num_layers)] for each in selections]
        heads = np.array(rows, dtype=np.float64)
        groups = np.array_split(heads, min(MOST_HEAD_GROUPS, heads.shape[2]), axis=2)
        self._mass = np.stack([group.mean(2) for group in groups], 2)

    def mass(self) -> dict[str, Any] | None:
        """Return `measured`'s values: shares as [token][layer][group of heads], and log-probabilities. None before it."""
        return None if self._mass is None else {"shares": np.round(self._mass, 4).tolist(), "logprobs": self.logprobs}

    @cached_property
    def passages(self) -> list[Passage]:
        """Sentences of the prompt, the last one included, which asks the question."""
        return find_passages(self.texts[: len(self.prompt)], self.control)

    @property
    def control(self) -> frozenset[int]:
        """Positions of control tokens."""
        return frozenset(i for i, token in enumerate(self.token_ids) if token in self._control)

    @property
    def question(self) -> int:
        """The start of the question: the last user's message, or the last passage of a long one."""
        last = self.passages[-1][0] if self.passages else len(self.prompt) - 1
        users = [i for i, token in enumerate(self.prompt) if token == self._user_id]
        return users[-1] if users and len(self.prompt) - users[-1] <= LONG_MESSAGE else last

    @cached_property
    def words(self) -> list[Word]:
        """Whole words of the answer, each with the passage that was read to write it. Read them once the answer is complete."""
        control, texts = self.control, self.texts
        answer = self.answer[: self.count]
        shown = [" " if len(self.prompt) + i in control else texts[len(self.prompt) + i] for i in range(self.count)]

        def scored(token: int, layer: int) -> tuple[np.ndarray, np.ndarray] | None:
            selection = self._selections[token]
            scores = selection.scores.get(layer)
            return None if scores is None or not len(scores) else (selection.positions(layer), scores)

        has_word = [any(map(str.isalnum, text)) for text in shown]
        passages = self.passages[:-1]
        self._sources = find_sources(passages, self.prompt + answer, answer, has_word, scored, self.num_layers)
        words = []
        for text, first, last in find_words(shown):
            _, story = max((self._sources.get(i, (0.0, None)) for i in range(first, last)), key=lambda found: found[0])
            copied = story is not None and text in "".join(texts[slice(*story.passage)])
            words.append(Word(text, (first, last), story, copied))
        return words

    @cached_property
    def story(self) -> Story | None:
        """The place where the answer was found: the clearest of its words' stories. Read it once the answer is complete."""
        stories = [
            (self._sources[word.story.token][0] * (1.0 if word.copied else 0.5), word.story)
            for word in self.words
            if word.story is not None
        ]
        return max(stories, key=lambda found: found[0])[1] if stories else None

    @property
    def is_quoted(self) -> bool:
        """Tell whether the story's passage holds the word that was written after reading it."""
        return any(word.copied and word.story == self.story for word in self.words)

    def header(self) -> dict[str, Any]:
        positions = [len(self.prompt) + i for i in range(len(self.answer))]
        return {
            "layers": self.num_layers,
            "index_topk": self.index_topk,
            "prompt_tokens": len(self.prompt),
            "recorded": self.count,
            "texts": self.texts,
            "control": sorted(self.control),
            "drafted": self._drafted,
            "passages": self.passages,
            "question": self.question,
            "story": None if self.story is None else self.story._asdict(),
            "words": [
                {"text": each.text, "tokens": each.tokens, "copied": each.copied}
                | ({} if each.story is None else each.story._asdict())
                for each in self.words
            ],
            "about": self.about,
            "entry_bytes": self.entry_bytes,
            "indexed": sum(context for context in positions if context > self.index_topk),
            "shares": [round(fraction, 5) for fraction in self.fractions],
            "read": round(sum(share * context for share, context in zip(self.fractions, positions, strict=True))),
            "dense": sum(positions),
        }

    def selection(self, index: int) -> dict[str, Any]:
        """The selection of one answer token. IndexError if it was not recorded.

        Layer by layer: a bitmap of context positions (base64, lowest bit first), the strengths of the selected positions (uint8,
        base64), and the lowest and highest score, None where the layer had no choice.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"index is {index}; expected 0 to {self.count - 1}, the recorded tokens")
        selection, layers = self._selections[index], range(self.num_layers)
        masks = np.zeros((self.num_layers, selection.position + 1), dtype=bool)
        for layer in layers:
            masks[layer, selection.positions(layer)] = True
        scores = [selection.scores.get(layer) for layer in layers]
        return {
            "position": selection.position,
            "layers": [pack(np.packbits(mask, bitorder="little")) for mask in masks],
            "strengths": [pack_fractions(strengths_of(selection, layer)) for layer in layers],
            "scores": [
                None if each is None or not len(each) else [round(float(edge), 4) for edge in (each.min(), each.max())]
                for each in scores
            ],
        }

    def totals(self) -> dict[str, Any]:
        """Sums over the recorded tokens, layer by layer: how many of them selected each position (uint16, little-endian,
        base64), and the position's mean strength as [peak, uint8 fractions of the peak in base64]."""
        length = len(self.prompt) + len(self.answer)
        counts = np.zeros((self.num_layers, length), dtype="<u2")
        strengths = np.zeros((self.num_layers, length))
        for selection in self._selections:
            for layer in range(self.num_layers):
                positions = selection.positions(layer)
                counts[layer, positions] += 1
                strengths[layer, positions] += strengths_of(selection, layer)
        strengths /= max(self.count, 1)
        peaks = strengths.max(axis=1)
        return {
            "position": length - 1,
            "layers": [pack(row) for row in counts],
            "strengths": [
                [round(float(peak), 5), pack_fractions(row / peak if peak else row)]
                for row, peak in zip(strengths, peaks, strict=True)
            ],
        }

    def to_json(self) -> dict[str, Any]:
        """Return values for programs: the tokens' texts, and for each answer token the positions that each layer selected, with the
        indexer's scores where the layer had a choice."""
        header = {key: value for key, value in self.header().items() if key not in ("control", "passages")}
        tokens = [
            {
                "token": header["texts"][len(self.prompt) + i],
                "query_position": selection.position,
                "share": header["shares"][i],
                "selected": {str(layer): selection.positions(layer).tolist() for layer in range(self.num_layers)},
                "scores": {str(layer): np.round(scores, 4).tolist() for layer, scores in selection.scores.items()},
            }
            for i, selection in enumerate(self._selections)
        ]
        return {**header, "tokens": tokens}


def strengths_of(selection: TokenSelection, layer: int) -> np.ndarray:
    """fp64 [K]: how clearly a layer selected each position, from 0 for the lowest selected score to 1; ones if it had no choice."""
    scores = selection.scores.get(layer)
    if scores is None or len(scores) == 0:
        return np.ones(len(selection.positions(layer)))
    low, high = float(scores.min()), float(scores.max())
    return (scores - low) / (high - low) if high > low else np.ones(len(scores))


def pack_fractions(fractions: np.ndarray) -> str:
    """Fractions from 0 to 1 as one byte each, in base64."""
    return pack(np.round(fractions * 255).astype(np.uint8))


def pack(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()
