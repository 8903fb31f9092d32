"""Reads a checkpoint's files about text and generation. Values of another type than transformers gives them are refused.

Without tokenizer.json, transformers' AutoTokenizer builds the same definition from the checkpoint's vocabulary files.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...kernels.errors import ArgumentError
from ...model.checkpoint.files import parse_object
from ...model.errors import short_repr
from .errors import TokenizerError

T = TypeVar("T")


class Kind(NamedTuple):
    """The values that a key may have."""

    expected: str
    accepts: Callable[[Any], bool]


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31  # ids are int32 in the kernels


def _is_added(value: Any) -> bool:
    """Check an entry of tokenizer.json's added_tokens. An empty text would match between any two characters."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("content"), str)
        and value["content"] != ""
        and _is_id(value.get("id"))
    )


def _is_named_template(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("template"), str)


def _list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(accepts, value))


def _optional(expected: str, accepts: Callable[[Any], bool]) -> Kind:
    return Kind(f"{expected}, or null", lambda value: value is None or accepts(value))


def _only(value: Any) -> Kind:
    expected = "null" if value is None else f"{json.dumps(value)}, or null"
    return Kind(
        expected, lambda given: given is None or (given == value and isinstance(given, bool) == isinstance(value, bool))
    )


_OBJECT = Kind("an object", lambda value: isinstance(value, dict))
_TEXT = _optional("a text", lambda value: isinstance(value, str))
_FLAG = _optional("true or false", lambda value: type(value) is bool)
_INTEGER = _optional("an integer", lambda value: type(value) is int)
_NUMBER = _optional("a number", lambda value: type(value) in (int, float))
_TOKEN = _optional(
    "a token's text, or an object with its text as content", lambda value: isinstance(token_text(value), str)
)
_IDS = _optional("a token id, or a list of them", lambda value: _is_id(value) or _list_of(_is_id)(value))
_TEMPLATE = _optional(
    "a text, or a list of objects with texts as name and template",
    lambda value: isinstance(value, str) or _list_of(_is_named_template)(value),
)

# Keys that are read here, and other keys of transformers: a wrong type shows that the file is damaged.
_KINDS: dict[str, dict[str, Kind]] = {
    "tokenizer.json": {
        "added_tokens": Kind("a list of objects with content and id", _list_of(_is_added)),
        "decoder": _optional("an object", lambda value: isinstance(value, dict)),
        "model": _OBJECT,
    },
    "tokenizer_config.json": {
        **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), _TOKEN),
        **dict.fromkeys(("add_bos_token", "add_eos_token", "clean_up_tokenization_spaces", "legacy"), _FLAG),
        "chat_template": _TEMPLATE,
        "model_max_length": _NUMBER,
        "tokenizer_class": _TEXT,
        "added_tokens_decoder": _optional("an object", lambda value: isinstance(value, dict)),
    },
    "generation_config.json": {
        "eos_token_id": _IDS,
        **dict.fromkeys(("bos_token_id", "max_length", "max_new_tokens", "top_k"), _INTEGER),
        **dict.fromkeys(("temperature", "top_p", "min_p", "repetition_penalty"), _NUMBER),
        "do_sample": _FLAG,
        "transformers_version": _TEXT,
        # Keys with which transformers would choose other tokens, and the only value that is computed here.
        **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences", "guidance_scale"), _only(1)),
        **dict.fromkeys(("typical_p", "encoder_repetition_penalty"), _only(1)),
        **dict.fromkeys(
            ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens"), _only(0)
        ),
        **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "diversity_penalty", "penalty_alpha"), _only(0)),
        **dict.fromkeys(("bad_words_ids", "force_words_ids", "suppress_tokens", "begin_suppress_tokens"), _only([])),
        **dict.fromkeys(("constraints", "stop_strings", "sequence_bias", "dola_layers"), _only([])),
        **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "forced_decoder_ids"), _only(None)),
        **dict.fromkeys(("top_h", "max_time", "watermarking_config", "exponential_decay_length_penalty"), _only(None)),
        "token_healing": _only(False),
    },
    "config.json": {"eos_token_id": _IDS},  # model/checkpoint/config_json.py checks the rest
}


def read_settings(path: Path) -> dict[str, Any] | None:
    """Read the object in one of these files; None if there is no such file.

    Raises TokenizerError for a file that cannot be read, is no JSON object, or has a value of a wrong type.
    """
    if (values := _read(path, "a JSON object", lambda: parse_object(path.read_bytes()))) is None:
        return None
    for key, kind in _KINDS[path.name].items():
        if not kind.accepts(values.get(key)) and (key in values or kind is _OBJECT):
            raise TokenizerError(f"{path}: {key} is {short_repr(values.get(key))}; expected {kind.expected}")
    return values


def read_text(path: Path) -> str | None:
    """Read a text file in UTF-8; None if there is no such file. Raises TokenizerError for anything else."""
    return _read(path, "a text in UTF-8", lambda: path.read_text(encoding="utf-8"))


