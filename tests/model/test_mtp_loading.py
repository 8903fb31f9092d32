"""Loading the MTP layer: its vocabulary tables, converted checkpoints and ranks, and what is said if there is none."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.checkpoint.locate import has_mtp_layer
from deepseek_v32.model.errors import CheckpointError
from deepseek_v32.model.mtp import MTPTables
from deepseek_v32.model.parallel.collectives import Ranks
from deepseek_v32.model.parallel.shard import parameter_bytes
from deepseek_v32.model.transformer import Transformer
from tiny_model.checkpoint import TINY, write_checkpoint

CONFIG = replace(TINY, num_hidden_layers=1, num_nextn_predict_layers=1)
LAYER = "model.layers.1."
EMBEDDING, HEAD = LAYER + "embed_tokens.weight", LAYER + "shared_head.head.weight"


def checkpoint(directory: Path, tables: str, tied: bool = False) -> Path:
    """A checkpoint whose MTP layer's tables are `own`, `copied` from the main model's, `absent`, or a `recast` copy."""
    write_checkpoint(directory, replace(CONFIG, tie_word_embeddings=tied), "bf16")
    file = directory / "model.safetensors"
    tensors = load_file(file)
    if tables != "own":
        for name, main in ((EMBEDDING, "model.embed_tokens.weight"), (HEAD, "lm_head.weight")):
            source = tensors["model.embed_tokens.weight" if tied else main]
            tensors[name] = source.float() if tables == "recast" else source.clone()
            if tables == "absent":
                del tensors[name]
        save_file(tensors, file, {"format": "pt"})
    return directory


def parameters(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: each.view(torch.uint8) for name, each in model.named_parameters()}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("tables", ["own", "copied", "absent", "recast"])
def test_tables_are_shared_if_they_are_equal(tables: str, tied: bool, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", tables, tied)
    own, target = tables in ("own", "recast"), tmp_path / "target"
    convert(source, target, 1)
    for directory in (source, target):
        assert has_mtp_layer(directory, CONFIG)
        assert load_model(directory).mtp is None
        mtp = load_model(directory, mtp=True).mtp
        assert mtp is not None
        assert [mtp.embed_tokens is not None, mtp.lm_head is not None] == [own, own]
    if tables == "own":
        for table, name in ((mtp.embed_tokens, EMBEDDING), (mtp.lm_head, HEAD)):
            assert table is not None
            assert torch.equal(table.weight, load_file(source / "model.safetensors")[name].float())


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("precision", ["exact", "fp8"])
def test_converted_and_sharded_checkpoints(size: int, precision: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint(source, CONFIG, "fp8")
    convert(source, target, size)
    for rank in range(size):
        ranks = Ranks(rank, size)
        one, other = (load_model(path, precision, ranks=ranks, mtp=True) for path in (source, target))
        expected, found = parameters(one), parameters(other)
        assert {name for name in expected if name.startswith("mtp.")}
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)
        without = parameters(load_model(target, precision, ranks=ranks))
        assert without.keys() == {name for name in expected if not name.startswith("mtp.")}
        tables = (one.mtp.embed_tokens, one.mtp.lm_head) if one.mtp else ()
        assert [table.weight.shape[0] for table in tables if table] == [CONFIG.vocab_size // size] * 2


def test_eh_proj_is_not_quantised(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CONFIG, "fp8")
    mtp = load_model(tmp_path, "fp8", mtp=True).mtp
    assert mtp is not None
    assert torch.equal(mtp.eh_proj.weight, load_file(tmp_path / "model.safetensors")[LAYER + "eh_proj.weight"])


def test_bytes_of_parameters(tmp_path: Path) -> None:
    checkpoint(tmp_path, "copied")
    model = load_model(tmp_path, "fp8", mtp=True)
    expected = sum(each.nbytes for each in model.parameters())
    assert parameter_bytes(CONFIG, "fp8", mtp=MTPTables()) == expected


@pytest.mark.parametrize("converted", [False, True])
def test_a_checkpoint_without_the_layer(converted: bool, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_checkpoint(source, replace(CONFIG, num_nextn_predict_layers=0))
    convert(source, target, 1)
    directory = target if converted else source
    assert not has_mtp_layer(directory, CONFIG)
    with pytest.raises(CheckpointError, match=r"has no next-token layer \(model\.layers\.1\.eh_proj\.weight\)"):
        load_model(directory, mtp=True)


def test_an_incomplete_layer_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path, "copied")
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors[LAYER + "hnorm.weight"]
    save_file(tensors, file, {"format": "pt"})
    load_model(tmp_path)
    with pytest.raises(CheckpointError, match=rf"tensor '{LAYER}hnorm\.weight' is missing"):
        load_model(tmp_path, mtp=True)
