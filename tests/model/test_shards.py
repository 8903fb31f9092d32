"""Broken and hostile checkpoints: each is refused with one line that names the file, without side effects."""

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deepseek_v32.model.checkpoint.safetensors import read_headers
from deepseek_v32.model.errors import CheckpointError

A = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
B = {"dtype": "F32", "shape": [2], "data_offsets": [12, 20]}
GOOD = {"a": A, "b": B}


def file_bytes(header: object, data: bytes = bytes(20)) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def write_single(directory: Path, content: bytes) -> Path:
    path = directory / "model.safetensors"
    path.write_bytes(content)
    return path


def write_index(directory: Path, weight_map: object, **files: dict) -> None:
    """Writes an index and files (named by keyword) of one-byte tensors."""
    for name, tensors in files.items():
        header = {key: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, key in enumerate(tensors)}
        (directory / f"{name}.safetensors").write_bytes(file_bytes(header, bytes(len(tensors))))
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def refused(directory: Path, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_headers(directory)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 700, text  # printable: one line
    assert str(directory) in text
    for word in words:
        assert word in text, text


def test_good_file(tmp_path):
    """Any order of header entries; data in the order of offsets; metadata and zero-size tensors allowed."""
    empty = {"dtype": "F32", "shape": [0, 7], "data_offsets": [12, 12]}
    path = write_single(tmp_path, file_bytes({"b": B, "__metadata__": {"format": "pt"}, "e": empty, "a": A}))
    found = read_headers(tmp_path)
    start = path.stat().st_size - 20
    assert {name: (t.dtype, t.shape, t.offset - start, t.size) for name, t in found.items()} == {
        "a": ("BF16", (2, 3), 0, 12),
        "e": ("F32", (0, 7), 12, 0),
        "b": ("F32", (2,), 12, 8),
    }


def test_truncated_anywhere(tmp_path):
    whole = file_bytes(GOOD)
    for length in range(len(whole)):
        path = write_single(tmp_path, whole[:length])
        refused(tmp_path, path.name, "truncated")


HEADERS = {
    "gap": ({"a": A, "b": B | {"data_offsets": [13, 21]}}, bytes(21), "data begins at byte 13; expected 12"),
    "leading gap": ({"b": B}, bytes(20), "data begins at byte 12; expected 0"),
    "overlap": ({"a": A, "b": B | {"data_offsets": [8, 16]}}, bytes(20), "data begins at byte 8; expected 12"),
    "same place": ({"a": A, "c": A}, bytes(12), "data begins at byte 0; expected 12"),
    "trailing bytes": (GOOD, bytes(21), "longer than its header says"),
    "beyond the end": ({"a": A, "b": B}, bytes(19), "truncated"),
    "wrong size": ({"a": A | {"shape": [2, 4]}}, bytes(12), "'a': data_offsets is [0, 12]; expected 16 bytes"),
    "huge shape": ({"a": A | {"shape": [2**62, 2**62]}}, bytes(12), "'a': data_offsets is"),
    "past 64 bits": ({"a": A | {"shape": [2**64]}}, bytes(12), "'a': shape is [18446744073709551616]"),
    "backwards": ({"a": A | {"data_offsets": [12, 0]}}, bytes(12), "'a': data_offsets is [12, 0]"),
    "negative": ({"a": A | {"data_offsets": [-12, 0]}}, bytes(12), "'a': data_offsets is [-12, 0]"),
    "negative shape": ({"a": A | {"shape": [-2, -3]}}, bytes(12), "'a': shape is [-2, -3]"),
    "fractional shape": ({"a": A | {"shape": [2.0, 3]}}, bytes(12), "'a': shape is [2.0, 3]"),
    "true shape": ({"a": A | {"shape": [True, 6]}}, bytes(12), "'a': shape is [True, 6]"),
    "three offsets": ({"a": A | {"data_offsets": [0, 6, 12]}}, bytes(12), "'a': data_offsets"),
    "unknown dtype": ({"a": A | {"dtype": "F4"}}, bytes(12), "'a': dtype is 'F4'"),
    "listed dtype": ({"a": A | {"dtype": ["BF16"]}}, bytes(12), "'a': dtype is ['BF16']"),
    "missing key": ({"a": {"dtype": "BF16", "shape": [2, 3]}}, bytes(12), "'a': header entry is"),
    "extra key": ({"a": A | {"code": "x"}}, bytes(12), "'a': header entry is"),
    "entry is a list": ({"a": [1]}, bytes(12), "'a': header entry is [1]"),
    "tensor name of control characters": ({"\n\x1b[31m": [1]}, b"", r"'\n\x1b[31m'"),
    "endless name": ({"x" * 10_000: [1]}, b"", "…"),
    "same name twice": (b'{"a": 1, "a": 1}', b"", "key 'a' appears twice"),
    "array": (b"[]", b"", "not safetensors"),
    "padding first": (b"  {}", b"", "not safetensors"),
    "pickle": (b"\x80\x04\x95", b"", "not safetensors"),
    "not UTF-8": (b'{"\xff": 1}', b"", "not valid JSON"),
    "deep": (b'{"a":' * 50_000, b"", "not valid JSON"),
    "endless number": (b'{"a": ' + b"1" * 10_000 + b"}", b"", "not valid JSON"),
    "not closed": (b'{"a": 1', b"", "not valid JSON"),
}


@pytest.mark.parametrize("header, data, message", HEADERS.values(), ids=HEADERS)
def test_bad_header(tmp_path, header, data, message):
    path = write_single(tmp_path, file_bytes(header, data))
    refused(tmp_path, path.name, message, "expected")


FOREIGN = {
    "empty": b"",
    "zip, as torch.save writes": b"PK\x03\x04" + bytes(60),
    "pickle": b"\x80\x04\x95\x10" + bytes(60),
    "text": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "GGUF": b"GGUF\x03\x00\x00\x00" + bytes(60),
    "header of no bytes": bytes(8),
    "huge header": b"\xff" * 8 + b"{}",
    "zeros": bytes(1000),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_file(tmp_path, content):
    refused(tmp_path, write_single(tmp_path, content).name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["BF16", "F32", "F4"]) | JSON, "shape": JSON, "data_offsets": JSON}
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.dictionaries(st.text(max_size=5), ENTRY | JSON, min_size=1, max_size=3))
@example({"a": {"dtype": "BF16", "shape": [float("nan")], "data_offsets": [0, float("inf")]}})
def test_garbage_header(tmp_path, header):
    """Garbage is refused or, if it is a valid header by chance, read. It never raises anything else."""
    write_single(tmp_path, file_bytes(header, b""))
    try:
        read_headers(tmp_path)
    except CheckpointError as error:
        assert str(error).isprintable()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bytes(tmp_path, data):
    content = bytearray(file_bytes(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 21))] = data.draw(st.integers(0, 255))
    write_single(tmp_path, bytes(content))
    try:
        read_headers(tmp_path)
    except CheckpointError as error:
        assert str(error).isprintable()


