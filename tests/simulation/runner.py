"""Stands in for the runner: caches of integers, with a check of every entry that a step reads."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from deepseek_v32.inference.config import MAX_DRAFT_TOKENS
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running.selection import SelectionRecorder
from deepseek_v32.inference.engine.sampling.graph_tokens import GreedySample
from deepseek_v32.inference.engine.sampling.noise import DraftNoise
from deepseek_v32.inference.engine.sampling.sampler import sample_tokens
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.step import Choices, Share, Step
from simulation.model import ORDINARY, VOCABULARY, WRONG, draft_chain, extend, extend_draft, latents, logits


class Hooks(Protocol):
    """The simulation's side of a step: each is a place where other threads may run, and where a fault may strike."""

    def forward(self, batch: Batch) -> tuple[int, Exception] | None: ...

    def spoil(self, batch: Batch, logits: torch.Tensor, runner: "SimulatedRunner") -> torch.Tensor: ...

    def stage(self) -> None: ...

    def draft(self) -> None: ...


class Entry(NamedTuple):
    """A number in a cache, and the write that it comes from: latent and index key of a token come from the same one."""

    value: int
    write: int


UNWRITTEN = Entry(0, -1)


class Made(NamedTuple):
    """The origin of a request's drafts."""

    request: int  # its id
    position: int  # of the first draft
    sound: bool  # every entry that was read is the draft layer's for the request's own tokens
    sure: int  # how many of the first drafts are what the model itself would choose


class Computed(NamedTuple):
    """The data that the draft layer needs of a request's part of a step."""

    request: Request
    start: int
    first: int  # its first new token, which may not have reached the host
    slots: list[int]  # of all its tokens
    digests: list[int]  # what the hidden states of the new tokens stand for
    logit_count: int
    draft_count: int
    made: Made | None  # the drafts that were verified


class SimulatedGreedy(NamedTuple):
    """Stands in for GreedyTokens: the tokens that a step has found, row by row."""

    tokens: list[int]
    largest: list[float]
    given: list[int]

    def sample(self, requests: Sequence[Request], counts: Sequence[int]) -> GreedySample:
        values = np.zeros((3, len(self.tokens)), dtype=np.int64)
        values[0], values[2] = self.tokens, self.given
        values[1].view(np.float32)[: len(self.tokens)] = self.largest
        return GreedySample(requests, counts, values, None)

    def count_accepted(self, counts: Sequence[int]) -> list[int]:
        found, first = [], 0
        for count in counts:
            right = 0
            while right + 1 < count and self.given[first + right + 1] == self.tokens[first + right]:
                right += 1
            found.append(right)
            first += count
        return found


