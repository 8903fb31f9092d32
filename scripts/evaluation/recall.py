"""The shipped checkpoint's conversations as token ids, with the places of the answers."""

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from deepseek_v32.model.demo.conversations import UNANSWERABLE, Conversation, write

SPECIALS = [
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
    "｜DSML｜",
]  # fmt: skip
BOS, EOS, PAD, USER, ASSISTANT, THINK, END_THINK = range(7)
# What a token is.
IGNORE, USER_TEXT, WORDS, VALUE, REFUSAL = range(5)


def characters(length: int) -> int:
    """Characters of a conversation that fits `length` tokens. Measured: 0.335 + 18 / length tokens per character, special tokens
    included; the spread shrinks with the square root of the length."""
    return int(length * (1 - 1.6 / length**0.5) / (0.335 + 18 / length))


@dataclass(frozen=True)
class Answer:
    """Tokens of an answer's value, [first, end), and of the same value in the user's statement, [stated, stated_end) or -1."""

    first: int
    end: int
    kind: str
    stated: int = -1
    stated_end: int = -1


def encode(
    tokenizer: Tokenizer, conversation: Conversation, locate: bool = False, thoughts: bool = True
) -> tuple[list[int], list[int], list[Answer]]:
    """Token ids, their classes and the answers.

    locate: also find the tokens of stated values, which is slower. thoughts: one turn in thirty begins a thought and ends it at
    once, so that the demo answers in either mode.
    """
    texts = [part for turn in conversation.turns for part in (turn.user, turn.prefix, turn.value, turn.suffix)]
    run = tokenizer.encode_batch if locate else tokenizer.encode_batch_fast
    encoded = run([conversation.system, *texts], add_special_tokens=False)
    parts = iter(e.ids for e in encoded)
    ids = [BOS, *next(parts)]
    starts = []  # of each turn's user tokens
    classes = [USER_TEXT] * len(ids)
    answers = []
    for number, turn in enumerate(conversation.turns):
        user, prefix, value, suffix = next(parts), next(parts), next(parts), next(parts)
        thinks = thoughts and (len(user) * 7 + number) % 30 == 0
        starts.append(len(ids) + 1)
        head = [USER, *user, ASSISTANT, *([THINK, END_THINK] if thinks else [END_THINK])]
        ids += head
        classes += [USER_TEXT] * (len(user) + 2) + ([USER_TEXT, WORDS] if thinks else [USER_TEXT])
        ids += prefix
        classes += [WORDS] * len(prefix)
        if value:
            span = (-1, -1)
            if locate and turn.fact:
                where, start, _ = turn.fact
                at = conversation.turns[where].user.rindex(turn.value[1:], 0, turn.fact[2])
                assert at >= start, "the value is in the sentence that states it"
                span = _tokens(encoded[1 + 4 * where], starts[where], at, at + len(turn.value) - 1)
            answers.append(Answer(len(ids), len(ids) + len(value), turn.kind, *span))
            ids += value
            # The first token of "something I was not told" decides; the rest follows from it.
            answerable = turn.value != f" {UNANSWERABLE}"
            classes += [VALUE] * len(value) if answerable else [REFUSAL] + [WORDS] * (len(value) - 1)
        ids += [*suffix, EOS]
        classes += ([VALUE] if value else [WORDS]) * len(suffix) + [WORDS]
    return ids, classes, answers


def _tokens(encoding: Any, offset: int, start: int, end: int) -> tuple[int, int]:
    inside = [i for i, (a, b) in enumerate(encoding.offsets) if a < end and b > start]
    return offset + inside[0], offset + inside[-1] + 1


def batch(
    tokenizer: Tokenizer,
    seed: object,
    length: int,
    rows: int,
    *,
    locate: bool = False,
    thoughts: bool = True,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray, list[list[Answer]]]:
    """`rows` conversations of at most `length` tokens, padded: ids uint16 and classes uint8 [rows, length + 1], and a list of
    answers per row."""
    ids = np.full((rows, length + 1), PAD, dtype=np.uint16)
    classes = np.zeros((rows, length + 1), dtype=np.uint8)
    answers = []
    for row in range(rows):
        conversation = write(f"{seed} {row}", length=characters(length), **options)
        tokens, kinds, spans = encode(tokenizer, conversation, locate, thoughts)
        count = min(len(tokens), length + 1)
        ids[row, :count], classes[row, :count] = tokens[:count], kinds[:count]
        answers.append([span for span in spans if span.end < count])
    return ids, classes, answers


@dataclass(frozen=True)
class Cell:
    """One set of conversations: `split` of names and values, `wording` split of phrasings (by default, those of training)."""

    length: int
    conversations: int
    split: str = "validation"
    wording: str = "train"
    questions: int | None = None
    seed: str = "measure"


def batch_to_measure(*arguments: Any, **options: Any) -> tuple[np.ndarray, np.ndarray, list[list[Answer]]]:
    """As `batch`, without thoughts."""
    return batch(*arguments, thoughts=False, **options)


def _generate(job: tuple) -> tuple:
    path, cell, chunk, rows, make = job
    tokenizer = Tokenizer.from_file(str(path))
    seed = f"{cell.seed} {cell.split} {cell.wording} {chunk}"
    options = {"split": cell.split, "wording": cell.wording, "questions": cell.questions}
    result: tuple = make(tokenizer, seed, cell.length, rows, locate=True, **options)
    return result


def conversations(
    tokenizer: Path,
    cells: list[Cell],
    workers: int,
    tokens: int = 65536,
    make: Callable[..., tuple] = batch_to_measure,
) -> dict[Cell, list]:
    """Batches of `tokens` for each cell, generated by worker processes. make: a module's function, called as `batch` is."""
    jobs = []
    for cell in cells:
        rows = max(1, tokens // cell.length)
        jobs += [(tokenizer, cell, chunk, rows, make) for chunk in range(-(-cell.conversations // rows))]
    if workers <= 1:
        generated = [_generate(job) for job in jobs]
    else:
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            generated = pool.map(_generate, jobs, chunksize=1)
    batches: dict[Cell, list] = {cell: [] for cell in cells}
    for job, result in zip(jobs, generated, strict=True):
        batches[job[1]].append(result)
    return batches
