"""Campaign: texts of 8 MB. Others must be answered meanwhile, and the memory must be there again afterwards."""

import asyncio
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepseek_v32.model.demo as demo

from .live_server import LiveServer, live_server, quantile

SIZE = 8 * 2**20 - 2**10  # the server takes bodies of 8 MiB
SETTLED_SECONDS = 60.0
MIB_LEFT = 300.0
PROBE_SECONDS = 0.1
REFUSALS = (400, 413, 503)
LINE = "The door code of the Tolmir Archive is 4815. "
TEXTS: dict[str, Callable[[random.Random], str]] = {
    "lines": lambda rng: LINE * (SIZE // len(LINE)),
    "one letter": lambda rng: rng.choice("aé🙂 1\n"[:1]) * SIZE,
    "spaces": lambda rng: " " * (SIZE - 1) + "a",
    "letters": lambda rng: "".join(map(chr, (32 + byte % 90 for byte in rng.randbytes(2**16)))).replace("\\", "/").replace('"', "'")
    * (SIZE // 2**16 - 1),
    "emoji": lambda rng: "🙂" * (SIZE // 4),
}  # fmt: skip
PATHS: dict[str, Callable[[str], Any]] = {
    "/tokenize": lambda text: {"prompt": text},
    "/v1/completions": lambda text: {"prompt": text, "max_tokens": 1},
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
}
# Not texts, but as long: they cost the reader of JSON more than others.
LISTS = (b'{"prompt": [' + b"1," * (SIZE // 2 - 20) + b"1]}", b'{"stop": [' + b'"",' * (SIZE // 3 - 20) + b'""]}')


def without_bound(directory: Path) -> Path:
    """The demo with a tokenizer of which nothing is known but its results, so that every text is encoded."""
    source = Path(demo.__file__).parent
    for path in source.iterdir():
        if path.suffix in (".json", ".safetensors") and "manifest" not in path.name:
            shutil.copy(path, directory / path.name)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": "\x00\x01\x02"}, "content": ""}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    return directory


async def attack(seed: int, count: int, server: LiveServer, settle: float) -> dict[str, Any]:
    rng = random.Random(seed)
    # Made before, because this process asks the probes as well.
    texts = [make(rng) for make in TEXTS.values()]
    bodies = [
        (path, json.dumps(fields(text), ensure_ascii=False).encode())
        for path, fields in PATHS.items()
        for text in texts
    ]
    bodies += [("/v1/completions", body) for body in LISTS]
    failures: list[dict[str, Any]] = []
    outcomes: Counter[str] = Counter()
    await server.ask("POST", "/v1/completions", {"prompt": "The", "max_tokens": 5})
    before = server.memory()
    peak = before or 0.0
    with server.probing() as probe:
        probe.begin()
        for _ in range(count):
            batch = [server.ask("POST", *rng.choice(bodies), 120.0) for _ in range(2)]
            for response in await asyncio.gather(*batch):
                code = json.loads(response.body)["error"]["code"] if response.status in REFUSALS else None
                outcomes[f"{response.status} {code}"] += 1
                if response.status not in REFUSALS:
                    failures.append({"why": f"status {response.status} for {SIZE} bytes; expected one of {REFUSALS}"})
            peak = max(peak, server.memory() or 0.0)
    seconds = probe.seconds
    p99 = quantile(seconds, 0.99)
    if p99 > PROBE_SECONDS:
        failures.append({"why": f"others waited {p99:.3f} s at p99; expected at most {PROBE_SECONDS}"})
    await asyncio.sleep(settle)
    after = server.memory()
    if before is not None and after is not None and after - before > MIB_LEFT:
        failures.append(
            {"why": f"memory is {after - before:.0f} MiB above that before; expected at most {MIB_LEFT:.0f}"}
        )
    failures += [{"why": f"the log has {line[:300]}"} for line in server.complaints()]
    return {
        "texts": 2 * count, "outcomes": dict(outcomes), "probes": len(seconds), "probe_p99_s": round(p99, 4),
        "probe_worst_s": round(max(seconds), 4), "mib": {"before": before, "peak": peak, f"{settle:.0f} s later": after},
        "failures": failures,
    }  # fmt: skip


def run(seed: int, count: int, *, settle: float = SETTLED_SECONDS) -> dict[str, Any]:
    """10 `count` texts to the demo, which refuses them by their bytes, and 2 `count` to a copy that must encode them."""
    parts = {}
    with live_server("--no-chat") as server:
        parts["refused by their bytes"] = asyncio.run(attack(seed, 5 * count, server, settle))
    with (
        tempfile.TemporaryDirectory() as directory,
        live_server("--no-chat", "--model", without_bound(Path(directory))) as server,
    ):
        parts["encoded"] = asyncio.run(attack(seed, count, server, settle))
    failures = [{"part": name, **failure} for name, part in parts.items() for failure in part.pop("failures")]
    return {**parts, "failures": failures}
