"""Damage to files of weights. A checkpoint is a dict of files: bytes, a link's target, or None for a directory."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Files = dict[str, "bytes | Path | None"]
Mutate = Callable[[random.Random, Files], None]


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


def is_weight(name: str, entry: dict[str, Any]) -> bool:
    return "layers" in name and not is_scale(name, entry)


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
