"""The runner's drafts equal the same passes over a single sequence, and the caches stay right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running.selection import SelectionRecorder
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.config import Precision
from deepseek_v32.model.transformer import Transformer
from support.drafting import PAGES, Driver, make_requests, make_runner
from tiny_model.checkpoint import TINY, write_checkpoint

CONFIG = replace(TINY, num_hidden_layers=2, num_nextn_predict_layers=1, index_topk=16)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mtp")
    write_checkpoint(directory, CONFIG)
    return directory


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Transformer:
    return load_model(checkpoint, "exact", mtp=True)


def drafts_of_one(model: Transformer, request: Request, drafts: int) -> list[int]:
    """The drafts after all of a request's tokens, computed by a runner of its own in one step."""
    single = whole_prompt(request)
    driver = Driver(make_runner(model, 1), [single])
    batch = Batch.of([(single, len(single.prompt))])
    made: list[int] = driver.step(batch, [request.tokens[-1]], [0], drafts)[0].tolist()
    return made


def whole_prompt(request: Request) -> Request:
    """A request whose prompt is all that this one has cached."""
    whole = Request(0, tuple(request.tokens[:-1]), SamplingParams(), max_tokens=50, seed=0)
    whole.cache.pages = [5, 3, 8, 6, 10]
    return whole


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_drafts_after_prompts(model: Transformer, chunk: int) -> None:
    driver = Driver(make_runner(model), make_requests(CONFIG.vocab_size))
    made = driver.prompts(chunk, 3)
    assert made.tolist() == [drafts_of_one(model, each, 3) for each in driver.requests]


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
@pytest.mark.parametrize("sequences", [3, 5])
def test_drafts_after_verification(model: Transformer, graphs: bool, sequences: int) -> None:
    """Some drafts are right and some wrong, another number for each request, and the table's rows in another order."""
    driver = Driver(make_runner(model, sequences, graphs), make_requests(CONFIG.vocab_size))
    first = driver.prompts(40, 4)
    # All of the first request's drafts are right, one of the second's, none of the third's.
    driver.runner.drafts[:3] = first
    answers = [[*first[0].tolist(), 9], [first[1, 0].item(), 8, 7], [6, 5, 4]]
    made = driver.verify([0, 1, 2], answers, [4, 1, 0], 3)
    assert made.tolist() == [drafts_of_one(model, each, 3) for each in driver.requests]
    # What the rejected drafts have left is written over: the next drafts are as good.
    driver.runner.drafts[:3, :3] = made[[2, 0, 1]]
    answers = [[made[0, 0].item(), 1], [2], [made[2, 0].item(), made[2, 1].item(), 11, 12]]
    made = driver.verify([1, 2, 0], answers, [1, 0, 2], 4)
    assert made.tolist() == [drafts_of_one(model, each, 4) for each in driver.requests]


def test_drafts_while_selections_are_recorded_now_and_then(model: Transformer) -> None:
    """Steps that record have graphs and inputs of their own; the draft layer's passes after them read those."""
    driver = Driver(make_runner(model, 3, graphs=True), make_requests(CONFIG.vocab_size))
    made = driver.prompts(40, 2)
    for recorder in (None, SelectionRecorder(Batch((), (), (), 0, ())), None):
        driver.recorder = recorder
        driver.runner.drafts[:3, :2] = made
        made = driver.verify([0, 1, 2], [[*row.tolist(), 9] for row in made], [2, 2, 2], 2)
        assert made.tolist() == [drafts_of_one(model, each, 2) for each in driver.requests]


