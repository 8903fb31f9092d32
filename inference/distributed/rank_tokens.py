"""Sends rank 0's tokens and drafts of a step, and drafting's inputs, to the other ranks' devices: only rank 0 samples."""

import torch
import torch.distributed as dist

from ..engine.running.runner import Runner
from ..engine.sampling.noise import DraftNoise
from ..engine.scheduling.batch import Batch
from ..engine.step import Choices


def broadcast_sampled_tokens(batch: Batch, runner: Runner) -> None:
    """Copy rank 0's staged tokens, or its drafts, to every rank's device, if the step takes tokens from there."""
    if batch.sampled_rows:
        dist.broadcast(runner.sampled, 0)
    if batch.draft_counts:
        dist.broadcast(runner.drafts, 0)


def empty_choices(batch: Batch, random: bool, device: torch.device) -> Choices:
    """Choices of the sizes that the batch tells, for rank 0's to be copied to."""
    rows, requests = sum(batch.logit_counts), len(batch.sampling)
    sampled, accepted, seeds, places = (
        torch.empty(count, dtype=torch.int64, device=device) for count in (rows, requests, requests, requests)
    )
    temperatures = torch.empty(requests, dtype=torch.float64, device=device)
    return Choices(sampled, accepted, DraftNoise(random, temperatures, seeds, places))


def share_choices(choices: Choices) -> Choices:
    sampled, accepted, (random, temperatures, seeds, places) = choices
    whole = torch.cat((sampled, accepted, seeds, places, temperatures.view(torch.int64)))
    if len(whole):
        dist.broadcast(whole, 0)
    rows, count = len(sampled), len(accepted)
    accepted, seeds, places, temperatures = whole[rows:].view(4, count).unbind()
    return Choices(whole[:rows], accepted, DraftNoise(random, temperatures.view(torch.float64), seeds, places))