PATHS = ["../s.safetensors", "/etc/s.safetensors", "sub/s.safetensors", "..", "", "s.bin", "a\\..\\s.safetensors"]
PATHS += ["./s.safetensors", "s.safetensors/", "s\0.safetensors", "s\n.safetensors"]


@pytest.mark.parametrize("file", [*PATHS, None, 3, ["s.safetensors"]])
def test_path_tricks_in_the_index(tmp_path, file):
    (tmp_path / "s.safetensors").write_bytes(file_bytes({"a": A}, bytes(12)))
    inside = tmp_path / "inside"
    inside.mkdir()
    write_index(inside, {"a": file})
    refused(inside, "index.json", "tensor 'a'", "plain name")


INDEXES = {
    "no map": b"{}",
    "empty map": b'{"weight_map": {}}',
    "map is a list": b'{"weight_map": ["a"]}',
    "list": b"[]",
    "empty": b"",
    "cut": b'{"weight_map": {"a"',
    "twice": b'{"weight_map": {"a": "s.safetensors", "a": "t.safetensors"}}',
    "deep": b'{"a":' * 50_000,
}


@pytest.mark.parametrize("content", INDEXES.values(), ids=INDEXES)
def test_broken_index(tmp_path, content):
    (tmp_path / "model.safetensors.index.json").write_bytes(content)
    refused(tmp_path, "index.json", "expected")


def test_index_and_shards_disagree(tmp_path):
    x, y = "x.safetensors", "y.safetensors"
    write_index(tmp_path, {"a": x, "b": y}, x={"a": 1}, y={"b": 1})
    assert read_headers(tmp_path).keys() == {"a", "b"}
    write_index(tmp_path, {"a": x, "b": y}, x={"a": 1, "b": 1}, y={"b": 1})
    refused(tmp_path, x, "tensor 'b' is here; expected it in 'y.safetensors', as in the index")
    write_index(tmp_path, {"a": x, "b": y}, x={"a": 1}, y={"b": 1, "a": 1})
    refused(tmp_path, y, "tensor 'a' is also in 'x.safetensors'; expected it once")
    write_index(tmp_path, {"a": x, "b": y, "c": y}, x={"a": 1}, y={"b": 1})
    refused(tmp_path, y, "tensor 'c' is not here")
    write_index(tmp_path, {"a": x, "b": y}, x={"a": 1}, y={"b": 1, "c": 1})
    refused(tmp_path, y, "tensor 'c' is here; expected it nowhere, as in the index")
    (tmp_path / y).unlink()
    refused(tmp_path, "1 of 2 files of weights (y.safetensors) is missing; expected all", "download")


def test_two_sources(tmp_path):
    write_index(tmp_path, {"a": "x.safetensors"}, x={"a": 1})
    write_single(tmp_path, file_bytes(GOOD))
    refused(tmp_path, "model.safetensors", "expected one of the two")
    write_index(tmp_path, {"a": "model.safetensors", "b": "model.safetensors"})
    assert read_headers(tmp_path).keys() == {"a", "b"}


def test_paths_that_are_not_files(tmp_path):
    refused(tmp_path / "nowhere", "is no directory")
    refused(tmp_path, "holds no weights")
    path = tmp_path / "model.safetensors"
    path.mkdir()
    refused(tmp_path, "is a directory")
    path.rmdir()
    path.symlink_to(path)
    refused(tmp_path, "cannot be opened")
    path.unlink()
    path.symlink_to(tmp_path / "gone")
    refused(tmp_path, "cannot be opened")
    path.unlink()
    os.mkfifo(path)  # must not be opened, because opening waits for a writer
    refused(tmp_path, "not a regular file")
    path.unlink()
    refused(write_single(tmp_path, file_bytes(GOOD)), "is a file; expected the checkpoint directory")


def test_links_are_followed(tmp_path):
    """Download caches keep files elsewhere and link to them."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "blob").write_bytes(file_bytes(GOOD))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").symlink_to(tmp_path / "cache" / "blob")
    assert read_headers(tmp_path / "model").keys() == {"a", "b"}
