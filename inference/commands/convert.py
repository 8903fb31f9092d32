"""`deepseek-v32 convert` (also scripts/convert.py) and `manifest`: one file of weights for each rank, and checksums."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import VerifyHashesOption, option
from .terminal import optional_bar


def convert(
    save_path: Annotated[Path, option("Directory for the converted checkpoint.")],
    hf_ckpt_path: Annotated[Path | None, option("Checkpoint directory in the Hugging Face layout.")] = None,
    n_experts: Annotated[int | None, option("Routed experts of a layer; checked against config.json.")] = None,
    model_parallel: Annotated[int, option("Number of ranks that will share the model: 1, 2, 4 or 8.")] = 1,
    verify: Annotated[
        bool, option("Read the converted checkpoint back and compare every tensor's checksum.", "--verify")
    ] = False,
    verify_hashes: VerifyHashesOption = True,
) -> None:
    """Write one file of weights for each rank. Converts a Hugging Face checkpoint, and writes a manifest of hashes.

    An interrupted run is resumed by the next one.
    """
    from ...model.checkpoint import conversion
    from ...model.checkpoint.config_json import read_config

    if hf_ckpt_path is None and not verify:
        raise ValueError(
            "--hf-ckpt-path is missing; expected a checkpoint directory, or --verify for a converted checkpoint"
        )
    if hf_ckpt_path is not None:
        config = read_config(hf_ckpt_path)
        if n_experts not in (None, config.n_routed_experts):
            raise ValueError(
                f"--n-experts is {n_experts}; expected {config.n_routed_experts}, the routed experts of a layer of "
                f"{str(hf_ckpt_path)!r}"
            )
        with optional_bar("Converting") as progress:
            files = conversion.convert(hf_ckpt_path, save_path, model_parallel, progress, verify_hashes)
        size = sum(path.stat().st_size for path in files)
        print(f"{save_path}: {len(files)} files, {size / 1e9:.2f} GB", file=sys.stderr)
    if verify:
        manifest(save_path, verify=True)


def manifest(
    directory: Annotated[Path, typer.Argument(help="Checkpoint directory in the Hugging Face layout.")],
    verify: Annotated[
        bool, option("Write nothing: read the checkpoint, converted or not, and compare all checksums.", "--verify")
    ] = False,
) -> None:
    """Write checksums. Later loads compare those in DIRECTORY/model.safetensors.manifest.json, and notice changed bytes.

    Run it once, right after the download. It reads the whole checkpoint.
    """
    from ...model.checkpoint import manifest as manifests

    if verify:
        with optional_bar("Verifying") as progress:
            count = manifests.verify(directory, progress)
        print(f"{directory}: {count} tensors are as they were written", file=sys.stderr)
        return
    with optional_bar("Hashing") as progress:
        count = manifests.write_manifest(directory, progress)
    print(f"{directory / manifests.PLAIN}: {count} tensors", file=sys.stderr)
