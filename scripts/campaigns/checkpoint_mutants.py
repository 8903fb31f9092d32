"""Ways to damage a checkpoint, in classes. A checkpoint is a dict of files: bytes, a link's target, or None for a directory."""

import json
import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Files = dict[str, "bytes | Path | None"]
Mutate = Callable[[random.Random, Files], None]


@dataclass(frozen=True)
class MutantClass:
    """One kind of damage.

    silent: why nothing can tell without a manifest; empty: it must be refused or warned of in every layout. harmless: some mutants
    change nothing that the program reads, so that a checkpoint that gives the same logits and prompts may load.
    """

    mutate: Mutate
    silent: str = ""
    harmless: bool = False


def content(files: Files, name: str) -> bytes:
    data = files[name]
    assert isinstance(data, bytes)
    return data


def weights(files: Files) -> list[str]:
    return sorted(name for name in files if name.endswith(".safetensors"))


def unpack(data: bytes) -> tuple[dict[str, Any], bytearray]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])


def pack(header: dict[str, Any], data: bytearray) -> bytes:
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + bytes(data)


Tensor = tuple[str, str, dict[str, Any]]  # file, name, entry of the header


def tensors(files: Files, wanted: Callable[[str, dict[str, Any]], bool]) -> list[Tensor]:
    return [
        (file, name, entry)
        for file in weights(files)
        for name, entry in unpack(content(files, file))[0].items()
        if name != "__metadata__" and wanted(name, entry)
    ]


def patch(files: Files, tensor: Tensor, offset: int, change: Callable[[bytes], bytes], size: int) -> None:
    """Replace `size` bytes of a tensor, `offset` bytes from its start."""
    file, _, entry = tensor
    data = bytearray(content(files, file))
    start = 8 + int.from_bytes(data[:8], "little") + entry["data_offsets"][0] + offset
    data[start : start + size] = change(bytes(data[start : start + size]))
    files[file] = bytes(data)


def is_scale(name: str, entry: dict[str, Any]) -> bool:
    return name.endswith("_scale_inv")


def flip(wanted: Callable[[str, dict[str, Any]], bool]) -> Mutate:
    """Flip one bit of one tensor."""

    def mutate(rng: random.Random, files: Files) -> None:
        tensor = rng.choice(tensors(files, wanted))
        first, last = tensor[2]["data_offsets"]
        mask = 1 << rng.randrange(8)
        patch(files, tensor, rng.randrange(last - first), lambda byte: bytes([byte[0] ^ mask]), 1)

    return mutate


