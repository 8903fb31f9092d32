"""Campaign: damaged checkpoints, seeded mutants in the classes of checkpoint_mutants.py, each loaded and asked for logits.

A mutant fails the campaign if loading ends in anything but one line that names the file or the key, or if it loads silently
although a check exists.
"""

import random
import shutil
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM
from deepseek_v32.inference.text.errors import describe_error
from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.manifest import write_manifest
from deepseek_v32.model.config import ModelConfig
from tiny_model.checkpoint import TINY, write_checkpoint
from tiny_model.tokenizer import make_texts, write_tokenizer

from .checkpoint_mutants import CLASSES
from .damaged_weights import Files

# In FP8 with two files: a dense and two MoE layers, small enough that loading takes milliseconds.
CONFIG = replace(
    TINY,
    vocab_size=400,
    hidden_size=136,
    intermediate_size=136,
    moe_intermediate_size=20,
    num_hidden_layers=3,
    q_lora_rank=72,
    n_routed_experts=4,
    num_experts_per_tok=2,
    n_group=2,
    index_topk=16,
    max_position_embeddings=512,
)
LAYOUTS = ("plain", "plain with a manifest", "converted")
LONGEST = 1000  # characters of an error
TOKENS = [3 + 7 * i % 380 for i in range(24)]  # more than index_topk


def pristine(directory: Path) -> dict[str, Files]:
    """The files of an undamaged checkpoint in each layout."""
    source, target = directory / "source", directory / "target"
    write_checkpoint(source, CONFIG, "fp8", shards=2)
    write_tokenizer(source, CONFIG.vocab_size, list(make_texts(count=300)))
    convert(source, target, 1)
    plain = _read(source)
    write_manifest(source)
    return dict(zip(LAYOUTS, (plain, _read(source), _read(target)), strict=True))


def _read(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def _write(files: Files, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, data in files.items():
        if isinstance(data, bytes):
            (directory / name).write_bytes(data)
        elif data is None:
            (directory / name).mkdir()
        else:
            (directory / name).symlink_to(data)


def answer(directory: Path, precision: Any) -> tuple[torch.Tensor, list[int], Any]:
    """Everything that a silent change could alter: logits, the prompt of a conversation, end tokens."""
    llm = LLM(directory, device="cpu", precision=precision)
    prompt = llm.chat_token_ids([{"role": "user", "content": "who found the lamp near the harbour?"}])
    assert llm.tokenizer is not None
    return llm.logits(TOKENS), prompt, (llm.tokenizer.eos_ids, llm.limits.max_model_len)


def outcome(directory: Path, precision: Any, expected: tuple[torch.Tensor, list[int], Any]) -> tuple[str, str]:
    """(refused, warned, failed, same, silent or traceback; the error's text)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = answer(directory, precision)
        except (ValueError, OSError) as error:  # what the commands print as one line
            text = describe_error(error)
            named = str(directory) in text or text.partition(" is ")[0] in ModelConfig.__dataclass_fields__
            one_line = str(error).isprintable() and len(text) <= LONGEST and named
            return ("refused" if one_line else "not one line"), text
        except Exception as error:
            return "traceback", f"{type(error).__name__}: {error}"
    if any(issubclass(one.category, UserWarning) for one in caught):
        return "warned", ""
    if not found[0].isfinite().all():
        return "failed", "logits are not finite, which ends requests with an error"
    same = torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    return ("same" if same else "silent"), ""


def run(seed: int, count: int = 2000) -> dict[str, Any]:
    """Load `count` mutants. Returns counts by class and layout, and the list `failures`, which should be empty.

    The mutant with number i has class i modulo their number, and everything else from the seed and i.
    """
    begun = time.monotonic()
    counts: dict[str, Counter[str]] = {name: Counter() for name in CLASSES}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        layouts = pristine(Path(folder))
        _write(layouts["plain"], directory := Path(folder) / "mutant")
        expected = {
            precision: answer(directory, precision) for precision in ("exact", "fp8")
        }  # the same in all layouts
        for number in range(count):
            name = list(CLASSES)[number % len(CLASSES)]
            rng = random.Random(f"{seed}/{number}")
            layout, precision = rng.choice(LAYOUTS), rng.choice(("exact", "fp8"))
            files = dict(layouts[layout])
            CLASSES[name].mutate(rng, files)
            _write(files, directory)
            found, text = outcome(directory, precision, expected[precision])
            counts[name][f"{layout}: {found}"] += 1
            if not _is_allowed(name, layout, found, unchanged=files == layouts[layout]):
                failures.append(
                    f"seed {seed}, mutant {number}, {name}, {layout}, {precision}: {found} {text[:300]}".strip()
                )
    declared = {name: kind.silent for name, kind in CLASSES.items() if kind.silent}
    outcomes: Counter[str] = Counter()
    for each in counts.values():
        for key, number in each.items():
            outcomes[key.partition(": ")[2]] += number
    return {
        "campaign": "checkpoints",
        "seed": seed,
        "count": count,
        "classes": len(CLASSES),
        "outcomes": dict(outcomes),
        "by_class": {name: dict(sorted(each.items())) for name, each in counts.items()},
        "silent without a manifest, declared": declared,
        "failures": failures,
        "seconds": round(time.monotonic() - begun, 1),
    }


def _is_allowed(name: str, layout: str, found: str, unchanged: bool) -> bool:
    kind = CLASSES[name]
    if found in ("refused", "warned") or unchanged:
        return found != "warned" or layout == "plain" or unchanged
    if found == "same":
        return kind.harmless or (bool(kind.silent) and layout == "plain")
    return found in ("silent", "failed") and bool(kind.silent) and layout == "plain"
