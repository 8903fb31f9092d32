"""Writes the files that `conformance.golden.load` reads."""

import json
from pathlib import Path

import numpy as np

from deepseek_v32.inference.conformance.golden import Golden


def save(golden: Golden, folder: Path, name: str) -> None:
    """Write golden answers to `folder`. Changes are stored in half precision."""
    content = {
        "checkpoint": golden.checkpoint,
        "items": [
            {name: list(value) if isinstance(value, tuple) else value for name, value in vars(item).items()}
            for item in golden.items
        ],
        "bugs": [{name: value for name, value in vars(bug).items() if name != "change"} for bug in golden.bugs],
        "left_out": {name: round(times, 3) for name, times in sorted(golden.left_out.items())},
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    changes = np.array([bug.change for bug in golden.bugs], np.float16).reshape(len(golden.bugs), len(golden.logprobs))
    np.savez_compressed(
        folder / f"{name}.npz",
        logprobs=golden.logprobs,
        rounded=golden.rounded.astype(np.float16),
        held_out=golden.held_out.astype(np.float16),
        changes=changes,
    )
