"""The tokenizer: byte-level BPE, trained on the generator's own text."""

import json
import re
from collections import Counter
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from deepseek_v32.inference.text.dsml import tools_pieces
from demo_model.dialogues import write

SPECIALS = [
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
    "｜DSML｜",
]  # fmt: skip
BOS, EOS, PAD, USER, ASSISTANT, THINK, END_THINK, DSML = range(8)
_WORD = re.compile(r" (?:[^\W\d_]+|[^\s\w]+)")


def _pre_tokenizer(words: str):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,2}"), "isolated"), pre_tokenizers.Split(Regex(words), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip


def train_tokenizer(path: Path, vocabulary: int, conversations: int = 600, spaced: int = 900) -> Tokenizer:
    """Byte-level BPE in which a word has the same pieces with and without a space before it.

    Copying a word must not depend on where it stood. So the pieces are learned from words without their spaces; afterwards the
    `spaced` words that most often follow a space get a token that includes it, by merges that come last. Digits go in pairs.
    """
    texts = [
        turn.user + "\n" + turn.assistant
        for i in range(conversations)
        for turn in write(f"tokenizer {i}", length=6000, split="train").turns
    ]
    texts += ["".join(piece for piece in tools_pieces([]) if isinstance(piece, str))] * 300
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - spaced, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = _pre_tokenizer(r"[\p{L}\p{M}]+|[^\s\p{L}\p{M}\p{N}]+|\n+| |\s")
    pieces.train_from_iterator(texts, trainer)
    counts = Counter(word[1:] for text in texts for word in _WORD.findall(text))
    vocab = pieces.get_vocab()
    merges = _merges(pieces)
    for word, _ in counts.most_common():
        encoded = pieces.encode(word, add_special_tokens=False).tokens
        if len(encoded) == 1 and "Ġ" + encoded[0] not in vocab:
            vocab["Ġ" + encoded[0]] = len(vocab)
            merges.append(("Ġ", encoded[0]))
        if len(vocab) == vocabulary:
            break
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(r" ?[\p{L}\p{M}]+| ?[^\s\p{L}\p{M}\p{N}]+|\n+|\s")
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.save(str(path))
    return tokenizer


def _merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
