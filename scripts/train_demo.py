"""Train the demo checkpoint with the recipe of DeepSeek Sparse Attention and export it as FP8, on one GPU in under half an hour.

    python scripts/train_demo.py --out build/demo            # the whole run
    python scripts/train_demo.py --out build/demo --resume   # continue from the last saved step

Stages (V3.2 paper, section 2.1): dense pre-training with growing length; the indexer alone, against the attention
distribution; then the whole model with top-k selection, where the indexer keeps its own loss on detached inputs. Last the
draft layer for speculative decoding (multi-token prediction), with the rest frozen.
"""

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from evaluation.samples import Cell, conversations
from tokenizers import Tokenizer
from tqdm import tqdm
from training import data, optimizer
from training.check import check
from training.export import export
from training.measure import measure
from training.model import Mode, Model, Shape, rms_norm, rope_tables
from training.schedule import TOKENS, Step, schedule


def sample_rows(classes: torch.Tensor, length: int, rows: int = 1024) -> torch.Tensor:
    """[B, R] query positions for the indexer's loss: half of them where a value is produced, half anywhere."""
    batch = classes.shape[0]
    each = max(2, rows // batch)
    produces = (classes[:, 1:] >= data.NUMBER["value"]).float() + 1e-6
    at_values = torch.multinomial(produces, each // 2, replacement=True)
    anywhere = torch.randint(length, (batch, each - each // 2), device=classes.device)
    return torch.cat((at_values, anywhere), 1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint, curves and measurements")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="length of every stage")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens per step")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start", type=Path, help="initial weights (weights.pt of an earlier run)")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument(
        "--measure", type=float, default=1.0, help="size of the measurements, in units of 500 conversations"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--check", action="store_true", help="compare the kernels with plain torch, time them, and stop"
    )
    parser.add_argument("--seconds", type=float, help="stop training after this time, for trials")
    return parser.parse_args()


class Trainer:
    def __init__(self, args: argparse.Namespace):
        self.args, self.device = args, torch.device(args.device)
        args.out.mkdir(parents=True, exist_ok=True)
        self.tokenizer_path = args.out / "tokenizer.json"
        self.shape = Shape()
        if not self.tokenizer_path.exists():
            data.train_tokenizer(self.tokenizer_path, self.shape.vocab)
        torch.manual_seed(args.seed)
        self.model = Model(self.shape).to(self.device)
        self.optimizers = optimizer.build(self.model)
        self.tables = rope_tables(self.shape, self.device)
        self.plan = schedule(args.scale, args.seed, args.tokens)
        self.step, self.history, self.draft_started = 0, [], False
        if args.start:
            self.model.load_state_dict(torch.load(args.start, map_location=self.device))
        if args.resume:
            self._restore()
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            torch._dynamo.config.recompile_limit = 64
            self.model.compile()

    def _restore(self) -> None:
        state = torch.load(self.args.out / "state.pt", map_location=self.device)
        self.model.load_state_dict(state["model"])
        for own, saved in zip(self.optimizers, state["optimizers"], strict=True):
            own.load_state_dict(saved)
        self.step, self.history = state["step"], state["history"]
        self.draft_started = state["draft_started"]
        if self.draft_started:
            for name, p in self.model.named_parameters():
                p.requires_grad_(name.startswith("draft."))

    def save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers],
                 "step": self.step, "history": self.history, "draft_started": self.draft_started}  # fmt: skip
        temporary = self.args.out / "state.tmp"
        torch.save(state, temporary)
        temporary.replace(self.args.out / "state.pt")

    def train_step(self, step: Step, ids: np.ndarray, classes: np.ndarray) -> tuple:
        tokens = torch.from_numpy(ids.astype(np.int64)).to(self.device, non_blocking=True)
        kinds = torch.from_numpy(classes.astype(np.int64)).to(self.device, non_blocking=True)
        weights = torch.from_numpy(data.WEIGHTS).to(self.device)[kinds[:, 1:]].flatten()
        sample = sample_rows(kinds, step.length) if step.indexer else None
        if step.stage == "draft":
            return self.train_draft(step, tokens, weights, sample)
        mode = Mode("sparse" if step.sparse else "dense", topk=step.topk)
        alone = step.stage == "indexer"
        if alone:  # the rest of the model is frozen: only the indexer's inputs and loss need a graph
            for name, p in self.model.named_parameters():
                p.requires_grad_(".index_" in name)
        x, loads, divergence = self.model(tokens[:, :-1].flatten(), step.length, mode, self.tables, sample, self.dtype)
        loss = torch.zeros((), device=self.device) if alone else self.model.loss(x, tokens[:, 1:].flatten(), weights)
        (loss + divergence).backward()
        if alone:
            for p in self.model.parameters():
                p.requires_grad_(True)
        self.update(step.rate)
        if not alone:
            with torch.no_grad():  # balances without an auxiliary loss: the bias moves against the load error
                for layer, load in zip([m for m in self.model.layers if not m.dense], loads, strict=True):
                    layer.router_bias -= 0.001 * min(1.0, 2 * step.rate) * torch.sign(load - load.mean())
        return (
            loss.detach(),
            divergence.detach(),
            torch.stack([load.max() for load in loads]).max() if loads else loss.detach(),
        )

    def train_draft(
        self, step: Step, tokens: torch.Tensor, weights: torch.Tensor, sample: torch.Tensor | None
    ) -> tuple:
        """Train the draft layer alone, over two tokens: its own output is what it gets for the second."""
        model, length = self.model, step.length
        if not self.draft_started:
            model.start_draft()
            for p in model.parameters():
                p.requires_grad_(False)
            for p in model.draft.parameters():
                p.requires_grad_(True)
            self.draft_started = True
        inputs, following = tokens[:, :-1].flatten(), tokens[:, 1:].flatten()
        with torch.no_grad():
            x, _, _ = model(inputs, length, Mode("dense"), self.tables, None, self.dtype)
            hidden = rms_norm(x, model.norm)
        # The target of position i is the token at i + 2. Only what the assistant writes is drafted.
        targets = torch.roll(tokens[:, 1:], -1, 1).flatten()
        weights = weights.view(tokens.shape[0], length) * (weights.view(tokens.shape[0], length) > 0.1)
        weights = torch.roll(weights, -1, 1)
        weights[:, -1] = 0.0
        weights = weights.flatten()
        mode = Mode("sparse" if step.sparse else "dense")
        first, load, divergence = model.draft_forward(hidden, following, length, mode, self.tables, sample)
        loss = model.loss(first, targets, weights, model.draft.norm)
        handed = rms_norm(first, model.draft.norm).view(tokens.shape[0], length, -1)
        handed = torch.cat((hidden.view_as(handed)[:, :1], handed[:, :-1]), 1).flatten(0, 1)
        second, _, _ = model.draft_forward(handed, following, length, mode, self.tables)
        again = model.loss(second, targets, weights, model.draft.norm)
        (loss + 0.5 * again + divergence).backward()
        self.update(step.rate)
        with torch.no_grad():
            model.draft.layer.router_bias -= 0.001 * min(1.0, 2 * step.rate) * torch.sign(load - load.mean())
        return loss.detach(), again.detach() if not step.indexer else divergence.detach(), load.max()

    def update(self, rate: float) -> None:
        """One step of the optimisers."""
        torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.grad is not None], 1.0, foreach=True)
        for own in self.optimizers:
            for group in own.param_groups:
                group["lr"] = group["base_lr"] * rate
            own.step()
            own.zero_grad(set_to_none=True)

    def train(self) -> None:
        rows = [(s.length, self.args.tokens // s.length) for s in self.plan]
        batches = data.Batches(self.tokenizer_path, self.args.seed, rows, self.args.workers, self.step)
        quick = conversations(
            self.tokenizer_path, [Cell(1024, 64), Cell(4096, 32), Cell(16384, 12), Cell(1024, 64, wording="validation")],
            min(8, self.args.workers), self.args.tokens,
        ) if self.args.measure else {}  # fmt: skip
        # The test conversations are generated meanwhile, but not measured before training ends.
        if self.args.measure:
            self.test = ThreadPoolExecutor(1).submit(
                conversations, self.tokenizer_path, self.test_cells(), max(1, self.args.workers // 5), self.args.tokens
            )
        bar = tqdm(total=len(self.plan), initial=self.step, mininterval=10, miniters=1, ascii=True, ncols=110)
        began, saved, window = time.time(), time.time(), []
        for number, ids, classes in batches:
            step = self.plan[number]
            window.append((*self.train_step(step, ids, classes), step.stage))
            self.step = number + 1
            bar.update()
            if len(window) == 25 or self.step == len(self.plan):
                loss, divergence, load = (
                    torch.stack([torch.stack([v.float() for v in w[:3]]) for w in window]).mean(0).tolist()
                )
                self.history.append({"step": self.step, "stage": step.stage, "length": step.length, "loss": loss,
                                     "divergence": divergence, "busiest": load, "seconds": time.time() - began})  # fmt: skip
                bar.set_postfix_str(
                    f"{step.stage} {step.length} loss {loss:.3f} kl {divergence:.2f} load {load:.2f}", refresh=False
                )
                window = []
            if quick and self.step % 2500 == 0:
                self.progress(quick, step)
            if time.time() - saved > 120:
                self.save()
                saved = time.time()
            if self.args.seconds and time.time() - began > self.args.seconds:
                break
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
                found.append(f"{cell.length}{'' if cell.wording == 'train' else ' new wording'}: {shown}")
                self.history[-1].setdefault("validation", {})[f"{cell.length} {cell.wording}"] = result
        tqdm.write(f"step {self.step} stated/whole/updated/unanswerable/two hops/calls  " + "  ".join(found))

    def finish(self) -> dict:
        """Export, then measure on the test split with simulated FP8. evaluate.py measures the engine itself."""
        export(self.model, Tokenizer.from_file(str(self.tokenizer_path)), self.args.out / "checkpoint")
        torch.save({k: v.to(torch.bfloat16) for k, v in self.model.state_dict().items()}, self.args.out / "weights.pt")
        report = {
            "arguments": {k: str(v) for k, v in vars(self.args).items()},
            "shape": asdict(self.shape),
            "history": self.history,
        }
        (self.args.out / "training.json").write_text(json.dumps(report))
        try:
            _plot(self.history, self.args.out / "curves.png")
        except ModuleNotFoundError as error:
            print(f"no plot: {error}; pip install matplotlib", flush=True)
        if self.args.measure:
            report["measurements"] = self.measurements()
            (self.args.out / "training.json").write_text(json.dumps(report))
        return report

    def test_cells(self) -> list[Cell]:
        count = max(1, int(500 * self.args.measure))
        lengths = (1024, 4096, 8192, 16384)
        return [Cell(length, count, "test") for length in lengths] + [
            Cell(length, count, "test", "test") for length in lengths[:2]
        ]

    def measurements(self) -> list[dict]:
        cells, batches = self.test_cells(), self.test.result()
        rows = []
        for cell in cells:
            modes = {"dsa": Mode("sparse"), "dsa fp8": Mode("sparse", fp8=True), "dense": Mode("dense")}
            if cell.wording == "train" and cell.length == 4096:
                modes |= {"window": Mode("window"), "interleaved": Mode("sparse", interleaved_indexer=True)}
            for name, mode in modes.items():
                result = measure(self.model, batches[cell], mode, self.tables, self.dtype)
                rows.append({"length": cell.length, "wording": cell.wording, "mode": name, **result})
                print(json.dumps(rows[-1]), flush=True)
        return rows


def _plot(history: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, key, label in (
        (axes[0], "loss", "weighted cross entropy"),
        (axes[1], "divergence", "indexer KL, sum over layers"),
    ):
        for stage in ("dense", "indexer", "sparse", "draft"):
            points = [(h["step"], h[key]) for h in history if h["stage"] == stage and h[key] > 0]
            if points:
                axis.plot(*zip(*points, strict=True), label=stage)
                axis.legend()
        axis.set(xlabel="step", ylabel=label, yscale="log")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    args = parse()
    trainer = Trainer(args)
    if args.check:
        check(trainer)
        return
    trainer.train()
    trainer.finish()


if __name__ == "__main__":
    main()
