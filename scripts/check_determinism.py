"""Do the bits of a request's logits depend on what runs beside it? Requests under load against the same requests alone.

    python scripts/check_determinism.py --requests 500 --longest 4096                   # the demo, exact precision
    python scripts/check_determinism.py --precision fp8 --first 100 --seconds 500        # a slice of at most so many seconds
    python scripts/check_determinism.py --plain                                          # without the mode: how much differs
    python scripts/check_determinism.py --device cuda --precision bf16 --longest 16384   # on a GPU
    python scripts/check_determinism.py --device cuda --released 4 --longest 4096        # 4 random layers of released dimensions

campaigns/determinism.py says what a case is. Everything follows from the seeds. Ends in one JSON line; the exit status is 1 if
anything differs (with --mutant: if nothing does), but not with --plain.
"""

import argparse
import json
import sys
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from campaigns.determinism import run_case  # type: ignore[import-not-found]
from campaigns.determinism_mutants import MUTANTS, Mutant, gpu_mutants  # type: ignore[import-not-found]

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.weights import fill_synthetic
from deepseek_v32.model.transformer import Transformer


def _load(arguments: argparse.Namespace) -> Transformer:
    device, precision = torch.device(arguments.device), arguments.precision
    if not arguments.released:
        return load_model(arguments.model, precision, device=device, mtp=True, deterministic=not arguments.plain)
    config = replace(ModelConfig(), num_hidden_layers=arguments.released, first_k_dense_replace=1)
    model = build_model(config, precision, "auto", device, deterministic=not arguments.plain)
    fill_synthetic(model, Plan(config))
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO, help="a checkpoint (default: the demo)")
    parser.add_argument("--precision", choices=("exact", "bf16", "fp8"), help="default: exact on a CPU, fp8 on a GPU")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--released", type=int, metavar="LAYERS", help="random weights of the released dimensions instead"
    )
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--requests", type=int, default=10**9, help="begin no case after so many")
    parser.add_argument("--seconds", type=float, default=60, help="begin no case after so long")
    parser.add_argument("--group", type=int, default=12, help="requests of a case")
    parser.add_argument(
        "--longest", type=int, default=256, help="tokens of the longest request; lengths are log-uniform from 2"
    )
    parser.add_argument("--plain", action="store_true", help="the model without the deterministic mode")
    parser.add_argument("--mutant", help="with this mistake put in; 'all': with each of them, one after the other")
    arguments = parser.parse_args()
    arguments.precision = arguments.precision or ("exact" if arguments.device == "cpu" else "fp8")
    model = _load(arguments)
    mutants = MUTANTS if arguments.device == "cpu" else gpu_mutants()
    if arguments.mutant not in (None, "all", *mutants):
        parser.error(f"--mutant is {arguments.mutant!r}; expected all or one of {', '.join(mutants)}")
    chosen = mutants if arguments.mutant == "all" else [arguments.mutant]
    differ = [_run(model, arguments, name, None if name is None else mutants[name]) for name in chosen]
    if arguments.mutant:
        return 0 if all(differ) else 1
    return 1 if any(differ) and not arguments.plain else 0


def _run(model: Transformer, arguments: argparse.Namespace, name: str | None, mutant: Mutant | None) -> int:
    """How many requests differ; prints the line of JSON."""
    total, failures, began, seed = Counter[str](), [], time.monotonic(), arguments.first
    with nullcontext() if mutant is None else mutant.applied():
        while total["requests"] < arguments.requests and time.monotonic() - began < arguments.seconds:
            found, wrong = run_case(model, seed, arguments.group, arguments.longest)
            total.update(found)
            failures += wrong
            for failure in wrong:
                print(failure, file=sys.stderr, flush=True)
            seed += 1
    fixed = {"model": str(arguments.released or arguments.model.name), "device": arguments.device}
    fixed |= {"precision": arguments.precision, "deterministic": not arguments.plain, "mutant": name}
    numbers = {"seconds": round(time.monotonic() - began), **total, "requests that differ": len(failures)}
    print(json.dumps(fixed | {"first": arguments.first, "longest": arguments.longest} | numbers), flush=True)
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
