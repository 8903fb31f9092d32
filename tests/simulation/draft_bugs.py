"""Mistakes that speculative decoding invites, each seeded in this engine by a wrong method."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from deepseek_v32.inference.distributed import batch_sync
from deepseek_v32.inference.engine.drafting.speculation import Speculation
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.request_state import RequestState
from deepseek_v32.inference.engine.sampling import sampler
from deepseek_v32.inference.engine.sampling.noise import DraftNoise
from deepseek_v32.inference.engine.sampling.sampler import Drafts
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler
from simulation.bug import Bug, bug


def ends(batch: Batch) -> Iterator[tuple[Request, int]]:
    """Each request, and the position after what the step has written for it, drafts included."""
    for request, start, count in zip(batch.requests, batch.starts, batch.counts, strict=True):
        yield request, start + count


@bug("rejected", Speculation, "commit")
def rejected_are_kept(right: Any) -> Any:
    """Entries of rejected drafts are kept as if they were the tokens'."""

    def commit(speculation: Speculation, batch: Batch, drafted: bool) -> None:
        right(speculation, batch, drafted)
        for (request, end), drafts in zip(ends(batch), batch.draft_counts, strict=False):
            if drafts and request.cache.pages:
                request.cache.computed = end

    return commit


@bug("early", Scheduler, "commit")
def offered_before_accepted(right: Any) -> Any:
    """A page is offered for reuse before its drafts are accepted."""

    def commit(scheduler: Scheduler, batch: Batch, drafted: bool = False) -> None:
        written, register = dict(ends(batch)), scheduler._register
        with patch.object(scheduler, "_register", lambda request, computed: register(request, written[request])):
            right(scheduler, batch, drafted)

    return commit


@bug("following", PagePool, "_entry")
def following_is_ignored(right: Any) -> Any:
    """A reused page is good for drafts whatever token follows it."""

    def entry(pool: PagePool, prefix_id: int, tokens: tuple[int, ...], end: int) -> Any:
        found, _ = right(pool, prefix_id, tokens, end)
        return found, pool.drafts and end < len(tokens)

    return entry


@bug("gap of the layer", Speculation, "commit")
def gap_of_the_layer_is_ignored(right: Any) -> Any:
    """Drafts are made although a step has passed without the draft layer."""

    def commit(speculation: Speculation, batch: Batch, drafted: bool) -> None:
        if drafted:
            for request, start in zip(batch.requests[: batch.draft_entries], batch.starts, strict=False):
                request.cache.drafted = start
        right(speculation, batch, drafted)

    return commit


@bug("left out", Speculation, "commit")
def left_out_counts(right: Any) -> Any:
    """Prompts that the draft layer has left out count as gone over."""
    return lambda speculation, batch, drafted: right(speculation, replace(batch, draft_entries=None), drafted)


@bug("noise", sampler, "noise_key")
def same_noise(right: Any) -> Any:
    """The tokens after drafts are drawn with the first one's noise."""
    return lambda row: right(row._replace(offset=0))


@bug("own noise", DraftNoise, "choose")
def other_noise(right: Any) -> Any:
    """Drafts are drawn with other noise than the tokens."""
    return lambda noise, logits, accepted=0, number=0: right(noise, logits, accepted, number + 1)


@bug("another's", Speculation, "commit")
def drafts_of_another(right: Any) -> Any:
    """A request verifies the drafts of another one."""

    def commit(speculation: Speculation, batch: Batch, drafted: bool) -> None:
        right(speculation, batch, drafted)
        speculation.made = {request: (0, count) for request, (_, count) in speculation.made.items()}

    return commit


@bug("forgotten", Speculation, "commit")
def drafts_outlive_tokens(right: Any) -> Any:
    """Drafts outlive the tokens that they follow."""

    def commit(speculation: Speculation, batch: Batch, drafted: bool) -> None:
        made = speculation.made
        right(speculation, batch, drafted)
        speculation.made = made | speculation.made

    return commit


@bug("penalties", sampler, "penalise")
def drafts_are_not_penalised(right: Any) -> Any:
    """Penalties do not count the drafts before a row."""
    return lambda logits, rows: right(logits, [row._replace(drafts=None) for row in rows])


@bug("gap", sampler, "_count_accepted")
def accepted_after_a_wrong_one(right: Any) -> Any:
    """Drafts after a wrong one are accepted."""

    def count_accepted(tokens: torch.Tensor, drafts: Drafts) -> torch.Tensor:
        own = tokens.split([count + 1 for count in drafts.counts])
        return torch.stack(
            [(each[:-1] == row[: len(each) - 1]).sum() for each, row in zip(own, drafts.tokens, strict=True)]
        )

    return count_accepted


@bug("end", Engine, "_push")
def goes_on_after_its_end(right: Any) -> Any:
    """An answer goes on after its end."""

    def push(engine: Engine, state: RequestState, samples: Any, recorder: Any) -> None:
        for offset, sample in enumerate(samples):
            engine._deltas.append(state.push(sample, recorder, offset))

    return push


@bug("prompt", batch_sync, "_is_followed")
def next_token_is_not_sent(right: Any) -> Any:
    """Other ranks do not know the token after a chunk of a prompt."""
    return lambda *arguments: False


DRAFT_BUGS = tuple(each for each in vars().values() if isinstance(each, Bug))
