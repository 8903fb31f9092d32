"""Run thousands of mixed requests through one engine and cancel many of them: does it lose pages, or grow?

    python scripts/bench/soak.py --precision fp8                    # 2,000 requests: a minute on a GPU
    python scripts/bench/soak.py --requests 100 --longest 500       # a short run on a CPU

Prompts have 2 to --longest tokens, spread evenly on a logarithmic scale; half of them share a prefix with others. Requests are
greedy or sampled, with stop tokens, penalties, logprobs and recorded selections among them. One in six is cancelled: at once, while
it waits, during its prefill, or after some tokens. More requests wait than may run, and pages are so few that requests are
preempted. Prints a table, then one line of JSON. The exit status is 1 if a page is lost, a request never ends or fails, or memory
grows between the first quarter of the requests and the last.
"""

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams

IN_FLIGHT = 120  # requests running or waiting
GROWTH = {"allocated": 64, "rss": 256}  # MiB that decode graphs captured late and the host's allocator may add


class Mix:
    """A random mix of requests."""

    def __init__(self, llm: LLM, longest: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.vocabulary, self.longest = llm.config.vocab_size, longest
        self.documents = [self._tokens(longest) for _ in range(6)]

    def _tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(10, self.vocabulary) for _ in range(count)]

    def prompt(self) -> list[int]:
        length = round(2 * (self.longest / 2) ** self.rng.random())
        if self.rng.random() < 0.5:
            return self._tokens(length)
        return self.rng.choice(self.documents)[: max(length - 1, 1)] + self._tokens(1)

    def params(self) -> SamplingParams:
        rng = self.rng
        options: dict[str, Any] = {"max_tokens": rng.randint(1, 80), "ignore_eos": rng.random() < 0.5}
        options["temperature"] = rng.choice([0, 0.7, 1.0])
        if rng.random() < 0.2:
            options |= {"top_p": 0.9, "top_k": rng.choice([0, 5, 40]), "seed": rng.getrandbits(64)}
        if rng.random() < 0.1:
            options |= {"repetition_penalty": 1.2, "presence_penalty": 0.5}
        if rng.random() < 0.1:
            options["logprobs"] = rng.randint(0, 5)
        if rng.random() < 0.1:
            options["stop_token_ids"] = tuple(self._tokens(40))
        return SamplingParams(**options)

    def cancel_after(self) -> int | None:
        """How many steps after its arrival a request is cancelled; None: never."""
        return self.rng.choice([0, 1, 3, 10, 40]) if self.rng.random() < 1 / 6 else None


def memory(llm: LLM) -> dict[str, float]:
    """MiB of the GPU and of this process, and the number of decode graphs, each of which takes some of both."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    now = {"rss": pages * 4096 / 2**20}
    if llm.device.type == "cuda":
        now |= {
            "allocated": torch.cuda.memory_allocated(llm.device) / 2**20,
            "reserved": torch.cuda.memory_reserved(llm.device) / 2**20,
        }
    graphs = getattr(llm.engine.runner, "graphs", None)
    if graphs is not None:
        now["graphs"] = graphs.captured
    return {name: round(value, 1) for name, value in sorted(now.items())}


def soak(llm: LLM, count: int, longest: int, seed: int) -> dict[str, Any]:
    mix, engine = Mix(llm, longest, seed), llm.engine
    cancel_in: dict[int, int | None] = {}  # unfinished request -> steps until it is cancelled
    reasons: Counter[str] = Counter()
    marks: dict[int, dict[str, float]] = {}
    added, cancelled, began = 0, 0, time.time()
    while engine.has_work or added < count:
        while added < count and len(cancel_in) < IN_FLIGHT:
            request = engine.add_request(mix.prompt(), mix.params(), inspect=mix.rng.random() < 0.02)
            cancel_in[request.id] = mix.cancel_after()
            added += 1
        for id, left in cancel_in.items():
            if left is not None:
                if left == 0:
                    engine.abort(id)
                    cancelled += 1
                cancel_in[id] = left - 1 if left else None
        for delta in engine.step():
            if delta.finish_reason is None:
                continue
            del cancel_in[delta.request_id]
            reasons[delta.finish_reason] += 1
            if sum(reasons.values()) in (count // 4, count // 2, 3 * count // 4, count):
                marks[sum(reasons.values())] = memory(llm)
    engine.pool.check()
    stats = llm.stats()
    return {
        "requests": added, "cancelled": cancelled, "finished": dict(reasons), "unfinished": len(cancel_in),
        "steps": stats.steps, "computed_tokens": stats.computed_tokens, "generated_tokens": stats.generated_tokens,
        "preemptions": stats.preemptions, "pages": engine.pool.page_count, "pages_used": stats.pages_used, "mib_at": marks,
        "seconds": round(time.time() - began, 1),
    }  # fmt: skip


def complaints(result: dict[str, Any]) -> list[str]:
    found = []
    if result["pages_used"]:
        found.append(f"pages_used is {result['pages_used']}; expected 0")
    if result["unfinished"] or result["finished"].get("error"):
        found.append(
            f"{result['unfinished']} requests never ended and {result['finished'].get('error', 0)} failed; expected none"
        )
    first, last = (result["mib_at"][at] for at in (min(result["mib_at"]), max(result["mib_at"])))
    for name, most in GROWTH.items():
        if name in first and last[name] - first[name] > most:
            found.append(
                f"{name} memory grew from {first[name]} to {last[name]} MiB; expected a growth of at most {most}"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a checkpoint directory (default: the demo)")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is a GPU)")
    parser.add_argument(
        "--precision", choices=("exact", "bf16", "fp8"), help="default: exact on a CPU, as stored on a GPU"
    )
    parser.add_argument("--backend", default="auto", help="kernels to use (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=2000, help="default: %(default)s")
    parser.add_argument(
        "--longest", type=int, default=16384, help="tokens of the longest prompt (default: %(default)s)"
    )
    parser.add_argument(
        "--pages", type=int, default=1024, help="pages of the cache, 64 tokens each (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    arguments = parser.parse_args()
    if arguments.requests < 4:
        parser.error(f"--requests is {arguments.requests}; expected at least 4: memory is compared by quarters")
    try:
        llm = LLM(
            arguments.model, device=arguments.device, precision=arguments.precision, backend=arguments.backend,
            page_count=arguments.pages, max_sequences=64,
        )  # fmt: skip
    except ValueError as error:
        raise SystemExit(f"soak: {error}") from None
    result = soak(llm, arguments.requests, arguments.longest, arguments.seed)
    where = torch.cuda.get_device_name(llm.device) if llm.device.type == "cuda" else "CPU"
    result |= {
        "machine": f"{where}, torch {torch.__version__}",
        "precision": llm.precision,
        "backend": arguments.backend,
    }
    for name, value in result.items():
        if name != "mib_at":
            print(f"{name:18} {value}")
    for at, values in result["mib_at"].items():
        print(f"{'MiB at ' + str(at):18} " + ", ".join(f"{name} {value:,.1f}" for name, value in values.items()))
    found = complaints(result)
    print(json.dumps(result | {"complaints": found}))
    raise SystemExit("; ".join(found) or None)


if __name__ == "__main__":
    main()
