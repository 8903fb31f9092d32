"""`deepseek-v32 manifest`: notes the hashes of a checkpoint's files, which loading compares from then on."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .progress import optional_bar


def manifest(
    directory: Annotated[Path, typer.Argument(help="Checkpoint directory in the Hugging Face layout.")],
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Write nothing: read the checkpoint, converted or not, and compare all hashes."),
    ] = False,
) -> None:
    """Write DIRECTORY/model.safetensors.manifest.json, by which every later loading notices changed bytes.

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
