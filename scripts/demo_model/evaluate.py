"""Measure in the engine what the shipped checkpoint remembers. Writes JSON and, if matplotlib is installed, a plot.

    python scripts/demo_model/evaluate.py --out build/evaluation                    # 500 conversations a cell
    python scripts/demo_model/evaluate.py --out build/evaluation --conversations 8 --cells 1K 4K "4K two hops"  # quick
    python scripts/demo_model/evaluate.py --out build/tile --backend tile --cells 1K 4K 16K --tokens 300000  # one backend, faster
    python -m demo_model.evaluation.compare build/exact build/tile  # in scripts/: compares several reports

Conversations belong to the test split: training never used their names and values. Answers are teacher-forced: an answer is
correct if every token of its value is the likeliest, and `whole` if the quote after it is, too. Cells named `new` also use sentence
frames and question forms that training never used. Questions are of several kinds: the fact was `stated`, stated and later
`updated`, or never stated, so that the question is `unanswerable`; `thinking` marks those that are answered after a thought.

In the cells `chat`, `two hops` and `functions` the model writes freely, thoughts included, and its answers are parsed as the chat
does: an answer is right if it begins with the value, a call if its function and all arguments are those of the request.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from deepseek_v32.inference import LLM
from deepseek_v32.inference.llm import DEMO

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of demo_model

from demo_model.evaluation.cells import CELLS, Variant, answers_of, open_engine
from demo_model.evaluation.chatting import CHAT_CELLS, run_chat
from demo_model.evaluation.plot import plot
from demo_model.evaluation.samples import Cell, conversations


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint folder; the shipped one if not given")
    parser.add_argument("--device", default=None)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--precision", choices=("exact", "bf16", "fp8"), help="precision of all cells")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--conversations", type=int, default=500, help="per cell")
    parser.add_argument("--tokens", type=int, help="tokens per cell, which means fewer long conversations")
    names = [*CELLS, *CHAT_CELLS]
    parser.add_argument("--cells", nargs="+", default=names, choices=names, metavar="CELL", help=", ".join(names))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop a cell after this time")
    parser.add_argument("--seed", default="measure", help="another seed gives other conversations of the test split")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes that generate conversations"
    )
    return parser.parse_args()


def percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


def run_cell(llm: LLM, variant: Variant, batches: list, seconds: float) -> dict:
    """Teacher-forced answers of one set of conversations under one variant of the engine."""
    correct: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    located: Counter[str] = Counter()
    refusals = done = 0
    began = time.time()
    for ids, _, [answers] in batches:
        if time.time() - began > seconds:
            break
        done += 1
        found = answers_of(llm, variant, [int(t) for t in ids[0, :-1]], answers)
        refusal = next((int(ids[0, a.first]) for a in answers if a.kind == "unanswerable"), -1)
        for answer, result in zip(answers, found, strict=True):
            kind = f"{answer.kind} thinking" if answer.thinks else answer.kind
            asked[kind] += 1
            correct[kind] += result.value
            whole[kind] += result.whole
            refusals += answer.kind in ("stated", "updated") and result.first == refusal
            if result.layers is not None:
                located["cases"] += 1
                located["any layer"] += any(result.layers)
                for layer, inside in enumerate(result.layers):
                    located[f"layer {layer}"] += inside
    answerable = sum(count for kind, count in asked.items() if kind.split()[0] in ("stated", "updated"))
    shown = ("stated", "updated", "unanswerable")
    row: dict[str, object] = {
        kind: percent(correct[kind], asked[kind]) for kind in (*shown, *sorted(set(asked) - set(shown)))
    }
    row |= {f"{kind} whole": percent(whole[kind], asked[kind]) for kind in ("stated", "updated")}
    row |= {"false_refusals": percent(refusals, answerable), "questions": dict(asked), "conversations": done}
    if cases := located.pop("cases", 0):
        row["selected"] = {key: percent(count, cases) for key, count in sorted(located.items())}
    return row | {"seconds": round(time.time() - began, 1)}


def write_report(args: argparse.Namespace, engine: LLM, name: str, results: dict[str, dict]) -> None:
    """Print the newest cell, and write all that there are, so that a run that is stopped has left them."""
    print(name, json.dumps(results[name]), flush=True)
    report = {
        "device": str(engine.device),
        "model": str(args.model or "shipped"),
        "backend": args.backend,
        "seed": args.seed,
        "cells": results,
    }
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    args = parse()
    folder = args.model or DEMO
    if not (folder / "tokenizer.json").is_file():
        raise ValueError(f"--model is {str(folder)!r}; expected a checkpoint with tokenizer.json")
    args.out.mkdir(parents=True, exist_ok=True)
    own = {} if args.precision is None else {"precision": args.precision}
    variants = {name: replace(CELLS[name], **own) for name in args.cells if name in CELLS}
    sets = {(v.length, v.wording, v.families) for v in variants.values()}
    cells = {
        key: Cell(
            key[0], args.tokens // key[0] if args.tokens else args.conversations, "test", key[1], seed=args.seed,
            families=key[2],
        )
        for key in sorted(sets)
    }  # fmt: skip
    generated: dict = {}
    for cell in cells.values():  # one conversation per batch
        generated |= conversations(folder / "tokenizer.json", [cell], args.workers, tokens=cell.length)
    results: dict[str, dict] = {}
    engine: LLM | None = None
    built: tuple | None = None
    for name, variant in sorted(variants.items(), key=lambda item: (item[1].engine, item[0])):
        if engine is None or variant.engine != built:
            engine, built = open_engine(folder, variant, args.device, args.backend), variant.engine
        batches = generated[cells[variant.length, variant.wording, variant.families]]
        results[name] = vars(variant) | run_cell(engine, variant, batches, args.seconds)
        write_report(args, engine, name, results)
    plain = replace(CELLS["4K"], **own)
    for name in (name for name in args.cells if name in CHAT_CELLS):
        if engine is None or plain.engine != built:
            engine, built = open_engine(folder, plain, args.device, args.backend), plain.engine
        began = time.time()
        results[name] = run_chat(engine, CHAT_CELLS[name], args.conversations, args.seed)
        results[name] |= {"precision": plain.precision, "seconds": round(time.time() - began, 1)}
        write_report(args, engine, name, results)
    try:
        plot({name: result for name, result in results.items() if name in CELLS}, args.out / "evaluation.png")
    except ModuleNotFoundError as error:
        print(f"no plot: {error}; pip install matplotlib", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # errors that the user can correct
        raise SystemExit(f"evaluate: {error}") from None
