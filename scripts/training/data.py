"""Tokenizer and batches. Batch i of a length depends only on (seed, length, i); worker processes generate it in advance."""

import multiprocessing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from deepseek_v32.model.demo.conversations import UNANSWERABLE, write

SPECIALS = [
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
    "｜DSML｜",
]  # fmt: skip
BOS, EOS, PAD, USER, ASSISTANT, THINK, END_THINK = range(7)
# Classes of tokens, by their weight in the loss: the user's text, the assistant's other words, values and refusals.
IGNORE, USER_TEXT, WORDS, VALUE, REFUSAL = range(5)
# Refusals weigh half: the model then refuses new phrasings a little less often, and still refuses unanswerable questions.
WEIGHTS = np.array([0.0, 0.03, 0.3, 1.0, 0.5], dtype=np.float32)


def characters(length: int) -> int:
    """Characters of a conversation that fits `length` tokens. Measured: 0.335 + 18 / length tokens per character, special tokens
    included; the spread shrinks with the square root of the length."""
    return int(length * (1 - 1.6 / length**0.5) / (0.335 + 18 / length))


def train_tokenizer(path: Path, vocabulary: int, conversations: int = 600) -> Tokenizer:
    """Byte-level BPE, trained on the training split, with digits in pairs: any text has tokens, and numbers split uniformly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,2}"), "isolated"),
        pre_tokenizers.Split(Regex(r" ?[\p{L}\p{M}]+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (
        turn.user + "\n" + turn.assistant
        for i in range(
            conversations
        )  # mostly statements, so that their words rather than the filler's become whole tokens
        for turn in write(f"tokenizer {i}", length=6000, split="train", density=0.93).turns
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return tokenizer


@dataclass(frozen=True)
class Answer:
    """Tokens of an answer's value, [first, end), and of the same value in the user's statement, [stated, stated_end) or -1."""

    first: int
    end: int
    kind: str
    stated: int = -1
    stated_end: int = -1


def encode(
    tokenizer: Tokenizer, conversation, locate: bool = False, thoughts: bool = True
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


def _tokens(encoding, offset: int, start: int, end: int) -> tuple[int, int]:
    inside = [i for i, (a, b) in enumerate(encoding.offsets) if a < end and b > start]
    return offset + inside[0], offset + inside[-1] + 1


def batch(
    tokenizer: Tokenizer, seed, length: int, rows: int, *, locate: bool = False, thoughts: bool = True, **options
):
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


def _work(path: str, seed: int, plan: list[tuple[int, int, int]], queue, options: dict) -> None:
    tokenizer = Tokenizer.from_file(path)
    for number, length, rows in plan:
        ids, classes, _ = batch(tokenizer, f"{seed} {number}", length, rows, split="train", **options)
        queue.put((number, ids, classes))


class Batches:
    """Iterates in order over the batches of a plan [(length, rows)], which worker processes generate in advance."""

    def __init__(
        self, tokenizer: Path, seed: int, plan: list[tuple[int, int]], workers: int, start: int = 0, **options
    ):
        context = multiprocessing.get_context("spawn")
        numbered = [(number, *item) for number, item in enumerate(plan)][start:]
        self.count, self.start = len(plan), start
        self.queues = [context.Queue(maxsize=60) for _ in range(workers)]  # 60 batches of 65K tokens: 12 MB per worker
        self.processes = [
            context.Process(
                target=_work, args=(str(tokenizer), seed, numbered[w::workers], self.queues[w], options), daemon=True
            )
            for w in range(workers)
        ]
        for process in self.processes:
            process.start()

    def __iter__(self):
        for number in range(self.start, self.count):
            came, ids, classes = self.queues[(number - self.start) % len(self.queues)].get()
            assert came == number, f"batch is {came}; expected {number}"
            yield number, ids, classes

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
