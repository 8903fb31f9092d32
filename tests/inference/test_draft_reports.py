"""Reports of drafts, wherever numbers leave the engine, and requests that get no drafts."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands import bench
from deepseek_v32.inference.commands.terminal import statistics
from deepseek_v32.inference.engine.drafting.policy import DraftPolicy
from deepseek_v32.inference.engine.drafting.speculation import Speculation
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.server.api.health import Measurements
from deepseek_v32.inference.server.api.metrics import Latencies
from deepseek_v32.inference.server.service.server_log import ServerLog
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.model.selection_policy import SelectionPolicy
from tiny_model.checkpoint import TINY, write_checkpoint

PROMPTS = [[(i * step + 5) % 16 for i in range(count)] for step, count in ((37, 3), (11, 50), (7, 30), (13, 18))]
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose vocabulary is so small that an untrained layer guesses some tokens."""
    directory = tmp_path_factory.mktemp("mtp")
    config = replace(TINY, num_hidden_layers=2, num_nextn_predict_layers=1, index_topk=16, vocab_size=16)
    write_checkpoint(directory, config, seed=1)
    return directory


@pytest.fixture
def llm(checkpoint: Path) -> Iterator[LLM]:
    with LLM(checkpoint, device="cpu", speculative_tokens=2) as llm:
        yield llm


def test_metrics_and_the_log_count_by_place(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="deepseek_v32")
    with Service(llm) as service:
        metrics = Measurements(service, Latencies())
        service.observe(ServerLog(service))
        answers = [list(service.stream(prompt, GREEDY))[-1].completion for prompt in PROMPTS]
        lines = dict(line.rsplit(" ", 1) for line in metrics.text().decode().splitlines() if line[0] != "#")
        engine = service.stats().engine
    guessed = [answer.timings.drafted_tokens for answer in answers if answer is not None]
    for name, counts in (("drafted", engine.drafted_tokens), ("accepted", engine.accepted_tokens)):
        told = [float(lines[f'deepseek_v32_{name}_tokens_total{{place="{place}"}}']) for place in (1, 2, 3, 4)]
        assert told == counts and told[0] >= told[1] > 0 == told[2] == told[3]
    assert 0 < sum(engine.accepted_tokens) < sum(engine.drafted_tokens)
    # Right drafts after an answer's end are accepted, but are not part of it.
    assert 0 < sum(guessed) <= sum(engine.accepted_tokens)
    messages = [record.getMessage() for record in caplog.records]
    for number in filter(None, guessed):
        assert any(f"24 generated ({number} guessed)" in message for message in messages)


def test_an_answer_says_how_many_of_its_tokens_were_guessed(llm: LLM) -> None:
    for answer in llm.generate(PROMPTS, GREEDY, inspect=True):
        assert answer.selection is not None and answer.recording is not None
        guessed = [number for number, each in enumerate(answer.selection) if each.drafted]
        assert len(guessed) == answer.timings.drafted_tokens and answer.recording.header()["drafted"] == guessed
        assert (f"({len(guessed)} guessed)" in statistics(answer)) == bool(guessed)


def test_bench_measures_them(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    row = bench.measure(llm, 20, 6, 24, 0)
    stats = llm.stats()
    assert row["drafted_tokens"] == sum(stats.drafted_tokens) > row["accepted_tokens"] == sum(stats.accepted_tokens) > 0
    bench.show(
        [{"prompt_tokens": 20, "batch": 6, **row}, {"prompt_tokens": 20, "batch": 6, **row, "drafted_tokens": 0}]
    )
    share = f"{row['accepted_tokens'] / row['drafted_tokens']:.0%}"
    assert share in capsys.readouterr().err


def test_requests_whose_next_tokens_may_not_be_guessed() -> None:
    """Requests with a grammar, a selection policy or one token are decoded as without a draft layer."""
    speculation = Speculation(DraftPolicy(3))
    plain = Request(0, (5,), GREEDY, 24, 0)
    others = {
        "grammar": Request(1, (5,), GREEDY, 24, 0, grammar=object()),  # type: ignore[arg-type]
        "policy": Request(2, (5,), GREEDY, 24, 0, policy=SelectionPolicy(0)),
        "one token": Request(3, (5,), GREEDY, 1, 0),
    }
    assert speculation._may_draft(plain)
    assert not [name for name, request in others.items() if speculation._may_draft(request)]


def test_an_experiment_next_to_a_request_with_drafts(checkpoint: Path, llm: LLM) -> None:
    """It has none, and changes nothing for its neighbour."""
    with LLM(checkpoint, device="cpu", speculative_tokens=0) as plain:
        [expected] = plain.generate(PROMPTS[1], GREEDY)
        [changed] = plain.generate(PROMPTS[0], GREEDY, policy=SelectionPolicy(0, topk=8))
    policies = (None, SelectionPolicy(0, topk=8))
    requests = [llm.requests.make_one(PROMPTS[1 - i], GREEDY, False, policy) for i, policy in enumerate(policies)]
    found = llm.driver.all(requests, False)
    assert [each.token_ids for each in found] == [expected.token_ids, changed.token_ids]
    assert found[0].timings.drafted_tokens > 0 == found[1].timings.drafted_tokens
