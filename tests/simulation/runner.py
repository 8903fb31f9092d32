"""What takes the place of the runner: two caches of integers, which check every entry that they give away."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from deepseek_v32.inference.engine.scheduler import Batch
from deepseek_v32.model.metadata import SelectionCallback
from simulation.model import VOCABULARY, extend, latents, logits


class Hooks(Protocol):
    """The simulation's side of a step: each is a place where other threads may run, and where a fault may strike."""

    def forward(self, batch: Batch) -> None: ...

    def spoil(self, batch: Batch, logits: torch.Tensor, runner: "SimulatedRunner") -> torch.Tensor: ...

    def stage(self) -> None: ...


class Entry(NamedTuple):
    """A number in a cache, and the write that it comes from: latent and index key of a token come from the same one."""

    value: int
    write: int


UNWRITTEN = Entry(0, -1)


class Sampled(list[int]):
    """The staged tokens on a rank's device. `exchange` is this rank's side of the broadcast."""

    exchange: Callable[["Sampled"], None]


class SimulatedRunner:
    """A ModelRunner. The device works in order, so a step's reads and writes happen when it is launched.

    A step may compute any number of tokens of a request and give logits after any number of the last ones, which is also what a
    step with draft tokens needs.
    """

    def __init__(
        self, page_count: int, page_size: int, max_sequences: int, ahead: bool, hooks: Hooks | None = None
    ) -> None:
        """ahead: whether steps may be launched before the tokens of the step before are read. hooks: None on a follower."""
        self.supports_async_scheduling = ahead
        self.page_size = page_size
        self.latent = [UNWRITTEN] * (page_count * page_size)
        self.index = [UNWRITTEN] * (page_count * page_size)
        self.sampled = Sampled([0] * max_sequences)
        self.steps: list[tuple[tuple[int, Entry], ...]] = []  # by step: what it wrote to which slot
        self.broken: list[str] = []
        self.writable: Callable[[int], bool] = lambda page: True  # whether a step may write to a page
        self.ill: set[int] = set()  # requests whose entries are garbage, by an injected fault
        self._writes = 0
        self._hooks = hooks

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        if self._hooks is not None:
            self._hooks.stage()
        self.sampled[: len(tokens)] = tokens.tolist()

    def run(self, batch: Batch, on_selection: SelectionCallback | None = None, plan: object = None) -> torch.Tensor:
        if self._hooks is not None:
            self._hooks.forward(batch)
        rows: list[list[float]] = []
        written: list[tuple[int, Entry]] = []
        for i, (request, start, count, logit_count) in enumerate(
            zip(batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True)
        ):
            tokens = request.tokens[start : start + count]
            if batch.sampled_rows:
                tokens = [self.sampled[batch.sampled_rows[i]]]
            size = self.page_size
            slots = [page * size + offset for page in request.pages for offset in range(size)][: start + count]
            if len(slots) != start + count or len(tokens) != count:
                self.broken.append(f"request {request.id}: {len(slots)} slots, {len(tokens)} tokens of {start}+{count}")
                continue
            for page in request.pages[start // size : (start + count - 1) // size + 1]:
                if not self.writable(page):
                    self.broken.append(f"request {request.id} overwrites page {page}, which others may read")
            # A follower is told the new tokens alone.
            check = self._hooks is not None and request.id not in self.ill
            own = latents(tuple(request.tokens[:start])) if check else None
            digest = self._read(request.id, slots[:start], own)
            for position, token in enumerate(tokens, start):
                latent, digest = extend(digest, token, position)
                self._writes += 1
                entry = Entry(latent, self._writes)
                self.latent[slots[position]], self.index[slots[position]] = entry, Entry(-latent, self._writes)
                written.append((slots[position], entry))
                if position >= start + count - logit_count:
                    rows.append(logits(digest))
        self.steps.append(tuple(written))
        result = torch.tensor(rows).reshape(-1, VOCABULARY)
        return result if self._hooks is None else self._hooks.spoil(batch, result, self)

    def _read(self, request: int, slots: list[int], own: tuple[int, ...] | None) -> int:
        """The digest of what the slots hold."""
        digest = 0
        for position, slot in enumerate(slots):
            latent, key = self.latent[slot], self.index[slot]
            if latent.write != key.write or latent.value != -key.value:
                self.broken.append(f"request {request}, position {position}: latent and index key are of two writes")
            if own is not None and latent.value != own[position]:
                self.broken.append(f"request {request}, position {position}: reads what was written for other tokens")
            digest = hash((digest, latent.value))
        return digest
