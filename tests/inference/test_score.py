"""`score`: many texts in few steps, each with the log-probabilities of transformers' model; bad lines, faults and interruptions."""

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands import cli, loading
from deepseek_v32.inference.engine.running.scoring import Text, prompt_steps, score_texts
from deepseek_v32.model import transformer
from support.chain_model import make_llm
from support.fake_model import NAN, RAISE, fake_llm
from support.oracle import Case, decisive_case, oracle_logits, random_tokens

Run = Callable[..., Result]
CHAIN = make_llm(("</think>", "Hey 🙂, two"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command with this model and these lines, objects or texts; `*options` follow."""

    def run(llm: LLM, lines: list[Any], *options: object) -> Result:
        monkeypatch.setattr(loading, "load_llm", lambda *_, **__: llm)
        path = tmp_path / "in.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return CliRunner().invoke(cli.app, ["score", str(path), *map(str, options)])

    return run


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def steps_of(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each step that runs from now on."""
    counts: list[int] = []
    runner = llm.engine.runner
    whole = runner.run
    monkeypatch.setattr(runner, "run", lambda batch, *rest: counts.append(batch.tokens) or whole(batch, *rest))
    return counts


def scored(llm: LLM, prompts: list[list[int]]) -> list[Text]:
    requests = [llm.requests.from_tokens(prompt, min_new_tokens=0) for prompt in prompts]
    with llm.driver.engine() as engine:
        return list(score_texts(engine, (Text(request, len(request.tokens) - 1) for request in requests)))


LENGTHS = [(2, 0), (70, 0), (25, 9), (1, 1), (130, 40), (3, 3)]  # of a text, and of an answer that follows
TEXTS = [random_tokens(text + answer, 80 + text) for text, answer in LENGTHS]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """transformers' model, and its checkpoint."""
    directory = tmp_path_factory.mktemp("score")
    model, _ = decisive_case(Case("score", 80), directory, lambda llm: scored(llm, TEXTS), page_count=12)
    return model, max(directory.iterdir(), key=lambda path: int(path.name))


@pytest.mark.parametrize("room", [300, 64, 1])
def test_scores_are_those_of_transformers(
    room: int, run: Run, oracle: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps that hold all texts at once, that cut them, and of one token; the logits in parts of at most 64 rows."""
    llm = LLM(oracle[1], device="cpu", precision="exact", page_count=12, max_batch_tokens=room)
    counts, parts, head = steps_of(llm, monkeypatch), list[int](), llm.model.lm_head.logits  # type: ignore[attr-defined]
    monkeypatch.setattr(transformer, "LOGIT_BYTES", 0)
    monkeypatch.setattr(llm.model.lm_head, "logits", lambda h: parts.append(len(h)) or head(h))  # type: ignore[attr-defined]
    lines = [
        {"id": i, "tokens": tokens[:text], **({"answer": tokens[text:]} if answer else {})}
        for i, (tokens, (text, answer)) in enumerate(zip(TEXTS, LENGTHS, strict=True))
    ]
    result = run(llm, lines)
    assert result.exit_code == 0, result.output
    found = {record["id"]: record for record in records(result.stdout)}
    total, tokens, right = 0.0, 0, 0
    for i, (text, answer) in enumerate(LENGTHS):
        rows = oracle_logits(oracle[0], TEXTS[i])[(text if answer else 1) - 1 : -1].log_softmax(-1)
        expected = rows.gather(1, torch.tensor(TEXTS[i][-len(rows) :])[:, None])[:, 0]
        got = found[i]
        assert got["tokens"] == TEXTS[i][-len(rows) :]
        assert torch.allclose(torch.tensor(got["logprobs"]), expected, atol=1e-4)
        agrees = int((rows.argmax(-1) == torch.tensor(got["tokens"])).sum())
        assert got["agreement"] == pytest.approx(agrees / len(rows))
        assert got["sum"] == pytest.approx(float(expected.sum()), rel=1e-4)
        assert got["perplexity"] == pytest.approx(math.exp(-float(expected.mean())), rel=1e-3)
        total, tokens, right = total + float(expected.sum()), tokens + len(rows), right + agrees
    assert f"perplexity {math.exp(-total / tokens):.2f}" in result.stderr and f"{tokens:,} tokens" in result.stderr
    assert f"{right / tokens:.2%}" in result.stderr
    assert len(counts) == -(-sum(len(each) - 1 for each in TEXTS) // room) and max(parts) <= 64
    assert llm.engine.pool.used == 0


def test_offloaded_experts_give_the_same_scores(run: Run, oracle: tuple[Any, Path]) -> None:
    lines = [{"id": i, "tokens": tokens} for i, tokens in enumerate(TEXTS)]
    options: dict[str, Any] = {"device": "cpu", "page_count": 12, "max_batch_tokens": 64}
    resident, offloaded = LLM(oracle[1], **options), LLM(oracle[1], **options, offload="experts", expert_slots=2)
    assert run(offloaded, lines).stdout == run(resident, lines).stdout


def test_few_pages_and_places_give_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the whole logits of each text by itself, while a stream is open whose pages are taken."""
    prompts = [
        [(i * step + 5) % 200 for i in range(count)] for step, count in ((3, 150), (7, 2), (5, 65), (11, 90), (1, 30))
    ]
    llm = fake_llm(page_count=4, max_model_len=200, max_sequences=2, max_batch_tokens=1000)
    stream = llm.stream([1] * 100, SamplingParams(temperature=0, max_tokens=9, ignore_eos=True))
    first = next(stream)
    counts = steps_of(llm, monkeypatch)
    texts = scored(llm, prompts)
    assert [len(text.scores) for text in texts] == [len(prompt) - 1 for prompt in prompts]
    assert counts == [150, 153, 29]  # two texts a step at most; 65 and 90 tokens take four pages
    for prompt, text in zip(prompts, texts, strict=True):
        expected = fake_llm().logits(prompt).log_softmax(-1)
        assert [each.logprob for each in text.scores] == pytest.approx(
            [float(row[token]) for row, token in zip(expected, prompt[1:], strict=False)], abs=1e-5
        )
    assert (first, *stream)[-1].finish_reason == "length" and llm.engine.pool.used == 0


def test_a_failure_ends_the_texts_of_its_step() -> None:
    llm = fake_llm(max_batch_tokens=64)
    prompts = [[1] * 30, [2] * 20, [3, RAISE, 3, 3], [4] * 70, [5, NAN, 5], [6, 7]]
    texts = scored(llm, prompts)
    errors = [str(text.error or "") for text in sorted(texts, key=lambda text: text.request.id)]
    told, nan = (
        "the model was told to fail\nwith a second line",
        "the model's logits for the prompt are not finite numbers",
    )
    assert errors == [told, told, told, told, nan, ""]
    assert all(len(text.scores) == len(text.request.tokens) - 1 for text in texts[4:]) and llm.engine.pool.used == 0


def test_pages_return_when_the_caller_leaves() -> None:
    llm = fake_llm(max_batch_tokens=16)
    request = llm.requests.from_tokens([1] * 40)
    with llm.driver.engine() as engine:
        steps = prompt_steps(engine, [Text(request, 40)], 16)
        next(steps)
        assert engine.pool.used == 1
        steps.close()
        assert engine.pool.used == 0


BAD = [
    ("{", "not valid JSON"),
    ("[]", "not a JSON object"),
    ({"tokens": [1]}, "the text has 1 tokens; expected at least 2"),
    ({"tokens": [1, 10**9]}, "tokens holds token id 1000000000 at position 1; expected ids of the vocabulary"),
    ({"tokens": [1, "a"]}, "expected"),
    ({"tokens": [1, 2], "answer": []}, "answer is empty; expected at least 1 token"),
    ({"tokens": [1, 2], "answer": 3}, "answer is 3; expected a str or a list"),
    ({"tokens": [3] * 600}, "has 600 tokens; expected at most 512"),
    ({"text": "a", "tokens": [1, 2]}, "expected one of"),
    ({"text": "a", "temperature": 1}, "key is 'temperature'; expected one of id"),
    ({"text": ""}, ": text is empty; expected at least 1 character"),
    ({"text": "\ud800"}, ": text holds half of a surrogate pair; expected Unicode text"),
    ({"text": "a", "answer": "\ud800"}, ": text holds half of a surrogate pair"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, ": text holds half of a surrogate pair"),
    ({"messages": [{"role": "bird", "content": "a"}]}, "expected system, developer, user, assistant or tool"),
    ({"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]}, "expected only a role and a text"),
    ({"messages": []}, "expected at least 1 message"),
    ({"id": "good", "text": "twice"}, "id is 'good'; expected an id of its own"),
]


def test_a_bad_line_is_one_line_of_output(run: Run, tmp_path: Path) -> None:
    good = [{"id": "good", "text": "Hey, two"}, {"id": "last", "tokens": [5, 6, 7]}]
    out = tmp_path / "out.jsonl"
    result = run(CHAIN, [good[0], *(line for line, _ in BAD), good[1]], "--output", out)
    found = records(out.read_text())
    assert result.exit_code == 1 and f"{len(BAD)} texts failed" in result.stderr and len(found) == len(BAD) + 2
    errors = [record["error"] for record in found if "error" in record]
    for number, (_, message) in enumerate(BAD, 2):
        [error] = [each for each in errors if re.match(rf"{tmp_path}/in.jsonl, line {number}\b", each)]
        assert message in error
    assert sum("logprobs" in record for record in found) == 2
    # Failed lines are tried again, and mended here; the others stay as they are.
    kept = [line for line in out.read_text().splitlines() if "logprobs" in line]
    result = run(CHAIN, [*good, {"id": 3, "text": "Hey"}], "--output", out)
    assert result.exit_code == 0 and "2 of 3 texts have scores" in result.stderr
    lines = out.read_text().splitlines()
    assert lines[:2] == kept and len(lines) == 3 and " of 3 texts" in result.stderr


def test_conversations_and_texts_with_an_answer(run: Run) -> None:
    """The scored tokens are the answer's; a chain model is sure of its own."""
    assert CHAIN.tokenizer is not None
    user, answer = {"role": "user", "content": "1+1?"}, "Hey 🙂, two"
    lines = [
        {"id": 1, "messages": [user], "answer": answer},
        {"id": 2, "messages": [user, {"role": "assistant", "content": answer}]},
        {"id": 3, "text": "abc", "answer": answer},
        {"id": 4, "messages": [user]},
    ]
    found = {record["id"]: record for record in records(run(CHAIN, lines).stdout)}
    ids = CHAIN.tokenizer.encode(answer)
    assert all(found[i]["tokens"] == ids for i in (1, 2, 3))
    assert found[1] == {**found[2], "id": 1} and found[1]["agreement"] == 1 and found[1]["perplexity"] < 1.01
    assert found[3]["logprobs"][0] < -50, "no chain leads there"
    assert found[4]["tokens"] == CHAIN.chat_token_ids([user])[1:]


def test_an_interrupted_run_is_resumed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the third step: whole lines, and the same command scores the rest."""
    lines = [{"id": i, "tokens": [1 + i, 2, 3, 4 + i]} for i in range(7)]
    expected = sorted(run(fake_llm(), lines).stdout.splitlines())
    llm, out, count = fake_llm(max_batch_tokens=6), tmp_path / "out.jsonl", [0]

    def interrupt() -> None:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt

    llm.model.before_step = interrupt  # type: ignore[attr-defined]
    result = run(llm, lines, "--output", out)
    assert result.exit_code == 130 and f"4 of 7 answers are in {out}; the same command goes on there" in result.stderr
    assert len(out.read_text().splitlines()) == 4 and llm.engine.pool.used == 0
    with out.open("a") as file:
        file.write('{"id": 5, "tok')  # a run that was killed
    counts = steps_of(llm, monkeypatch)
    assert run(llm, lines, "--output", out).exit_code == 0 and sum(counts) == 9
    found = records(out.read_text())
    assert sorted(json.dumps(record) for record in found) == pytest.approx(expected)
    assert [each["id"] for each in found] == list(range(7)) and all(a["id"] < b["id"] for a, b in pairwise(found))


def test_a_foreign_output_is_left_alone(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text('{"id": 1, "finish_reason": "stop"}\n')
    result = run(CHAIN, [{"tokens": [1, 2]}], "--output", out)
    assert "not an answer of an earlier run" in str(result.exception)
    assert out.read_text() == '{"id": 1, "finish_reason": "stop"}\n'
