"""What the shipped checkpoint remembers, through the real engine: JSON, a table and, where matplotlib is installed, a plot.

    python scripts/evaluate.py --out build/evaluation                    # 500 conversations a cell; minutes on a GPU
    python scripts/evaluate.py --out build/evaluation --conversations 8  # a look, on a CPU
    python scripts/evaluate.py --out build/tile --backend tile --cells 1K 4K 16K --tokens 300000  # one backend, in less time
    python -m evaluation.compare build/exact build/tile  # in scripts/: several such reports side by side

Every conversation is of the test split: names and values that training never drew. Answers are teacher-forced: a question
counts if every token of its value is the likeliest one. `new` cells also use clause templates that training never saw.
`--generate` answers freely instead, and compares whole sentences.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from evaluation.cells import CELLS, Variant, answers_of, open_engine  # type: ignore[import-not-found]
from evaluation.plot import plot  # type: ignore[import-not-found]
from training.data import ASSISTANT, EOS  # type: ignore[import-not-found]
from training.measure import Cell, conversations  # type: ignore[import-not-found]

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint folder; the shipped one if not given")
    parser.add_argument("--device", default=None)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--precision", choices=("exact", "bf16", "fp8"), help="instead of the cells' own")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--conversations", type=int, default=500, help="of each cell")
    parser.add_argument("--tokens", type=int, help="of each cell: fewer conversations of the long ones")
    parser.add_argument(
        "--cells", nargs="+", default=list(CELLS), choices=list(CELLS), metavar="CELL", help=", ".join(CELLS)
    )
    parser.add_argument(
        "--generate", type=int, default=0, metavar="N", help="also answer N conversations a length freely"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop a cell after this time")
    parser.add_argument("--seed", default="measure", help="another seed draws other conversations of the test split")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that write conversations")
    return parser.parse_args()


def run_cell(llm: LLM, variant: Variant, batches: list, seconds: float) -> dict:
    """Teacher-forced answers of one set of conversations under one variant of the engine."""
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    located: Counter[str] = Counter()
    refusals = done = 0
    began = time.time()
    for ids, _, [answers] in batches:
        if time.time() - began > seconds:
            break
        done += 1
        found = answers_of(llm, variant, [int(t) for t in ids[0, :-1]], answers)
        refusal = next((int(ids[0, a.first]) for a in answers if a.kind == "not_told"), -1)
        for answer, (correct, first, layers) in zip(answers, found, strict=True):
            asked[answer.kind] += 1
            right[answer.kind] += correct
            refusals += answer.kind != "not_told" and first == refusal
            if layers is not None:
                located["cases"] += 1
                located["any layer"] += any(layers)
                for layer, inside in enumerate(layers):
                    located[f"layer {layer}"] += inside
    share = lambda part, whole: round(100 * part / whole, 2) if whole else None  # noqa: E731
    told = asked["told"] + asked["changed"]
    result = {kind: share(right[kind], asked[kind]) for kind in ("told", "changed", "not_told")}
    result |= {"false_refusals": share(refusals, told), "questions": dict(asked), "conversations": done}
    if cases := located.pop("cases", 0):
        result["selected"] = {key: share(count, cases) for key, count in sorted(located.items())}
    return result | {"seconds": round(time.time() - began, 1)}


def run_generation(llm: LLM, batches: list) -> dict:
    """Free greedy answers: how often the whole sentence is the expected one, and at least its value."""
    sentences = values = count = 0
    for ids, _, [answers] in batches:
        tokens = [int(t) for t in ids[0]]
        prompts, wanted = [], []
        for answer in answers:
            start = max(i for i in range(answer.first) if tokens[i] == ASSISTANT) + 2  # behind <Assistant></think>
            end = tokens.index(EOS, answer.first) if EOS in tokens[answer.first :] else len(tokens)
            prompts.append(tokens[:start])
            wanted.append((tokens[start:end], tokens[answer.first : answer.end]))
        for completion, (sentence, value) in zip(
            llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=64)), wanted, strict=True
        ):
            got = [t for t in completion.token_ids if t != EOS]
            count += 1
            sentences += got == sentence
            values += any(got[i : i + len(value)] == value for i in range(len(got)))
    return {
        "questions": count,
        "sentences": round(100 * sentences / count, 2),
        "values": round(100 * values / count, 2),
    }


def main() -> None:
    args = parse()
    folder = args.model or DEMO
    if not (folder / "tokenizer.json").is_file():
        raise ValueError(f"--model {str(folder)!r}: no tokenizer.json there; a checkpoint with one is wanted")
    args.out.mkdir(parents=True, exist_ok=True)
    own = {} if args.precision is None else {"precision": args.precision}
    wanted = {name: replace(CELLS[name], **own) for name in args.cells}
    sets = {(v.length, v.wording) for v in wanted.values()}
    cells = {
        key: Cell(key[0], args.tokens // key[0] if args.tokens else args.conversations, "test", key[1], seed=args.seed)
        for key in sorted(sets)
    }
    made: dict = {}
    for cell in cells.values():  # one conversation a batch
        made |= conversations(folder / "tokenizer.json", [cell], args.workers, tokens=cell.length)
    results: dict[str, dict] = {}
    engine: LLM | None = None
    built: tuple | None = None
    for name, variant in sorted(wanted.items(), key=lambda item: (item[1].engine, item[0])):
        if engine is None or variant.engine != built:
            engine, built = open_engine(folder, variant, args.device, args.backend), variant.engine
        batches = made[cells[variant.length, variant.wording]]
        results[name] = vars(variant) | run_cell(engine, variant, batches, args.seconds)
        if args.generate and variant.generates:
            results[name]["generated"] = run_generation(engine, batches[: args.generate])
        print(name, json.dumps(results[name]), flush=True)
        report = {
            "device": str(engine.device),
            "model": str(args.model or "shipped"),
            "backend": args.backend,
            "seed": args.seed,
            "cells": results,
        }
        (args.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
    try:
        plot(results, args.out / "evaluation.png")
    except ModuleNotFoundError as error:
        print(f"no plot: {error}; pip install matplotlib", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # what whoever started this can mend
        raise SystemExit(f"evaluate: {error}") from None