def test_no_step_captures_two_graphs(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of its size has no graph, nor have its drafts; then comes the step's, and then the draft layer's."""
    driver = Driver(make_runner(model, 3, graphs=True), make_requests(CONFIG.vocab_size))
    made, captured = driver.prompts(40, 2), []
    graphs = driver.runner.graphs
    assert graphs is not None
    capture = graphs.capture

    def counted(step: Any) -> Any:
        captured[-1] += 1
        return capture(step)

    monkeypatch.setattr(graphs, "capture", counted)
    for _ in range(4):
        captured.append(0)
        driver.runner.drafts[:3, :2] = made
        made = driver.verify([0, 1, 2], [[*row.tolist(), 9] for row in made], [2, 2, 2], 2)
        assert made.tolist() == [drafts_of_one(model, each, 2) for each in driver.requests]
    assert captured == [0, 1, 1, 0]


@pytest.mark.parametrize("precision", ["exact", "fp8"])
def test_verified_rows_are_those_of_decodes(checkpoint: Path, precision: Precision) -> None:
    """A step of several rows a request has the logits of steps of one row."""
    model = load_model(checkpoint, precision, mtp=True)
    driver = Driver(make_runner(model), make_requests(CONFIG.vocab_size))
    first = driver.prompts(40, 3)
    driver.runner.drafts[:3, :3] = first
    answers = [[*row.tolist(), 1] for row in first]
    before = [list(each.tokens) for each in driver.requests]
    driver.verify([0, 1, 2], answers, [3, 3, 3], 0)
    logits = driver.logits.unflatten(0, (3, 4))
    plain = Driver(make_runner(model), make_requests(CONFIG.vocab_size))
    plain.prompts(40, 0)
    assert [each.tokens for each in plain.requests] == before
    for number in range(4):
        plain.verify([0, 1, 2], [[answer[number]] for answer in answers], [0, 0, 0], 0)
        torch.testing.assert_close(plain.logits, logits[:, number], rtol=1e-5, atol=1e-5)
        assert plain.logits.argmax(-1).tolist() == logits[:, number].argmax(-1).tolist()


def test_drafts_next_to_prompts_that_are_left_out(model: Transformer) -> None:
    """A step of a decode that verifies drafts, a prompt's end, and a chunk inside of another prompt, which has no entries."""
    first, second, third = make_requests(CONFIG.vocab_size)
    driver = Driver(make_runner(model), [first])
    driver.runner.drafts[:1] = driver.prompts(40, 2)[:, :1].expand(1, 4)
    batch = replace(
        Batch.of([(first, 1), (second, second.remaining), (third, 40)]),
        counts=(2, second.remaining, 40),
        logit_counts=(2, 1, 0),
        draft_counts=(1, 0, 0),
        draft_rows=(0, 0, 0),
        draft_entries=2,
    )
    right = driver.runner.drafts[0, 0].item()
    made = driver.step(batch, [right, 9, 8], [1, 0], 3)
    first.tokens += [right, 9]
    second.tokens.append(8)
    assert made.tolist() == [drafts_of_one(model, each, 3) for each in (first, second)]
    assert driver.runner.caches[-1].latent[third.cache.pages].isnan().all()
    assert not driver.runner.caches[0].latent[third.cache.pages[0], :40].isnan().any()


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def test_drafts_past_a_requests_pages(model: Transformer, graphs: bool) -> None:
    """Passes after its last page write to the scratch page, and no other request's entries change."""
    requests = make_requests(CONFIG.vocab_size)
    driver = Driver(make_runner(model, 5, graphs), requests)
    driver.prompts(1000, 1)
    requests[2].cache.pages += [5, 6]  # more than it needs
    driver.requests = requests[::-1]  # so that in a graph, the next step finds another request's pages in its rows
    driver.verify([0, 1, 2], [[1], [1], [1]], [0, 0, 0], 0)
    driver.requests = requests
    # The first request computes position 190 next: its last draft lies in a page that it lacks.
    requests[0].tokens += [7] * (190 - requests[0].cache.computed)
    missing = requests[0].remaining - 1
    driver.step(replace(Batch.of([(requests[0], missing)]), logit_counts=(0,)), [], [], 0)
    requests[0].cache.computed += missing
    caches = driver.runner.caches
    before = [[tensor.clone() for tensor in (cache.latent, cache.index)] for cache in caches]
    driver.verify([0, 1, 2], [[1], [1], [1]], [0, 0, 0], 4)
    written = {request.cache.pages[(request.cache.computed - 1) // 64] for request in requests}
    for cache, tensors in zip(caches, before, strict=True):
        for tensor, old in zip((cache.latent, cache.index), tensors, strict=True):
            same = [torch.equal(tensor[p].view(torch.uint8), old[p].view(torch.uint8)) for p in range(PAGES)]
            assert {page for page, equal in enumerate(same) if not equal} <= written


def test_numbers_of_drafts_that_change_share_graphs(model: Transformer) -> None:
    """A step uses the graphs for the drafts that it verifies or makes, whichever are more. Drafts stay as good."""
    driver = Driver(make_runner(model, 5, graphs=True), make_requests(CONFIG.vocab_size))
    runner, made = driver.runner, driver.prompts(40, 2)
    assert runner.graphs is not None
    for drafts in (4, 1, 4, 2, 0):
        runner.drafts[:3, : made.shape[1]] = made
        made = driver.verify([0, 1, 2], [[*row.tolist(), 9] for row in made], [made.shape[1]] * 3, drafts)
        assert made.tolist() == [drafts_of_one(model, each, drafts) for each in driver.requests]
    # The steps had 4, 4, 4, 4 and 2 drafts. Four requests have the graphs of three.
    assert runner.graphs.captured == 1


@pytest.mark.parametrize("refused", [1, 2], ids=["step", "passes"])
def test_drafts_are_right_where_graphs_are_given_up(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Drafts stay right when a GPU's memory is full: each step is captured at most twice."""
    driver = Driver(make_runner(model, 3, graphs=True), make_requests(CONFIG.vocab_size))
    runner, made = driver.runner, driver.prompts(40, 2)
    assert runner.graphs is not None
    capture, steps, refusals = runner.graphs.capture, list[Any](), list[Any]()

    def refuse(step: Any) -> Any:
        if step not in steps:
            steps.append(step)
        if steps.index(step) == refused - 1:
            refusals.append(step)
            raise RuntimeError("CUDA out of memory")
        return capture(step)

    monkeypatch.setattr(runner.graphs, "capture", refuse)
    for _ in range(5):
        runner.drafts[:3, :2] = made
        made = driver.verify([0, 1, 2], [[*row.tolist(), 9] for row in made], [2, 2, 2], 2)
        assert made.tolist() == [drafts_of_one(model, each, 2) for each in driver.requests]
    assert len(steps) == refused and len(refusals) == 2
