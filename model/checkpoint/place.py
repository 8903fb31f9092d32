"""Why a path is no checkpoint directory, and what to do about it."""

import re
from pathlib import Path

LFS_START = b"version https://git-lfs"  # https://git-lfs.github.com/spec/v1
GET_IT = "a Git LFS pointer, not the file itself: get it with git lfs pull"
WEIGHTS = (
    ".safetensors",
    ".gguf",
    ".bin",
    ".pt",
    ".pth",
)  # names of files that are given in the place of their directory

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def no_directory(path: str | Path) -> str:
    """What is wrong with a path that is no directory, and the way out, to be put behind the path."""
    path = Path(path)
    if path.is_file():
        if path.suffix == ".gguf":
            return "is a GGUF file; expected a checkpoint directory in the Hugging Face layout: config.json and safetensors"
        return f"is a file; expected the checkpoint directory, which may be {str(path.parent)!r}"
    if path.is_symlink():
        return "is a link to nothing; expected a checkpoint directory"
    if _HUB_ID.fullmatch(str(path)):
        return (
            "is no directory here; expected a checkpoint directory. If it is a model of the Hugging Face hub, download it: "
            f"hf download {path} --local-dir {path.name}"
        )
    return "is no directory; expected an existing checkpoint directory"
