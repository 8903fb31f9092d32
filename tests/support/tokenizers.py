"""Small byte-level tokenizers with DeepSeek's control tokens, trained when first needed."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from deepseek_v32.inference.text.tokenizer import Tokenizer

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
MARKUP = ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜"]
CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    '<invoke name="get_weather"> <parameter name="city" string="true"> function_calls function_results',
    "Was ist 1+1? 你好，世界。 Привет. 🙂 naïve café",
    "think thinking User Assistant </result> <result>",
]


@cache
def definition() -> str:
    """tokenizer.json, built like the released one: byte-level BPE, where only bos, eos and padding are flagged special."""
    tokenizer = tokenizers.Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=[BOS, EOS, PAD])
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKUP])
    return tokenizer.to_str()


def split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def real_definition() -> dict[str, Any]:
    """The same tokens in a tokenizer.json of the released file's shape: an empty sequence of normalizers, splits by patterns
    before the byte level, a post-processor, and merges as texts."""
    content = json.loads(definition())
    level = {"type": "ByteLevel", "trim_offsets": True}
    splits = [
        split(r"\p{N}{1,3}"),
        split("[一-龥぀-ゟ゠-ヿ]+"),
        split(
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ]
    byte_level = {**level, "add_prefix_space": False, "use_regex": False}
    return {
        **content,
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        "post_processor": {**level, "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {**level, "add_prefix_space": True, "use_regex": True},
        "model": {**content["model"], "merges": [" ".join(pair) for pair in content["model"]["merges"]]},
    }


def make_tokenizer(chat_template: str | None = None) -> Tokenizer:
    return Tokenizer(json.loads(definition()), chat_template=chat_template)


def write_tokenizer(directory: Path, **settings: object) -> None:
    """Write the files of a checkpoint's tokenizer; `settings` go into tokenizer_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(definition(), encoding="utf-8")
    settings = {"bos_token": {"content": BOS, "__type": "AddedToken"}, "eos_token": EOS, **settings}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
