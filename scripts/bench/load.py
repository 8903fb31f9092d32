"""How long loading takes, and what its checks cost: hashes against the manifest, and the search for NaN and infinity.

    python scripts/bench/load.py                    # a synthetic FP8 checkpoint of 1.65 GB in a temporary folder
    python scripts/bench/load.py --model WEIGHTS --precision fp8 --repeats 5

Variants are timed in turns, with files in the page cache (warm) and dropped from it (cold). Ends in one JSON line.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from deepseek_v32.model.checkpoint import load as loading
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.checkpoint.manifest import PLAIN, write_manifest
from deepseek_v32.model.config import PRECISIONS, Precision

sys.path.insert(0, str(Path(__file__).parents[1]))  # PYTHONSAFEPATH leaves it out

from tiny_model.checkpoint import TINY, write_checkpoint

CONFIG = replace(
    TINY,
    vocab_size=32768,
    hidden_size=2048,
    intermediate_size=8192,
    moe_intermediate_size=1024,
    num_attention_heads=32,
    q_lora_rank=768,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=64,
    index_n_heads=64,
)
VARIANTS = {"no checks": (False, False), "NaN": (True, False), "NaN, hashes": (True, True)}  # (finite values, hashes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint with a manifest; default: a synthetic one")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cache", nargs="+", choices=("cold", "warm"), default=("cold", "warm"))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model
        if model is None:
            model = Path(folder)
            write_checkpoint(model, CONFIG, "fp8", shards=4)
            write_manifest(model)
        if not (model / PLAIN).exists():
            raise SystemExit(f"--model is {str(model)!r}; expected a checkpoint with {PLAIN}")
        results = [
            measure(model, precision, arguments.device, state, arguments.repeats)
            for precision in arguments.precision
            for state in arguments.cache
        ]
    print(json.dumps({"cores": os.cpu_count(), "results": results}))


def measure(model: Path, precision: Precision, device: str, state: str, repeats: int) -> dict[str, object]:
    """Seconds of each variant: the median, and its ratio to the variant before it, of runs in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    cpu: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for turn in range(repeats):
        for name in list(VARIANTS)[:: 1 if turn % 2 else -1]:
            finite, hashes = VARIANTS[name]
            if state == "cold":
                drop(model)
            with without_search() if not finite else nullcontext():
                start, busy = time.perf_counter(), time.process_time()
                loaded = load_model(model, precision, device=device, verify_hashes=hashes)
                seconds[name].append(time.perf_counter() - start)
                cpu[name].append(time.process_time() - busy)
            del loaded
            gc.collect()
    size = sum(path.stat().st_size for path in model.glob("*.safetensors")) / 1e9
    names = list(VARIANTS)
    row: dict[str, object] = {"precision": precision, "cache": state, "GB": round(size, 2)}
    for name, before in zip(names, [names[0], *names], strict=False):
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[before], strict=True))
        row[name] = round(statistics.median(seconds[name]), 3)
        row[f"{name}, least"] = round(min(seconds[name]), 3)
        row[f"{name}, ratio"] = round(ratio, 3)
        row[f"{name}, CPU"] = round(statistics.median(cpu[name]), 3)
        times = f"{row[name]:8.3f} s, least {min(seconds[name]):.3f}, CPU {row[f'{name}, CPU']:.3f}"
        print(f"{precision:6s}{state:6s}{name:14s}{times}, ratio to the line above {ratio:.3f}")
    return row


def drop(model: Path) -> None:
    """Drop a checkpoint's files from the page cache."""
    for path in model.glob("*.safetensors"):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


@contextmanager
def without_search() -> Iterator[None]:
    """Loading as it was before it looked for NaN and infinity."""
    with patch.object(loading, "check_finite", lambda tensor, data: None):
        yield


if __name__ == "__main__":
    main()
