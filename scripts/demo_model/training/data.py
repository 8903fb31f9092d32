"""Conversations as batches of tokens. Batch i of a length depends only on (seed, length, i); workers generate it in advance."""

import json
import multiprocessing
import os
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from deepseek_v32.inference.text.dsml import call_pieces, tools_pieces
from deepseek_v32.inference.text.tokenizer import Special
from deepseek_v32.inference.text.tool_arguments import parameters
from demo_model.dialogues import Conversation, write
from demo_model.dialogues.turns import CALL, QUOTE, REFUSAL, VALUE, WORDS, Piece

from .vocabulary import ASSISTANT, BOS, END_THINK, EOS, PAD, SPECIALS, THINK, USER

# What a token is, and its weight in the loss. The first tokens of a quote choose the sentence; of a refusal, whether to refuse.
CLASSES = ("ignore", "user", WORDS, VALUE, "value start", QUOTE, "quote start", REFUSAL, "refusal start", CALL, "end")
_WEIGHTS = {
    "ignore": 0.0, WORDS: 0.2, VALUE: 1.0, QUOTE: 0.35, "quote start": 0.8, REFUSAL: 0.15, "refusal start": 0.8,
    CALL: 0.6, "end": 0.5,
}  # fmt: skip
ATTEMPTS = 8  # at a batch, each with other conversations
AHEAD = 96  # batches that workers may be ahead of the training; `pace.py` decides more steps in advance


def weights(user: float, value_start: float) -> np.ndarray:
    """fp32 [classes]: the weight of each class in the loss, given those of the user's text and of a value's first token."""
    each = _WEIGHTS | {"user": user, "value start": value_start}
    return np.array([each[name] for name in CLASSES], dtype=np.float32)


NUMBER = {name: number for number, name in enumerate(CLASSES)}


def characters(length: int) -> int:
    """Characters of a conversation that fits `length` tokens; `tests/model/demo` holds it to a sample."""
    return int(length * (1 - 1.6 / length**0.5) * CHARACTERS_PER_TOKEN)


CHARACTERS_PER_TOKEN = 2.75


@dataclass(frozen=True)
class Answer:
    """Tokens of an answer's value, [first, end), of the whole answer, [first, last), and of the same value in the user's
    statement, [stated, stated_end) or -1."""

    first: int
    end: int
    last: int
    kind: str
    thinks: bool
    stated: int = -1
    stated_end: int = -1


