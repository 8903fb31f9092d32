"""Train the demo checkpoint with the recipe of DeepSeek Sparse Attention and export it as FP8, on one GPU in under half an hour.

    python scripts/train_demo.py --out build/demo                     # anew, the whole run
    python scripts/train_demo.py --out build/demo --from model/demo   # train the shipped checkpoint further
    python scripts/train_demo.py --out build/demo --resume            # go on from the last saved step, with the same plan

With `--seconds` a command stops after that time and saves its state for `--resume`; the last one exports and measures. With
`--minutes` all stages end within that time on a machine of any speed: dense steps are left out first, and steps of the later
stages where those would take more than half of the time. Every two minutes the weights are exported to OUT/latest.

Stages (V3.2 paper, section 2.1): dense pre-training with growing length; the indexer alone, against the attention
distribution; then the whole model with top-k selection, where the indexer keeps its own loss on detached inputs. Last the
draft layer for speculative decoding (multi-token prediction), with the rest frozen.
"""

import argparse
import json
import math
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch
from evaluation.samples import Cell, conversations, plain_families
from tokenizers import Tokenizer
from tqdm import tqdm
from training import data
from training.check import check
from training.export import export
from training.measure import measure
from training.pace import Pace
from training.plot import plot
from training.schedule import TOKENS, Step
from training.shape import Mode
from training.trainer import Trainer