class SimulatedRunner:
    """A ModelRunner. The device works in order, so a step's reads and writes happen when it is launched.

    A step may compute any number of tokens of a request and give logits after any number of the last ones, also after drafts. The
    draft layer knows the model: its guesses are what the model would choose, but for one in four.
    """

    def __init__(
        self,
        page_count: int,
        page_size: int,
        max_sequences: int,
        ahead: bool,
        hooks: Hooks | None = None,
        drafts: bool = False,
    ) -> None:
        """ahead: whether steps may be launched before the tokens of the step before are read. hooks: None on a follower.

        drafts: whether there is a draft layer.
        """
        self.supports_async_scheduling = ahead
        self.max_draft_tokens = MAX_DRAFT_TOKENS if drafts else 0
        self.device = torch.device("cpu")
        self.page_size = page_size
        self.latent = [UNWRITTEN] * (page_count * page_size)
        self.index = [UNWRITTEN] * (page_count * page_size)
        self.layer = [0] * (page_count * page_size)  # the draft layer's cache
        self.sampled = [0] * max_sequences
        self.drafts = torch.zeros(max_sequences, MAX_DRAFT_TOKENS, dtype=torch.int64)
        self.steps: list[tuple[tuple[int, Entry], ...]] = []  # by step: what it wrote to which slot
        self.broken: list[str] = []
        self.writable: Callable[[int], bool] = lambda page: True  # whether a step may write to a page
        self.ill: set[int] = set()  # requests whose entries are garbage, by an injected fault
        self._writes = 0
        self._hooks = hooks
        self._made: list[Made] = []  # by row of `drafts`

    def is_quick(self, batch: Batch) -> bool:
        return True

    def plan(self, batch: Batch) -> tuple[()]:
        return ()

    def errors(self, requests: Sequence[Request]) -> dict[int, str]:
        return {}

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        if self._hooks is not None:
            self._hooks.stage()
        self.sampled[: len(tokens)] = tokens.tolist()

    def run(
        self,
        batch: Batch,
        recorder: SelectionRecorder | None = None,
        plans: object = None,
        share: Share | None = None,
    ) -> "SimulatedStep":
        failing = None if self._hooks is None else self._hooks.forward(batch)
        rows: list[list[float]] = []
        written: list[tuple[int, Entry]] = []
        given: list[int] = []
        computed: list[Computed] = []
        for i, (request, start, count, logit_count) in enumerate(
            zip(batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True)
        ):
            draft_count = batch.draft_counts[i] if batch.draft_counts else 0
            tokens = request.tokens[start : start + count - draft_count]
            if batch.sampled_rows:
                tokens = [self.sampled[batch.sampled_rows[i]]]
            made = None
            if draft_count:
                tokens = tokens + self.drafts[batch.draft_rows[i], :draft_count].tolist()
                made = self._used(request, start, batch.draft_rows[i])
            size = self.page_size
            slots = [page * size + offset for page in request.cache.pages for offset in range(size)][: start + count]
            if len(slots) != start + count or len(tokens) != count:
                self.broken.append(f"request {request.id}: {len(slots)} slots, {len(tokens)} tokens of {start}+{count}")
                continue
            for page in request.cache.pages[start // size : (start + count - 1) // size + 1]:
                if not self.writable(page):
                    self.broken.append(f"request {request.id} overwrites page {page}, which others may read")
            # A follower is told only the new tokens.
            check = self._hooks is not None and request.id not in self.ill
            altered = ORDINARY if request.policy is None else request.policy.start
            own = latents(tuple(request.tokens[:start]), altered) if check else None
            digest = self._read(request.id, slots[:start], own)
            digests = []
            for position, token in enumerate(tokens, start):
                latent, digest = extend(digest, token, position, altered)
                self._writes += 1
                entry = Entry(latent, self._writes)
                self.latent[slots[position]], self.index[slots[position]] = entry, Entry(-latent, self._writes)
                written.append((slots[position], entry))
                digests.append(digest)
                if position >= start + count - logit_count:
                    rows.append(logits(digest))
                    given.append(token)
            if failing is not None and failing[0] == i:  # some layers have written the last entry, others have not
                self.index[slots[start + count - 1]] = UNWRITTEN
                raise failing[1]
            computed.append(Computed(request, start, tokens[0], slots, digests, logit_count, draft_count, made))
        self.steps.append(tuple(written))
        result = torch.tensor(rows).reshape(-1, VOCABULARY)
        if self._hooks is not None:
            result = self._hooks.spoil(batch, result, self)
        found = self._find_greedy(batch, result, given)
        return SimulatedStep(self, batch, result, recorder, found, computed, share)

    def _find_greedy(self, batch: Batch, logits: torch.Tensor, given: list[int]) -> "SimulatedGreedy | None":
        """Find and stage the likeliest tokens as decode graphs do. Every second step of decodes has no graph."""
        in_graph = self.supports_async_scheduling and all(batch.logit_counts) and batch.decodes == len(batch.requests)
        if not in_graph or not isinstance(logits, torch.Tensor) or sum(batch.starts) % 2:
            return None
        found = SimulatedGreedy(logits.argmax(-1).tolist(), logits.amax(-1).tolist(), given)
        staged = found.tokens[: len(self.sampled)]
        self.sampled[: len(staged)] = staged
        return found

    def draft(self, step: "SimulatedStep", choices: Choices) -> None:
        if self._hooks is not None:
            self._hooks.draft()
        sampled, accepted, noise = choices
        batch = step.batch
        tokens, kept = sampled.tolist(), accepted.tolist()
        last: list[
            tuple[Computed, int, int, int, bool]
        ] = []  # of each sampling request: position, token, digest, sound
        row = 0
        for part in step.computed[: batch.draft_entries]:
            following = tokens[row : row + part.logit_count]
            row += part.logit_count
            if part.logit_count:
                right = kept[len(last)]
                self._check_accepted(part, right)
                at = part.start + len(part.digests) - part.logit_count + right
            for_prompt = len(part.digests) - part.logit_count
            following = part.request.tokens[part.start + 1 : part.start + 1 + for_prompt] + following
            digest, found = 0, [self.layer[slot] for slot in part.slots[: part.start]]
            for latent in found:
                digest = hash((digest, latent))
            sound = found == expected_drafts([*part.request.tokens[: part.start], part.first]) or self._hooks is None
            for position, (token, hidden) in enumerate(zip(following, part.digests, strict=True), part.start):
                self.layer[part.slots[position]], digest = extend_draft(digest, token, hidden, position)
                if part.logit_count and position == at:
                    last.append((part, position, token, digest, sound))
        self._guess(batch.draft_tokens or 0, last, accepted, noise)

    def _guess(
        self, count: int, last: list[tuple[Computed, int, int, int, bool]], accepted: torch.Tensor, noise: DraftNoise
    ) -> None:
        if not count or not last:
            return
        # The model's digests after the sampled token and the guesses so far.
        digests = [extend(step.digests[at - step.start], token, at + 1)[1] for step, at, token, _, _ in last]
        sure = [0] * len(last)
        for number in range(count):
            scores = [logits(digest) for digest in digests]
            if noise.random:
                guesses = noise.choose(torch.tensor(scores), accepted, number + 1).tolist()
            else:
                guesses = [row.index(max(row)) for row in scores]
            for row, (step, at, _, own, _) in enumerate(last):
                if hash((own, number)) % 4 == 0:
                    guesses[row] = hash((own, number, WRONG)) % VOCABULARY
                elif sure[row] == number:
                    sure[row] += 1
                digests[row] = extend(digests[row], guesses[row], at + 2 + number)[1]
                place = at + number  # that this pass writes, to be written over
                page = place // self.page_size
                if number > 0 and page < len(step.request.cache.pages):
                    if not self.writable(step.request.cache.pages[page]):
                        self.broken.append(f"drafts of request {step.request.id} overwrite what others may read")
                    self.layer[step.request.cache.pages[page] * self.page_size + place % self.page_size] = -place
            self.drafts[: len(last), number] = torch.tensor(guesses)
        self._made = [
            Made(step.request.id, at + 2, sound, sure[row]) for row, (step, at, _, _, sound) in enumerate(last)
        ]

    def _used(self, request: Request, start: int, row: int) -> Made | None:
        """The drafts in a row of the table, which a step verifies after the token at `start`."""
        made = self._made[row]
        if self._hooks is None or request.id in self.ill:
            return made
        if (made.request, made.position) != (request.id, start + 1):
            self.broken.append(
                f"request {request.id}, position {start}: the drafts are {made.request}'s, {made.position}"
            )
        if not made.sound:
            self.broken.append(f"request {request.id}, position {start}: drafts from what was written for other tokens")
        return made

    def _check_accepted(self, step: Computed, accepted: int) -> None:
        """A draft that the model itself would choose is not rejected."""
        ill = self._hooks is None or step.request.id in self.ill or step.request.params.penalised
        if not accepted <= step.draft_count or (
            step.made is not None and not ill and accepted < min(step.made.sure, step.draft_count)
        ):
            self.broken.append(f"request {step.request.id}: {accepted} of {step.draft_count} drafts accepted")

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


class SimulatedStep(Step):
    """A step of a SimulatedRunner. It is sampled as the product samples."""

    def __init__(
        self,
        runner: SimulatedRunner,
        batch: Batch,
        logits: torch.Tensor,
        recorder: SelectionRecorder | None,
        found: Any,  # SimulatedGreedy, in place of GreedyTokens
        computed: list[Computed],
        share: Share | None,
    ) -> None:
        super().__init__(
            runner, batch, logits, recorder or (SelectionRecorder(batch) if batch.is_inspected else None), found, share
        )
        self.simulated, self.found, self.computed = runner, found, computed

    def _draft(self, choices: Choices | None) -> None:
        self.simulated.draft(self, choices or self.choices())
        self.computed = []

    def _likeliest_choices(self) -> Choices:
        assert self.found is not None
        accepted = torch.tensor(self.found.count_accepted(self.batch.counts))
        zeros = torch.zeros_like(accepted)
        return Choices(torch.tensor(self.found.tokens), accepted, DraftNoise(False, zeros.double(), zeros, zeros))

    def _sample_in_graph(self) -> GreedySample:
        """As graphs do, which write over the likeliest tokens and stage the new ones."""
        assert self.found is not None
        tokens = sample_tokens(self.logits, self.requests).tokens
        self.simulated.stage_tokens(tokens)
        return self.found._replace(tokens=tokens.tolist()).sample(self.requests, (1,) * len(self.requests))


def expected_drafts(tokens: list[int]) -> list[int]:
    """The draft layer's entries of all tokens but the last."""
    return [draft_chain(tuple(tokens[:end]))[0] for end in range(2, len(tokens) + 1)]
