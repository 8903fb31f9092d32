"""A small byte-level BPE tokenizer with DeepSeek's control tokens, trained on generated text, for synthetic checkpoints."""

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

# As in the released tokenizer, the first three have the lowest ids and are flagged special; the others have the highest ids.
BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
MARKUP = ("<think>", "</think>", "<｜User｜>", "<｜Assistant｜>", "｜DSML｜")
SMALLEST_VOCABULARY = 256 + 3 + len(MARKUP)  # every byte and the control tokens

# V3.2-Exp's chat format. It drops an assistant's reasoning from the history.
CHAT_TEMPLATE = """\
{%- if thinking is not defined %}{% set thinking = false %}{% endif -%}
{{- bos_token -}}
{%- for message in messages if message.role == 'system' %}{{ message.content }}{% endfor -%}
{%- for message in messages if message.role != 'system' -%}
{%- if message.role == 'user' -%}
{{- '<｜User｜>' + message.content -}}
{%- if not loop.last or add_generation_prompt -%}
{{- '<｜Assistant｜>' + ('<think>' if thinking and loop.last else '</think>') -}}
{%- endif -%}
{%- elif message.role == 'assistant' -%}
{{- message.content.split('</think>')[-1] + eos_token -}}
{%- else -%}
{{- raise_exception('this template knows the roles system, user and assistant, not ' + message.role) -}}
{%- endif -%}
{%- endfor -%}
"""

_WORDS = {
    "who": "the baker|a sailor|my neighbour|the old teacher|every engineer|our cat|the mayor|a quiet student|nobody|she",
    "did": "found|painted|forgot|repaired|measured|described|carried|counted|opened|borrowed|translated|lost|sold|tested",
    "what": "the lamp|a letter|three keys|the blue bicycle|an answer|the last page|a warm coat|the garden gate|two maps",
    "where": "near the harbour|behind the library|in the kitchen|at the station|under the bridge|beside the river|upstairs",
    "when": "yesterday|before breakfast|in the winter|every morning|long ago|on Monday|after the concert|at noon|twice",
    "why": "because it rained|since nobody asked|although it was late|so that all could see|without a reason|to be sure",
}
_SYLLABLES = "ka lo mi ren tas vu bel dor fin gra hul jen kor lim nas pel quo rys sten tov ul wen yar zim"
_FORMS = (
    "{when} {who} {did} {what} {where}.",
    "{name} and {other} {did} {what} {where}.",
    "{who} {did} {what} {when}, {why}.",
    "Did {who} really say that {who} {did} {what} {where}?",
    "{a} plus {b} makes {sum}; {a} times {b} makes {product}.",
    "def add_{a}(x):\n    return x + {b}  # {sum} for x = {a}\n",
    '{{"name": "{what}", "count": {a}, "place": "{where}"}}',
    "- {what}: {a}\n- {what}: {b}\n",
    "你好，世界。今天是{a}月{b}日，天气很好。",  # noqa: RUF001
    "Привет! Как дела? Сегодня {a} градусов.",
    "Ça va? Il y a {a} élèves à l'école, « {sum} » en tout. 🙂",
)


def make_texts(seed: int = 0, count: int = 8000) -> Iterator[str]:
    """Generate short texts: sentences, sums, code, JSON, and a few lines in other scripts."""
    rng = random.Random(seed)
    syllables = _SYLLABLES.split()
    choices = {key: words.split("|") for key, words in _WORDS.items()}
    for _ in range(count):
        a, b = rng.randrange(1, 100), rng.randrange(1, 100)
        fill = {key: rng.choice(words) for key, words in choices.items()}
        for key in ("name", "other"):  # invented names give more words than any vocabulary holds
            fill[key] = "".join(rng.choices(syllables, k=rng.randrange(2, 5))).capitalize()
        text = rng.choice(_FORMS).format(**fill, a=a, b=b, sum=a + b, product=a * b)
        yield text[0].upper() + text[1:]


def write_tokenizer(directory: str | Path, vocab_size: int, texts: Iterable[str] | None = None) -> int:
    """Train on `texts` and write tokenizer.json, tokenizer_config.json and generation_config.json. Returns the number of ids.

    Ids: bos 0, eos 1, padding 2, then bytes and merges (fewer than vocab_size allows if the texts yield no more), then MARKUP.
    Raises ValueError if `vocab_size` cannot hold every byte and the control tokens.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocab_size < SMALLEST_VOCABULARY:
        raise ValueError(
            f"vocab_size is {vocab_size}; expected at least {SMALLEST_VOCABULARY} for a byte-level tokenizer"
        )
    tokenizer = Tokenizer(models.BPE())
    # Numbers are split into groups of three digits, as in the released tokenizer.
    digits = pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(MARKUP),
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(make_texts() if texts is None else texts, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKUP])

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    generation = {"bos_token_id": 0, "eos_token_id": 1, "do_sample": True, "temperature": 1.0, "top_p": 0.95}
    (directory / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    for name, values in (("tokenizer_config.json", settings), ("generation_config.json", generation)):
        (directory / name).write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return tokenizer.get_vocab_size(with_added_tokens=True)
