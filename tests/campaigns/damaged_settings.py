"""Damage to the configuration, the tokenizer, generation settings, the index and the manifest, and to files of any kind."""

import json
import math
import random
from pathlib import Path
from typing import Any

from .damaged_weights import Files, Mutate, content, weights


def edit_json(name: str, edits: list[dict[str, Any]]) -> Mutate:
    """Replace keys of a JSON file."""

    def mutate(rng: random.Random, files: Files) -> None:
        values = json.loads(content(files, name))
        files[name] = json.dumps(values | rng.choice(edits)).encode()

    return mutate


WRONG_TYPES: list[Any] = ["x", [1], {"a": 1}, 1.5, -1, True, 10**40, "", [], math.nan]
DIMENSIONS = ("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_attention_heads", "q_lora_rank",
              "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "n_routed_experts", "index_n_heads", "index_head_dim")  # fmt: skip


def wrong_config(rng: random.Random, files: Files) -> None:
    values = json.loads(content(files, "config.json"))
    if rng.random() < 0.6:
        values[rng.choice([*DIMENSIONS, "num_hidden_layers", "n_group", "index_topk"])] = rng.choice(WRONG_TYPES)
    else:
        key = rng.choice(DIMENSIONS)
        values[key] = rng.choice([values[key] * 2, values[key] + 1, 1])
    files["config.json"] = json.dumps(values).encode()


OTHER_NUMBERS: list[dict[str, Any]] = [
    {"rope_theta": 20000.0}, {"rms_norm_eps": 1e-2}, {"routed_scaling_factor": 1.0}, {"index_topk": 8}, {"norm_topk_prob": False},
    {"rope_scaling": None}, {"num_experts_per_tok": 1}, {"indexer_rope_interleave": True}, {"max_position_embeddings": 64},
]  # fmt: skip
TOKENIZER_TYPES: list[dict[str, Any]] = [
    {"bos_token": 5}, {"bos_token": [1]}, {"eos_token": {"content": 1}}, {"eos_token": True}, {"chat_template": 3},
    {"chat_template": [1]}, {"chat_template": [{"name": "default"}]}, {"tokenizer_class": 1}, {"model_max_length": "x"},
    {"clean_up_tokenization_spaces": 3}, {"added_tokens_decoder": []}, {"pad_token": 1.5},
]  # fmt: skip
VOCABULARY_TYPES: list[dict[str, Any]] = [
    {"added_tokens": None}, {"added_tokens": [1]}, {"added_tokens": [{"content": 3, "id": 0}]}, {"model": None}, {"model": []},
    {"decoder": ["x"]}, {"decoder": 3}, {"pre_tokenizer": 3}, {"model": {"type": "BPE"}}, {"normalizer": [1]},
]  # fmt: skip
GENERATION_TYPES: list[dict[str, Any]] = [
    {"eos_token_id": "1"}, {"eos_token_id": [[1]]}, {"eos_token_id": -1}, {"eos_token_id": True}, {"eos_token_id": 10**9},
    {"eos_token_id": {}}, {"temperature": "hot"}, {"top_p": [1]}, {"top_k": 1.5}, {"do_sample": "yes"}, {"max_length": "x"},
]  # fmt: skip


def fewer_layers(rng: random.Random, files: Files) -> None:
    values = json.loads(content(files, "config.json"))
    values["num_hidden_layers"] = rng.randrange(1, values["num_hidden_layers"])
    values["num_nextn_predict_layers"] = rng.choice([0, 1, 2])
    files["config.json"] = json.dumps(values).encode()


def index_name(files: Files) -> str:
    """The file that says which file holds which tensor: an index, or a converted checkpoint's manifest."""
    return "model.safetensors.index.json" if "model.safetensors.index.json" in files else "manifest.json"


def wrong_index(rng: random.Random, files: Files) -> None:
    name = index_name(files)
    values = json.loads(content(files, name))
    key = "weight_map" if "weight_map" in values else "files"
    table = values[key]
    entry = rng.choice(list(table))
    change = rng.randrange(7)
    if change == 0:
        del table[entry]
    elif change == 1:
        table[entry] = rng.choice([None, 3, "../x.safetensors", "/etc/passwd", "gone.safetensors", "x.bin", ["x"]])
    elif change == 2:
        table["extra.safetensors" if key == "files" else "extra"] = table[entry]
    elif change == 3:
        values[key] = rng.choice([None, [], {}, "x", 3])
    files[name] = json.dumps(values).encode()
    if change == 4:
        files[name] = rng.choice([b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"weight_map": {}, "weight_map": {}}'])
    elif change == 5:
        files[name] = content(files, name)[: rng.randrange(len(content(files, name)))]
    elif change == 6:
        del files[name]


def manifest_name(files: Files) -> str | None:
    return next((name for name in files if name.endswith("manifest.json")), None)


def wrong_manifest(rng: random.Random, files: Files) -> None:
    """The form of a manifest. Without one: a manifest of another checkpoint."""
    name = manifest_name(files)
    if name is None:
        empty = {"format": "deepseek-v32 manifest, version 1", "hash": "xxh3-128", "files": {}, "others": {}}
        files["model.safetensors.manifest.json"] = rng.choice([json.dumps(empty).encode(), b"{}", b"", b"[]", b"\xff"])
        return
    values = json.loads(content(files, name))
    key = rng.choice(["format", "hash", "files", "others"])
    values[key] = rng.choice([None, 3, "x", [1], {}, {"x": 1}])
    files[name] = rng.choice([json.dumps(values).encode(), b"", b"{}", content(files, name)[:-40]])


def wrong_hash(rng: random.Random, files: Files) -> None:
    """One hash of a manifest, or the length of one piece. Without one: a manifest with a wrong hash of the configuration."""
    name = manifest_name(files)
    if name is None:
        files["model.safetensors.manifest.json"] = b'{"format": "deepseek-v32 manifest, version 1", "hash": "xxh3-128"}'
        return
    values = json.loads(content(files, name))
    table = rng.choice([entry["tensors"] for entry in values["files"].values()] + [values["others"]])
    key = rng.choice(list(table))
    table[key] = rng.choice(
        [table[key][:-1] + ("0" if table[key][-1] != "0" else "1"), "", "x", "1:" + table[key], 3, None]
    )
    files[name] = json.dumps(values).encode()


def no_file(rng: random.Random, files: Files) -> None:
    """A link to itself or to nothing, or a directory, instead of a file."""
    names = [
        *weights(files),
        "config.json",
        "tokenizer.json",
        "generation_config.json",
        index_name(files),
        manifest_name(files),
    ]
    name = rng.choice([name for name in names if name is not None and name in files])
    files[name] = rng.choice([Path(name), Path("gone"), None])


def lfs_pointer(rng: random.Random, files: Files) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {rng.randrange(10**9)}\n"
    files[rng.choice([*weights(files), "tokenizer.json", "config.json"])] = text.encode()


def garbage(rng: random.Random, files: Files) -> None:
    name = rng.choice([*weights(files), "config.json", "tokenizer.json", index_name(files)])
    files[name] = rng.randbytes(rng.randrange(1, 4000))