def put(values: list[float], wanted: Callable[[str, dict[str, Any]], bool]) -> Mutate:
    """Set one element of one tensor. e4m3 has no infinity, so NaN stands for it."""

    def mutate(rng: random.Random, files: Files) -> None:
        tensor = rng.choice(tensors(files, wanted))
        value, kind = rng.choice(values), tensor[2]["dtype"]
        word = struct.pack("<f", value)
        coded = {"F32": word, "BF16": word[2:], "F8_E4M3": bytes([0x7F | (word[3] & 0x80)])}[kind]
        first, last = tensor[2]["data_offsets"]
        place = rng.randrange((last - first) // len(coded)) * len(coded)
        patch(files, tensor, place, lambda _: coded, len(coded))

    return mutate


def scale_by_no_power(rng: random.Random, files: Files) -> None:
    tensor = rng.choice(tensors(files, is_scale))
    place = rng.randrange(tensor[2]["data_offsets"][1] - tensor[2]["data_offsets"][0]) // 4 * 4
    factor = rng.choice([1.2, 0.75, 1 + 2.0**-23])
    patch(files, tensor, place, lambda word: struct.pack("<f", struct.unpack("<f", word)[0] * factor), 4)


def truncate(rng: random.Random, files: Files) -> None:
    name = rng.choice(weights(files))
    data = content(files, name)
    files[name] = data[: rng.choice([0, 1, 7, 8, 100, len(data) // 2, len(data) - 1, rng.randrange(len(data))])]


def lengthen(rng: random.Random, files: Files) -> None:
    name = rng.choice(weights(files))
    files[name] = content(files, name) + bytes(rng.choice([1, 8, 4096]))


def header_length(rng: random.Random, files: Files) -> None:
    name = rng.choice(weights(files))
    data = content(files, name)
    length = int.from_bytes(data[:8], "little")
    wrong = rng.choice([0, 1, length - 1, length + 1, length + 8, len(data), 2**31, 2**63, 2**64 - 1])
    files[name] = wrong.to_bytes(8, "little") + data[8:]


def edit_header(change: Callable[[random.Random, dict[str, Any], str], object]) -> Mutate:
    """Change one tensor's entry in a header, or the header by it."""

    def mutate(rng: random.Random, files: Files) -> None:
        file = rng.choice(weights(files))
        header, data = unpack(content(files, file))
        name = rng.choice([name for name in header if name != "__metadata__"])
        change(rng, header, name)
        files[file] = pack(header, data)

    return mutate


def move(rng: random.Random, header: dict[str, Any], name: str) -> None:
    first, last = header[name]["data_offsets"]
    header[name]["data_offsets"] = rng.choice(
        [
            [first + 1, last + 1],
            [first - 1, last - 1],
            [0, last - first],
            [first, last + 1],
            [last, first],
            [first],
            "x",
            None,
        ]
        if first
        else [[1, last + 1], [first, last + 1], [first, last - 1], [last, first], [-1, last - 1], [True, last], {}]
    )


def swap_headers(rng: random.Random, files: Files) -> None:
    """Two tensors of one dtype and shape: their places are exchanged."""
    file = rng.choice(weights(files))
    header, data = unpack(content(files, file))
    alike: dict[str, list[str]] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            alike.setdefault(f"{entry['dtype']} {entry['shape']}", []).append(name)
    pairs = [
        (one, other)
        for names in alike.values()
        for one in names
        for other in names
        if one < other and data[slice(*header[one]["data_offsets"])] != data[slice(*header[other]["data_offsets"])]
    ]
    one, other = rng.choice(pairs)
    header[one]["data_offsets"], header[other]["data_offsets"] = (
        header[other]["data_offsets"],
        header[one]["data_offsets"],
    )
    files[file] = pack(header, data)


def rename(rng: random.Random, header: dict[str, Any], name: str) -> None:
    new = rng.choice([name + "s", name.upper(), "x", name.replace("0", "9") + "1", "../" + name])
    items = [(new if key == name else key, value) for key, value in header.items()]
    header.clear()
    header.update(items)


def other_dtype(rng: random.Random, header: dict[str, Any], name: str) -> None:
    header[name]["dtype"] = rng.choice(["F16", "I8", "F8_E5M2", "F64", "x", 3, None])


def other_shape(rng: random.Random, header: dict[str, Any], name: str) -> None:
    shape = header[name]["shape"]
    header[name]["shape"] = rng.choice([[], [*shape, 1], [0], [-1], [1.5], "x", None, [2**62]])


def extra_tensor(rng: random.Random, header: dict[str, Any], name: str) -> None:
    end = max(entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__")
    new = rng.choice(["extra", "model.layers.0.self_attn.q_a_proj.bias", "lm_head.bias", "model.layers.99.norm.weight"])
    header[new] = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}


def header_noise(rng: random.Random, files: Files) -> None:
    """One byte of the header, which may also be of a space or of the format's name."""
    name = rng.choice(weights(files))
    data = bytearray(content(files, name))
    data[8 + rng.randrange(int.from_bytes(data[:8], "little"))] = rng.randrange(256)
    files[name] = bytes(data)


def missing_file(rng: random.Random, files: Files) -> None:
    del files[rng.choice(weights(files))]


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


FINITE = "a flipped bit gives another finite number"
CLASSES: dict[str, MutantClass] = {
    "bit of a weight": MutantClass(flip(lambda name, entry: "layers" in name and not is_scale(name, entry)), FINITE),
    "bit of a scale": MutantClass(flip(is_scale), "an exponent's bit gives another power of two"),
    "bit of the indexer": MutantClass(flip(lambda name, entry: "indexer" in name and not is_scale(name, entry)), FINITE),
    "bit of an embedding": MutantClass(flip(lambda name, entry: "embed" in name or "lm_head" in name), FINITE),
    "truncated": MutantClass(truncate),
    "longer": MutantClass(lengthen),
    "header length": MutantClass(header_length),
    "offsets": MutantClass(edit_header(move)),
    "header byte": MutantClass(header_noise, harmless=True),
    "missing file": MutantClass(missing_file),
    "missing tensor": MutantClass(edit_header(lambda rng, header, name: header.pop(name))),
    "renamed tensor": MutantClass(edit_header(rename)),
    "extra tensor": MutantClass(edit_header(extra_tensor)),
    "swapped tensors": MutantClass(swap_headers, "both tensors have the shape and dtype that their names ask for"),
    "dtype": MutantClass(edit_header(other_dtype)),
    "shape": MutantClass(edit_header(other_shape)),
    "NaN": MutantClass(put([math.nan, -math.nan], lambda name, entry: True)),
    "infinity": MutantClass(put([math.inf, -math.inf], lambda name, entry: entry["dtype"] != "F8_E4M3")),
    "NaN in the indexer": MutantClass(put([math.nan, math.inf], lambda name, entry: "indexer" in name)),
    "scale of 0 or less": MutantClass(put([0.0, -0.0, -0.5, -1e-3], is_scale)),
    "scale that is no power of two": MutantClass(scale_by_no_power),
    "configuration of a wrong type or size": MutantClass(wrong_config),
    "configuration with another number": MutantClass(edit_json("config.json", OTHER_NUMBERS), "a model may have it"),
    "fewer layers": MutantClass(fewer_layers),
    "tokenizer settings": MutantClass(edit_json("tokenizer_config.json", TOKENIZER_TYPES)),
    "vocabulary": MutantClass(edit_json("tokenizer.json", VOCABULARY_TYPES)),
    "generation settings": MutantClass(edit_json("generation_config.json", GENERATION_TYPES)),
    "index": MutantClass(wrong_index, harmless=True),
    "manifest": MutantClass(wrong_manifest, harmless=True),
    "hash in the manifest": MutantClass(wrong_hash),
    "link or directory": MutantClass(no_file),
    "Git LFS pointer": MutantClass(lfs_pointer),
    "garbage": MutantClass(garbage),
}  # fmt: skip
