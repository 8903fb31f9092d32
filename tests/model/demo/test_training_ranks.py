"""Training on several ranks: each has batches of its own, gradients are means, and the weights stay the same everywhere."""

import argparse
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from deepseek_v32.inference.llm import DEMO
from demo_model.training import data
from demo_model.training.ranks import Ranks
from demo_model.training.schedule import Step
from demo_model.training.trainer import NotFittingError, Trainer
from support.forked_ranks import run_ranks

LENGTH = 64
STEPS = (Step("dense", LENGTH, 0.5, indexer=True), Step("sparse", LENGTH, 0.5, topk=16, indexer=True, sparse=True))


def trainer(out: Path) -> Trainer:
    return Trainer(
        argparse.Namespace(
            out=out, seed=3, scale=0.01, rate=1.0, tokens=LENGTH, device="cpu", checkpoint=DEMO, resume=False
        )
    )


def batch(own: Trainer, rank: int):
    return data.batch(Tokenizer.from_file(str(own.tokenizer_path)), f"ranks {rank}", LENGTH, 2, split="train")[:2]


def on_two_ranks(function, *arguments: object) -> None:
    """Run a function of this file in two processes."""
    paths = [str(Path(__file__).parent), *sys.path]
    call = f"{function.__name__}(*sys.argv[1:])"
    program = f"import sys\nsys.path[:0] = {paths}\nfrom {Path(__file__).stem} import *\n{call}"
    ended = run_ranks(2, program, *arguments)
    assert [end.code for end in ended] == [0, 0], [end.err[-2000:] for end in ended]


def train(folder: str) -> None:
    """Two steps of one of the ranks, and what they tell each other."""
    out, rank = Path(folder), Ranks(torch.device("cpu")).number
    own = trainer(out / str(rank))
    for step in STEPS:
        own.train_step(step, *batch(own, rank))
    assert own.ranks.of_first(float(rank), 7.5) == [0.0, 7.5]
    assert own.ranks.everywhere(True) and not own.ranks.everywhere(rank == 1)
    step = Step("dense", 2 * LENGTH, 0.5)  # only rank 1 lacks the memory for it
    if rank:
        own.recover(step, torch.OutOfMemoryError())
    else:
        with pytest.raises(NotFittingError, match="step of 128 tokens does not fit"):
            own._agree(step)
    with pytest.raises(RuntimeError, match=f"does not fit the memory of rank {rank}, as earlier ones did"):
        own.recover(STEPS[0], torch.OutOfMemoryError())  # the other rank waits, so the job must end
    torch.save(own.model.state_dict(), out / f"{rank}.pt")
    own.ranks.close()


@pytest.mark.slow
def test_two_ranks_take_the_mean_step_and_stay_alike(tmp_path):
    on_two_ranks(train, tmp_path)
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert all(torch.equal(one[name], other[name]) for name in one)
    single = trainer(tmp_path / "single")
    before = {name: value.clone() for name, value in single.model.state_dict().items()}
    for step in STEPS:
        single.train_step(step, *batch(single, 0))
    changed = [name for name, value in single.model.state_dict().items() if not torch.equal(value, before[name])]
    parted = [name for name in changed if not torch.equal(single.model.state_dict()[name], one[name])]
    assert len(changed) > 30 and len(parted) > 0.9 * len(changed), "the other rank's batch had no influence"


def test_one_rank_leaves_everything_as_it_is():
    ranks, value = Ranks(torch.device("cpu")), torch.ones(3)
    ranks.average([value])
    assert ranks.first and ranks.of_first(2.0) == [2.0] and ranks.everywhere(True) and not ranks.everywhere(False)
    assert value.tolist() == [1.0, 1.0, 1.0]


def mean() -> None:
    ranks = Ranks(torch.device("cpu"))
    rank = ranks.number
    given = [torch.full((2, 2), float(rank)), torch.tensor([4.0 * rank])]
    ranks.average(given)
    assert given[0].tolist() == [[0.5, 0.5], [0.5, 0.5]] and given[1].tolist() == [2.0]
    own = torch.tensor([float(rank)])
    ranks.copy_first([own])
    assert own.item() == 0.0
    ranks.close()


def test_gradients_are_averaged_and_weights_copied():
    on_two_ranks(mean)


def test_ranks_have_conversations_of_their_own():
    batches = [data.Batches(DEMO / "tokenizer.json", 1, [(256, 1)], 1, rank=rank) for rank in (0, 1)]
    try:
        first, second = (next(iter(each))[1] for each in batches)
    finally:
        for each in batches:
            each.close()
    assert (first != second).any()


def test_a_batch_that_cannot_be_generated_ends_the_training():
    """The training ends, because a rank that skipped the batch would meet another step's collectives."""
    batches = data.Batches(DEMO / "tokenizer.json", 1, [(256, 1)], 1, nonsense=True)
    try:
        with pytest.raises(RuntimeError, match="batch 0 could not be generated in 8 attempts"):
            next(iter(batches))
    finally:
        batches.close()
