"""`deepseek-v32 trace`: every stage of a forward pass, as safetensors that other implementations can be compared with."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from .loading import demo_path
from .options import ModelOptions, with_options


@with_options
def trace(
    options: ModelOptions,
    out: Annotated[Path, typer.Option("--out", help="Directory for the trace: new, empty, or of an older trace.")],
    prompt: Annotated[str | None, typer.Option("--prompt", help="A text; a bos token is put before it.")] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens", help="A file of token ids instead: a JSON array, or numbers separated by spaces or lines."
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers", help="Layers to record, e.g. 0,3-5. Default: all. The MTP layer follows the last one."
        ),
    ] = None,
    chunk: Annotated[
        int | None, typer.Option("--chunk", min=1, help="Tokens a step. Default: as many as a step can hold.")
    ] = None,
) -> None:
    """Record every stage of a forward pass over a text. docs/conformance.md lists the stages."""
    from ...model.checkpoint.manifest import find_manifest, hash_file
    from ..trace import check_target

    if (prompt is None) == (tokens is None):
        given = "both are given" if prompt is not None else "neither is given"
        raise ValueError(f"--prompt and --tokens: {given}; expected one of them")
    check_target(out)
    ids = None if tokens is None else read_tokens(tokens)
    chosen = None if layers is None else read_layers(layers)
    llm = options.load(needs_text=prompt is not None, reuse_pages=False)
    if ids is None:
        assert llm.tokenizer is not None and prompt is not None
        if not prompt:
            raise ValueError("--prompt is empty; expected at least 1 character")
        ids = llm.tokenizer.encode_prompt(prompt)
    found = llm.trace(ids, chosen, chunk)
    directory = options.model or demo_path()
    manifest = find_manifest(directory)
    name = {"directory": directory.name, "manifest": None if manifest is None else hash_file(manifest.path)}
    found.manifest |= {"checkpoint": name, "device": str(llm.device), "backend": options.backend}
    found.save(out)
    size = sum(tensor.nbytes for tensor in found.stages.values())
    print(f"{out}: {len(found.stages)} stages of {len(ids)} tokens, {size / 1e6:.1f} MB", file=sys.stderr)


def read_tokens(path: Path) -> list[int]:
    """Token ids of a file. ValueError for anything else in it."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        values = json.loads(text) if text.lstrip().startswith("[") else [int(word) for word in text.split()]
    except ValueError:
        values = None
    if not isinstance(values, list) or not values or not all(type(value) is int for value in values):
        raise ValueError(f"--tokens is {str(path)!r}; expected a file of token ids: [1, 2, 3], or 1 2 3")
    return values


def read_layers(text: str) -> list[int]:
    """ "0,3-5" -> [0, 3, 4, 5]. ValueError for anything else."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()) or len(part) > 20:
            raise ValueError(f"--layers is {text!r}; expected numbers and ranges, e.g. 0,3-5")
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < 100_000:
            raise ValueError(f"--layers has the range {part!r}; expected an ascending one of layer numbers")
        layers += range(low, high + 1)
    return layers