class Encoder:
    """Conversations to token ids, their classes and the answers, in DeepSeek-V3.2's chat format."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self._texts: dict[tuple[Piece, ...], tuple[list[int], list[int], int]] = {}  # many answers are the same

    def __call__(self, conversation: Conversation, locate: bool = False) -> tuple[list[int], list[int], list[Answer]]:
        """locate: also find the tokens of stated values, which is slower."""
        turns = conversation.turns
        users = (self.tokenizer.encode_batch if locate else self.tokenizer.encode_batch_fast)(
            [t.user for t in turns], add_special_tokens=False
        )
        self.ids: list[int] = [BOS]
        self.classes: list[int] = [NUMBER["user"]]
        system: list[str | Special] = [conversation.system]
        if conversation.functions:
            system += ["\n\n", *tools_pieces([function.schema for function in conversation.functions])]
        self._add(self._pieces(system), "user")
        starts, answers = [], []
        for turn, user in zip(turns, users, strict=True):
            self._add([USER], "user")
            starts.append(len(self.ids))
            self._add(user.ids, "user")
            self._add([ASSISTANT], "user")
            self._think(turn.thought)
            first = len(self.ids)
            if turn.call is not None:
                calls = [(name, parameters(json.dumps(given)) or []) for name, given in turn.call.calls]
                pieces = self._pieces(["\n\n", *call_pieces(calls)])
                self._add([*pieces, EOS], CALL)
                answers.append(Answer(first, len(self.ids), len(self.ids), "call", turn.thought is not None))
                results = "".join(f"\n<result>{result}</result>" for result in turn.call.results)
                self._add(self._pieces([f"\n\n<function_results>{results}\n</function_results>\n\n"]), "user")
                self._think(turn.call.thought)
                first = len(self.ids)
                value = self._text(turn.call.answer)
                kind, thinks = "result", turn.call.thought is not None
            else:
                value = self._text(turn.answer)
                kind, thinks = turn.kind, turn.thought is not None
            self._add([EOS], "end")
            span = (-1, -1)
            if locate and turn.fact and turn.kind in ("stated", "updated"):
                span = self._find(conversation, turn, users, starts)
            answers.append(Answer(first, first + value, len(self.ids), kind, thinks, *span))
        return self.ids, self.classes, answers

    def _add(self, ids, kind: str) -> None:
        self.ids += ids
        self.classes += [NUMBER[kind]] * len(ids)

    def _pieces(self, pieces: list[str | Special]) -> list[int]:
        ids, text = [], ""
        for piece in [*pieces, None]:
            if isinstance(piece, str):
                text += piece
                continue
            if text:
                ids += self.tokenizer.encode(text, add_special_tokens=False).ids
                text = ""
            if piece is not None:
                ids.append(SPECIALS.index(piece.text))
        return ids

    def _think(self, thought: list[Piece] | None) -> None:
        if thought is None:
            self._add([END_THINK], "user")
            return
        self._add([THINK], "user")
        self._text(thought)
        self._add([END_THINK], "end")

    def _text(self, pieces: list[Piece]) -> int:
        """Appends the text with a class for each token; returns the number of tokens of its value."""
        found = self._texts.get(key := tuple(pieces))
        if found is None:
            found = self._texts[key] = self._classified(pieces)
        self.ids += found[0]
        self.classes += found[1]
        return found[2]

    def _classified(self, pieces: list[Piece]) -> tuple[list[int], list[int], int]:
        text = "".join(part for part, _ in pieces)
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        kinds: list[str] = []
        for part, kind in pieces:
            kinds += [kind] * len(part)
        classes: list[int] = []
        value, previous, since = 0, "", 0
        for start, end in encoding.offsets:
            kind = kinds[min(end - 1, start + (text[start] == " " and end > start + 1))]
            since = since + 1 if kind == previous else 0
            previous = kind
            value += kind == VALUE
            if kind == QUOTE and since < 4:
                kind = "quote start"
            elif kind == VALUE and since == 0:
                kind = "value start"
            elif kind == REFUSAL and since == 0:
                kind = "refusal start"
            classes.append(NUMBER[kind])
        return encoding.ids, classes, value or len(encoding.ids)

    def _find(self, conversation: Conversation, turn, users, starts) -> tuple[int, int]:
        where, begin, end = turn.fact
        said = conversation.turns[where].user
        at = said.rfind(turn.value, begin, end)
        if at < 0:  # "my dog" was said, "your dog" is answered
            return -1, -1
        inside = [i for i, (a, b) in enumerate(users[where].offsets) if a < at + len(turn.value) and b > at]
        return starts[where] + inside[0], starts[where] + inside[-1] + 1


def batch(tokenizer: Tokenizer, seed, length: int, rows: int, *, locate: bool = False, **options):
    """`rows` conversations of at most `length` tokens, padded: ids uint16 and classes uint8 [rows, length + 1], and a list of
    answers per row."""
    ids = np.full((rows, length + 1), PAD, dtype=np.uint16)
    classes = np.zeros((rows, length + 1), dtype=np.uint8)
    answers = []
    encode = Encoder(tokenizer)
    for row in range(rows):
        conversation = write(f"{seed} {row}", length=characters(length), **options)
        tokens, kinds, spans = encode(conversation, locate)
        count = min(len(tokens), length + 1)
        ids[row, :count], classes[row, :count] = tokens[:count], kinds[:count]
        answers.append([span for span in spans if span.last < count])
    return ids, classes, answers


def _claim(taken, left_out) -> int:
    """The next step that wants a batch. In turn for all workers, since a share of steps left out, one in four say, must not leave
    some of them without work."""
    with taken.get_lock():
        while taken.value < len(left_out) and left_out[taken.value]:
            taken.value += 1
        taken.value += 1
        return taken.value - 1


def _work(path: str, seed: str, plan: list[tuple[int, int]], queue, left_out, taken, room, options: dict) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker has one core
    tokenizer = Tokenizer.from_file(path)
    while room.acquire() and (number := _claim(taken, left_out)) < len(plan):
        length, rows = plan[number]
        # Long texts have few questions for their tokens: every second batch asks two or three times as many.
        asked = {"questions": characters(length) // 400} if length >= 4096 and number % 2 else {}
        ids = classes = None
        for attempt in range(ATTEMPTS):
            try:
                own = f"{seed} {number}" + " again" * attempt
                ids, classes, _ = batch(tokenizer, own, length, rows, split="train", **asked, **options)
                break
            except Exception:  # one conversation must not end a training: others take its place, and the log says why
                traceback.print_exc()
        queue.put((number, ids, classes))


class Batches:
    """Iterates in order over the batches of a plan [(length, rows)], which worker processes generate in advance.

    rank: of several processes that train together; each has conversations of its own.
    left_out: flags of the steps that get no batch; the caller may set more of them while the workers run.
    RuntimeError, from the iteration: every attempt at a batch raised.
    """

    def __init__(
        self,
        tokenizer: Path,
        seed: int,
        plan: list[tuple[int, int]],
        workers: int,
        start: int = 0,
        rank: int = 0,
        **options,
    ):
        own = f"{seed} rank {rank}" if rank else f"{seed}"
        context = multiprocessing.get_context("spawn")
        self.count, self.start = len(plan), start
        self.left_out = context.Array("b", len(plan), lock=False)
        self.queue, self.room, self.taken = context.Queue(), context.Semaphore(AHEAD), context.Value("l", start)
        shared = (self.queue, self.left_out, self.taken, self.room, options)
        self.processes = [
            context.Process(target=_work, args=(str(tokenizer), own, plan, *shared), daemon=True)
            for _ in range(workers)
        ]
        for process in self.processes:
            process.start()

    def __iter__(self):
        came: dict[int, tuple] = {}
        for number in range(self.start, self.count):
            while number not in came and not self.left_out[number]:
                other, *made = self.queue.get()
                came[other] = tuple(made)
            for passed in [other for other in came if other <= number]:
                ids, classes = came.pop(passed)
                self.room.release()
            if self.left_out[number]:
                continue
            if ids is None:  # to pass over it would part this rank from the others
                raise RuntimeError(f"batch {number} could not be generated in {ATTEMPTS} attempts; the log says why")
            yield number, ids, classes

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
