"""The model in training: its optimisers, one step of each stage, and the state that a run resumes from."""

import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

from . import data, optimizer
from .export import restore
from .model import Model, rms_norm
from .ranks import Ranks
from .schedule import ANEW, CONTINUED, Step, schedule
from .shape import Shape, rope_tables
from .vocabulary import train_tokenizer


def sample_rows(classes: torch.Tensor, length: int, rows: int = 1024) -> torch.Tensor:
    """[B, R] query positions for the indexer's loss: half of them where a value is produced, half anywhere."""
    batch = classes.shape[0]
    each = max(2, rows // batch)
    produces = (classes[:, 1:] >= data.NUMBER["value"]).float() + 1e-6
    at_values = torch.multinomial(produces, each // 2, replacement=True)
    anywhere = torch.randint(length, (batch, each - each // 2), device=classes.device)
    return torch.cat((at_values, anywhere), 1)


class NotFittingError(torch.OutOfMemoryError):
    """Another rank had too little memory for a step."""


class Trainer:
    """args: out, seed, scale, rate, tokens, device; checkpoint, a folder to continue from, or None; resume, from `out`/state.pt.

    Raises ValueError for a folder without a checkpoint or state.
    """

    def __init__(self, args: Namespace):
        self.args, self.ranks = args, Ranks(torch.device(args.device))
        self.device = self.ranks.device
        args.out.mkdir(parents=True, exist_ok=True)
        state = self._saved() if args.resume else None
        self.tokenizer_path = args.out / "tokenizer.json"
        self.shape = Shape()
        torch.manual_seed(args.seed)
        self.model = Model(self.shape)
        self.step, self.history, self.draft_started = 0, [], args.checkpoint is not None
        if args.checkpoint and state is None:
            restore(self.model, args.checkpoint)
            shutil.copyfile(args.checkpoint / "tokenizer.json", self.tokenizer_path)
        elif not self.tokenizer_path.exists() and self.ranks.first:
            train_tokenizer(self.tokenizer_path, self.shape.vocab)
        self.model = self.model.to(self.device)
        self.optimizers = optimizer.build(self.model)
        self._fitting: set[tuple] = set()  # shapes of steps that fit the memory of every rank
        self.tables = rope_tables(self.shape, self.device)
        course = CONTINUED if args.checkpoint else ANEW
        self.plan = schedule(args.scale, args.seed, args.tokens, course, args.rate)
        self.weights = torch.from_numpy(data.weights(course.user, course.value_start)).to(self.device)
        if state is not None:
            self.model.load_state_dict(state["model"])
            for own, saved in zip(self.optimizers, state["optimizers"], strict=True):
                own.load_state_dict(saved)
            self.step, self.history, self.draft_started = state["step"], state["history"], state["draft_started"]
        self.ranks.copy_first(self.weights_of_all())  # which also waits for the tokenizer that rank 0 writes
        torch.manual_seed(args.seed + 1000 * self.ranks.number)  # each rank samples its own rows for the indexer's loss
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            torch._dynamo.config.recompile_limit = 64
            self.model.compile()

    def _saved(self) -> dict:
        """The saved state. Its plan is that of the first command, so that the next ones need not repeat its arguments."""
        path = self.args.out / "state.pt"
        if not path.is_file():
            raise ValueError(f"--resume needs {path}, which a first command without --resume writes")
        state = torch.load(path, map_location=self.device)
        self.args.seed, self.args.scale, self.args.tokens, self.args.rate = (
            state["plan"][name] for name in ("seed", "scale", "tokens", "rate")
        )
        self.args.checkpoint = state["plan"]["checkpoint"] and Path(state["plan"]["checkpoint"])
        return state

    def weights_of_all(self) -> list[torch.Tensor]:
        """Parameters and buffers, those of the draft layer too."""
        return [tensor.data for tensor in (*self.model.parameters(), *self.model.buffers())]

    def save(self) -> None:
        """Write the state of the run, at once or not at all."""
        if not self.ranks.first:
            return
        plan = {"seed": self.args.seed, "scale": self.args.scale, "tokens": self.args.tokens, "rate": self.args.rate,
                "checkpoint": self.args.checkpoint and str(self.args.checkpoint)}  # fmt: skip
        state = {"model": self.model.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers], "plan": plan,
                 "step": self.step, "history": self.history, "draft_started": self.draft_started}  # fmt: skip
        temporary = self.args.out / "state.tmp"
        torch.save(state, temporary)
        temporary.replace(self.args.out / "state.pt")

    def train_step(self, step: Step, ids: np.ndarray, classes: np.ndarray) -> tuple:
        tokens = torch.from_numpy(ids.astype(np.int64)).to(self.device, non_blocking=True)
        kinds = torch.from_numpy(classes.astype(np.int64)).to(self.device, non_blocking=True)
        weights = self.weights[kinds[:, 1:]].flatten()
        sample = sample_rows(kinds, step.length) if step.indexer else None
        if step.stage == "draft":
            return self.train_draft(step, tokens, weights, sample)
        topk = step.topk if step.sparse else None
        alone = step.stage == "indexer"
        if alone:  # the rest of the model is frozen: only the indexer's inputs and loss need a graph
            for name, p in self.model.named_parameters():
                p.requires_grad_(".index_" in name)
        x, loads, divergence = self.model(tokens[:, :-1].flatten(), step.length, topk, self.tables, sample, self.dtype)
        loss = torch.zeros((), device=self.device) if alone else self.model.loss(x, tokens[:, 1:].flatten(), weights)
        (loss + divergence).backward()
        self._agree(step)
        if alone:
            for p in self.model.parameters():
                p.requires_grad_(True)
        self.update(step.rate)
        if not alone:
            with torch.no_grad():  # balances without an auxiliary loss: the bias moves against the load error
                self.ranks.average(loads)
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
            self.draft_started = True
        for name, p in model.named_parameters():
            p.requires_grad_(name.startswith("draft."))
        inputs, following = tokens[:, :-1].flatten(), tokens[:, 1:].flatten()
        with torch.no_grad():
            x, _, _ = model(inputs, length, None, self.tables, None, self.dtype)
            hidden = rms_norm(x, model.norm)
        # The target of position i is the token at i + 2. Only what the assistant writes is drafted.
        targets = torch.roll(tokens[:, 1:], -1, 1).flatten()
        weights = weights.view(tokens.shape[0], length) * (weights.view(tokens.shape[0], length) > 0.1)
        weights = torch.roll(weights, -1, 1)
        weights[:, -1] = 0.0
        weights = weights.flatten()
        topk = step.topk if step.sparse else None
        first, load, divergence = model.draft_forward(hidden, following, length, topk, self.tables, sample)
        loss = model.loss(first, targets, weights, model.draft.norm)
        handed = rms_norm(first, model.draft.norm).view(tokens.shape[0], length, -1)
        handed = torch.cat((hidden.view_as(handed)[:, :1], handed[:, :-1]), 1).flatten(0, 1)
        second, _, _ = model.draft_forward(handed, following, length, topk, self.tables)
        again = model.loss(second, targets, weights, model.draft.norm)
        (loss + 0.5 * again + divergence).backward()
        self._agree(step)
        self.update(step.rate)
        with torch.no_grad():
            self.ranks.average([load])
            model.draft.layer.router_bias -= 0.001 * min(1.0, 2 * step.rate) * torch.sign(load - load.mean())
        return loss.detach(), again.detach() if not step.indexer else divergence.detach(), load.max()

    def _agree(self, step: Step, fits: bool = True) -> None:
        """Raise OutOfMemoryError unless the first step of this shape fits the memory of every rank."""
        if self.ranks.size > 1 and self._shape(step) not in self._fitting:
            if self.ranks.everywhere(fits):
                self._fitting.add(self._shape(step))
            elif fits:
                raise NotFittingError(f"step of {step.length} tokens does not fit the memory of another rank")

    @staticmethod
    def _shape(step: Step) -> tuple:
        """What the memory of a step depends on."""
        return step.stage, step.length, step.topk, step.indexer, step.sparse

    def recover(self, step: Step, error: torch.OutOfMemoryError) -> None:
        """Forget a step that did not fit the memory.

        Raises RuntimeError if the ranks have agreed that such steps fit: the others wait for this one's gradients, and only the
        end of the job frees them.
        """
        if not isinstance(error, NotFittingError):
            if self._shape(step) in self._fitting:
                raise RuntimeError(
                    f"step of {step.length} tokens does not fit the memory of rank {self.ranks.number}, as earlier ones did; "
                    "--resume goes on from the last saved step"
                ) from error
            self._agree(step, fits=False)
        for p in self.model.parameters():
            p.requires_grad_(True)
            p.grad = None
        torch.cuda.empty_cache()

    def update(self, rate: float) -> None:
        """One step of the optimisers."""
        trained = [p for p in self.model.parameters() if p.grad is not None]
        self.ranks.average([p.grad for p in trained])
        torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        for own in self.optimizers:
            for group in own.param_groups:
                group["lr"] = group["base_lr"] * rate
            own.step()
            own.zero_grad(set_to_none=True)