def _read(path: Path, expected: str, read: Callable[[], T]) -> T | None:
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe or a device, which may never end
        raise TokenizerError(f"{path}: is not a regular file; expected one")
    try:
        return read()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        if is_missing and not path.is_symlink():
            return None
        reason = "it is a link to a missing file" if is_missing else error.strerror
        raise TokenizerError(f"{path}: cannot be read ({reason}); expected {expected}") from error
    except ValueError as error:
        raise TokenizerError(f"{path}: {error}; expected {expected}") from error


def token_text(value: Any) -> str | None:
    """Return the text of a token, which tokenizer_config.json writes as it is or as {"content": text, …}."""
    return value.get("content") if isinstance(value, dict) else value


def vocabulary_size(directory: Path) -> int | None:
    """Return vocab_size of config.json; None if it is missing, or a value that model/checkpoint/config_json.py refuses."""
    size = (read_settings(directory / "config.json") or {}).get("vocab_size")
    return size if type(size) is int else None


def end_ids(directory: Path) -> list[int]:
    """Return the end tokens of generation_config.json and config.json. TokenizerError for ids outside the vocabulary."""
    config = read_settings(directory / "config.json") or {}
    generation = read_settings(directory / "generation_config.json") or {}
    size = vocabulary_size(directory)
    found: list[int] = []
    for name, values in (("generation_config.json", generation), ("config.json", config)):
        ids = values.get("eos_token_id")
        ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
        if size is not None and any(token >= size for token in ids):
            expected = f"ids of the vocabulary of {size}"
            raise TokenizerError(f"{directory / name}: eos_token_id is {short_repr(ids)}; expected {expected}")
        found += ids
    return found


# Keys of generation_config.json, and the fields of SamplingParams that they set: vLLM's choice, and transformers' do_sample.
_SAMPLING = {name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
_SAMPLING["max_new_tokens"] = "max_tokens"


def sampling_defaults(directory: Path, make: Callable[..., T]) -> T:
    """Return what `make` makes of the fields of SamplingParams that generation_config.json sets.

    Raises TokenizerError, also in place of `make`'s ArgumentError, so that it names the file. max_length, which counts the prompt,
    is ignored, as in vLLM.
    """
    path = directory / "generation_config.json"
    values = (read_settings(path) if directory.is_dir() else None) or {}  # else only a config.json, for random weights
    given = {field: values[key] for key, field in _SAMPLING.items() if values.get(key) is not None}
    if values.get("do_sample") is False:
        given["temperature"] = 0
    try:
        return make(**given)
    except ArgumentError as error:
        name = next((key for key, field in _SAMPLING.items() if field == error.name), error.name)
        raise TokenizerError(f"{path}: {error.renamed(name)}") from error


def read_chat_template(directory: Path, settings: dict[str, Any]) -> str | None:
    """Return the Jinja source in chat_template.jinja, or else in tokenizer_config.json, whose content is `settings`.

    Raises TokenizerError.
    """
    separate = read_text(directory / "chat_template.jinja")
    if separate is not None:
        return separate
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named templates
        named = {entry["name"]: entry["template"] for entry in template}
        if named and "default" not in named:
            found = ", ".join(map(ascii, named))[:200]
            raise TokenizerError(
                f"{directory}/tokenizer_config.json: chat_template has {found}; expected one named default"
            )
        template = named.get("default")
    return template


# Vocabulary files of the tokenizer classes in transformers: SentencePiece, tiktoken, byte-level BPE, WordPiece.
_VOCABULARIES = ("*.model", "*.tiktoken", "vocab.json", "vocab.txt")


def build_definition(directory: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Build (content of a tokenizer.json, {"bos_token", "eos_token"}) of a checkpoint; None without a vocabulary file.

    Reads local files only and runs no code of the checkpoint. Raises TokenizerError for files that AutoTokenizer cannot use, and
    for a tokenizer without a backend of the `tokenizers` library.
    """
    if not any(path.is_file() for pattern in _VOCABULARIES for path in directory.glob(pattern)):
        return None
    # Imported here: it takes seconds, and most checkpoints have a tokenizer.json.
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # ValueError, OSError, KeyError, ImportError …, as the tokenizer class has it
        reason = " ".join(str(error).split())[:300]
        raise TokenizerError(f"{directory}: no tokenizer.json, and AutoTokenizer cannot build it: {reason}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise TokenizerError(
            f"{directory}: the tokenizer is {type(tokenizer).__name__}, which is written in Python; expected one of the "
            "tokenizers library, or a tokenizer.json"
        )
    if not backend.get_vocab_size(with_added_tokens=False):
        raise TokenizerError(
            f"{directory}: the vocabulary of {type(tokenizer).__name__} is empty; expected its files, or a tokenizer.json"
        )
    return json.loads(backend.to_str()), {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