from deepseek_v32.model.demo.dialogues import FAMILIES


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint, curves and measurements")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="length of every stage")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens per step")
    parser.add_argument(
        "--resume", action="store_true", help="go on from OUT/state.pt; its seed, scale and tokens hold"
    )
    parser.add_argument(
        "--from",
        type=Path,
        dest="checkpoint",
        metavar="DIRECTORY",
        help="checkpoint to train further; its tokenizer is kept",
    )
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument(
        "--measure", type=float, default=1.0, help="size of the measurements, in units of 500 conversations"
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
    return parser.parse_args()


PLAIN = plain_families(FAMILIES)


class Run(Trainer):
    """A training from its first or its next step: progress on the validation split, export, measurements on the test split."""

    def train(self) -> None:
        rows = [(s.length, self.args.tokens // s.length) for s in self.plan]
        batches = data.Batches(self.tokenizer_path, self.args.seed, rows, self.args.workers, self.step)
        cells = [
            Cell(1024, 64),
            Cell(4096, 32),
            Cell(16384, 12),
            Cell(1024, 64, wording="validation"),
            Cell(1024, 64, families=PLAIN),
        ]
        quick = (
            conversations(self.tokenizer_path, cells, min(8, self.args.workers), self.args.tokens)
            if self.args.measure
            else {}
        )
        # The test conversations are generated meanwhile, but not measured before training ends.
        if self.args.measure:
            self.test = ThreadPoolExecutor(1).submit(
                conversations, self.tokenizer_path, self.test_cells(), max(1, self.args.workers // 5), self.args.tokens
            )
        bar = tqdm(total=len(self.plan), initial=self.step, mininterval=10, miniters=1, ascii=True, ncols=110)
        began = saved = marked = time.time()
        before = self.history[-1]["seconds"] if self.history else 0.0
        pace = Pace(self.plan, batches.left_out, self.step, self.args.minutes and self.args.minutes * 60)
        window: list[tuple[Step, tuple]] = []
        seen: Counter[str] = Counter()  # windows of this command, by stage
        for number, ids, classes in batches:
            step = self.plan[number]
            if window and step.stage != window[-1][0].stage:
                window, marked = [], time.time()
            fits = True
            try:
                window.append((step, self.train_step(step, ids, classes)))
            except torch.OutOfMemoryError:  # whose traceback holds the tensors until here
                fits = False
            if not fits:
                self.recover()
                pace.drop(step.stage, step.length)
                tqdm.write(f"step {number} of {step.length} tokens does not fit the memory; such steps are left out")
                continue
            bar.update(number + 1 - self.step)
            self.step = number + 1
            if len(window) == 25 or self.step == len(self.plan):
                values = [torch.stack([v.float() for v in found]) for _, found in window]
                loss, divergence, load = torch.stack(values).mean(0).tolist()
                if not math.isfinite(loss + divergence):
                    raise FloatingPointError(
                        f"loss is {loss + divergence} near step {self.step}; --resume goes on before it"
                    )
                now = time.time()
                # The first steps of a stage compile its kernels.
                if seen[step.stage]:
                    pace.record([s for s, _ in window], now - marked)
                pace.update(self.step, now - began)
                seen[step.stage] += 1
                marked = now
                self.history.append({"step": self.step, "stage": step.stage, "length": step.length, "loss": loss,
                                     "divergence": divergence, "busiest": load, "seconds": before + now - began,
                                     "share": pace.share})  # fmt: skip
                bar.set_postfix_str(
                    f"{step.stage} {step.length} loss {loss:.3f} kl {divergence:.2f} load {load:.2f} share {pace.share:.2f}",
                    refresh=False,
                )
                window = []
            if quick and self.step % 2500 == 0:
                self.progress(quick, step)
            if not window and time.time() - saved > 120:
                self.save()
                self.export("latest")
                saved = time.time()
            if self.args.seconds and time.time() - began > self.args.seconds:
                break
        else:
            self.step = len(self.plan)  # the last ones may have been left out
        bar.close()
        batches.close()
        self.save()

    def progress(self, quick: dict, step: Step) -> None:
        """Accuracy on the validation split. The test split is not used before training ends."""
        found = []
        for cell, batches in quick.items():
            if cell.length <= 4 * step.length:
                mode = Mode("sparse" if step.stage == "sparse" else "dense")
                result = measure(self.model, batches, mode, self.tables, self.dtype)
                shown = [
                    result.get(kind)
                    for kind in ("stated", "stated whole", "updated", "unanswerable", "two hops thinking", "call")
                ]
                name = f"{cell.length} {cell.wording}{' plain' if cell.families == PLAIN else ''}"
                found.append(f"{name}: {shown}")
                self.history[-1].setdefault("validation", {})[name] = result
        tqdm.write(f"step {self.step} stated/whole/updated/unanswerable/two hops/calls  " + "  ".join(found))

    def export(self, name: str) -> None:
        """Write the weights as they are, in FP8, and the curves so far. A run that is lost leaves its latest ones."""
        export(self.model, Tokenizer.from_file(str(self.tokenizer_path)), self.args.out / name)
        report = {"step": self.step, "plan": len(self.plan), "history": self.history}
        (self.args.out / name / "training.json").write_text(json.dumps(report))

    def finish(self) -> dict:
        """Export, then measure on the test split with simulated FP8. evaluate.py measures the engine itself."""
        self.export("checkpoint")
        torch.save({k: v.to(torch.bfloat16) for k, v in self.model.state_dict().items()}, self.args.out / "weights.pt")
        report = {
            "arguments": {k: str(v) for k, v in vars(self.args).items()},
            "shape": asdict(self.shape),
            "history": self.history,
        }
        (self.args.out / "training.json").write_text(json.dumps(report))
        try:
            plot(self.history, self.args.out / "curves.png")
        except ModuleNotFoundError as error:
            print(f"no plot: {error}; pip install matplotlib", flush=True)
        if self.args.measure:
            report["measurements"] = self.measurements()
            (self.args.out / "training.json").write_text(json.dumps(report))
        return report

    def test_cells(self) -> list[Cell]:
        count = max(1, int(500 * self.args.measure))
        lengths = (1024, 4096, 8192, 16384)
        return (
            [Cell(length, count, "test") for length in lengths]
            + [Cell(length, count, "test", "test") for length in lengths[:2]]
            + [Cell(length, count, "test", families=PLAIN) for length in lengths[:2]]
        )

    def measurements(self) -> list[dict]:
        cells, batches = self.test_cells(), self.test.result()
        rows = []
        for cell in cells:
            modes = {"dsa": Mode("sparse"), "dsa fp8": Mode("sparse", fp8=True), "dense": Mode("dense")}
            if cell.wording == "train" and cell.length == 4096 and cell.families != PLAIN:
                modes |= {"window": Mode("window"), "interleaved": Mode("sparse", interleaved_indexer=True)}
            for name, mode in modes.items():
                result = measure(self.model, batches[cell], mode, self.tables, self.dtype)
                rows.append(
                    {"length": cell.length, "wording": cell.wording, "families": cell.families, "mode": name, **result}
                )
                print(json.dumps(rows[-1]), flush=True)
        return rows


def main() -> None:
    args = parse()
    try:
        trainer = Run(args)
    except ValueError as error:
        raise SystemExit(f"train_demo: {error}") from None
    if args.check:
        check(trainer)
        return
    trainer.train()
    if trainer.step < len(trainer.plan):
        print(f"stopped after step {trainer.step} of {len(trainer.plan)}; --resume goes on")
        return
    trainer.finish()


if __name__ == "__main__":
    main()
