"""Arguments of a training: `train_demo.py --help` prints them."""

import argparse
import os
from pathlib import Path

import torch

from .schedule import TOKENS


def default_workers() -> int:
    """Processes that generate conversations for each rank: one a core, up to what a GPU can take."""
    return max(1, min(48, (os.cpu_count() or 2) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1))


def parse(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint, and curves")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="length of every stage")
    parser.add_argument(
        "--rate", type=float, default=1.0, help="factor of the learning rate; a short training needs less"
    )
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens per step")
    parser.add_argument(
        "--resume", action="store_true", help="go on from OUT/state.pt; its seed, scale, rate and tokens hold"
    )
    parser.add_argument(
        "--from",
        type=Path,
        dest="checkpoint",
        metavar="DIRECTORY",
        help="checkpoint to train further; its tokenizer is kept",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=default_workers(),
        help="processes that write conversations (default: a core each)",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--check", action="store_true", help="compare the kernels with plain torch, time them, and stop"
    )
    parser.add_argument("--seconds", type=float, help="stop after this time and save the state")
    parser.add_argument(
        "--minutes",
        type=float,
        help="time for the whole plan, or what is left of it: steps that do not fit are left out",
    )
    arguments = parser.parse_args()
    for name in ("rate", "scale", "seconds", "minutes"):
        value = getattr(arguments, name)
        if value is not None and not 0 < value < float("inf"):
            parser.error(f"--{name} is {value}; expected a positive number")
    return arguments
