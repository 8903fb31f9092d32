"""Train the demo checkpoint with the recipe of DeepSeek Sparse Attention and export it as FP8, on one GPU in under half an hour.

    python scripts/demo_model/train.py --out build/demo                     # anew, the whole run
    python scripts/demo_model/train.py --out build/demo --from model/demo   # train the shipped checkpoint further
    python scripts/demo_model/train.py --out build/demo --resume            # go on from the last saved step, with the same plan
    torchrun --standalone --nproc-per-node 2 scripts/demo_model/train.py …  # on two GPUs, twice the tokens a step

With `--seconds` a command stops after that time and saves its state for `--resume`; the last one exports. With
`--minutes` all stages end within that time on a machine of any speed: dense steps are left out first, and steps of the later
stages where those would take more than half of the time. Every two minutes the weights are exported to OUT/latest.

Stages (V3.2 paper, section 2.1): dense pre-training with growing length; the indexer alone, against the attention
distribution; then the whole model with top-k selection, where the indexer keeps its own loss on detached inputs. Last the
draft layer for speculative decoding (multi-token prediction), with the rest frozen.
"""

import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of demo_model

from demo_model.training import data
from demo_model.training.arguments import parse
from demo_model.training.check import check
from demo_model.training.export import export
from demo_model.training.pace import Pace
from demo_model.training.plot import plot
from demo_model.training.schedule import Step
from demo_model.training.trainer import Trainer


class Run(Trainer):
    """A training from its first or its next step, and its export."""

    def train(self) -> None:
        rows = [(s.length, self.args.tokens // s.length) for s in self.plan]
        ranks, workers = self.ranks, self.args.workers
        batches = data.Batches(self.tokenizer_path, self.args.seed, rows, workers, self.step, ranks.number)
        shown = {"mininterval": 10, "miniters": 1, "ascii": True, "ncols": 110, "disable": not ranks.first}
        bar = tqdm(total=len(self.plan), initial=self.step, **shown)
        began = marked = time.time()
        elapsed = saved = 0.0  # seconds of this command, by the clock of rank 0
        before = self.history[-1]["seconds"] if self.history else 0.0
        pace = Pace(self.plan, batches.left_out, self.step, self.args.minutes and self.args.minutes * 60)
        window: list[tuple[Step, tuple]] = []
        for number, ids, classes in batches:
            step = self.plan[number]
            if window and step.stage != window[-1][0].stage:
                window, marked = [], time.time()
            failure = None
            try:
                window.append((step, self.train_step(step, ids, classes)))
            except torch.OutOfMemoryError as error:
                failure = error.with_traceback(None)  # which holds the tensors
            if failure:
                self.recover(step, failure)
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
                elapsed, taken = ranks.of_first(now - began, now - marked)
                pace.record([s for s, _ in window], taken)
                pace.update(self.step, elapsed)
                marked = now
                self.history.append({"step": self.step, "stage": step.stage, "length": step.length, "loss": loss,
                                     "divergence": divergence, "busiest": load, "seconds": before + elapsed,
                                     "share": pace.share})  # fmt: skip
                bar.set_postfix_str(
                    f"{step.stage} {step.length} loss {loss:.3f} kl {divergence:.2f} load {load:.2f} share {pace.share:.2f}",
                    refresh=False,
                )
                window = []
            if not window and elapsed - saved > 120:
                ranks.copy_first(self.weights_of_all())  # rounding must not part the ranks
                self.save()
                self.export("latest")
                saved = elapsed
            if ranks.size == 1:
                elapsed = time.time() - began
            if self.args.seconds and elapsed > self.args.seconds:
                break
        else:
            self.step = len(self.plan)  # the last ones may have been left out
        bar.close()
        batches.close()
        self.save()

    def export(self, name: str) -> None:
        """Write the weights as they are, in FP8, and the curves so far. A run that is lost leaves its latest ones."""
        if not self.ranks.first:
            return
        export(self.model, Tokenizer.from_file(str(self.tokenizer_path)), self.args.out / name)
        report = {"step": self.step, "plan": len(self.plan), "history": self.history}
        (self.args.out / name / "training.json").write_text(json.dumps(report))

    def finish(self) -> None:
        """Export, and plot the curves. evaluate.py measures the checkpoint."""
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


def main() -> None:
    args = parse(__doc__ or "")
    try:
        trainer = Run(args)
    except ValueError as error:
        raise SystemExit(f"train_demo: {error}") from None
    if args.check:
        check(trainer)
        return
    trainer.train()
    trainer.ranks.close()
    if not trainer.ranks.first:
        return
    if trainer.step < len(trainer.plan):
        print(f"stopped after step {trainer.step} of {len(trainer.plan)}; --resume goes on")
        return
    trainer.finish()


if __name__ == "__main__":
    main()
