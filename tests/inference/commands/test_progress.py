"""Commands report their progress, and the first answers come early."""

import io
import json
import re
import sys

import pytest
from typer.testing import CliRunner

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.commands import answer_file, cli, terminal
from deepseek_v32.inference.commands.prompts import Prompt, PromptEncoder
from deepseek_v32.inference.commands.terminal import ReadingLine, statistics
from support.chain_model import make_llm


class Screen(io.StringIO):
    def __init__(self, is_terminal=True):
        super().__init__()
        self.isatty = lambda: is_terminal

    @property
    def line(self):
        """Return the line as it looks in the end: carriage returns and ESC[K are applied."""
        plain = re.sub(r"\x1b\[\d*m", "", self.getvalue())
        return plain.rpartition("\r")[2].removeprefix("\x1b[K")


@pytest.fixture
def llm():
    return make_llm(("</think>", "Hey"), max_batch_tokens=100)


def test_a_long_prompt_says_how_much_of_it_is_read(llm, monkeypatch):
    monkeypatch.setattr(terminal, "LONG_PROMPT", 50)
    screen, seen = Screen(), []
    request = llm.engine.add_request([5] * 229 + [llm.tokenizer.special_ids["</think>"]])
    with ReadingLine(request, screen) as line:
        while llm.engine.has_work:
            line.show()
            seen.append(screen.line)
            if llm.engine.step():
                line.erase()
    assert [text.partition(" tokens")[0] for text in seen[:3]] == [
        f"reading the prompt: {done} of 230" for done in (0, 100, 200)
    ]
    assert "tokens/s" in seen[1] and seen[3:] and not any(seen[3:]) and screen.line == ""


@pytest.mark.parametrize(("count", "is_terminal"), [(50, True), (230, False)], ids=["short", "no terminal"])
def test_other_prompts_are_read_in_silence(llm, monkeypatch, count, is_terminal):
    monkeypatch.setattr(terminal, "LONG_PROMPT", 50)
    screen = Screen(is_terminal)
    with ReadingLine(llm.engine.add_request([5] * count), screen) as line:
        line.show()
    assert screen.getvalue() == ""


def test_an_answer_that_never_began_attended_to_nothing(llm):
    request = llm.engine.add_request([5] * 50)
    llm.engine.abort(request.id)
    [delta] = llm.engine.step()
    assert statistics(delta.completion) == "0 tokens, prompt 50 tokens, stopped"


def test_first_answers_come_before_all_prompts_are_read(monkeypatch):
    monkeypatch.setattr(answer_file, "FIRST_PROMPTS", 3)
    monkeypatch.setattr(answer_file, "FIRST_SECONDS", 1000)
    llm = make_llm(("</think>", "Hey"), max_sequences=64)
    prompts = [Prompt(i, f"prompt {i}", f"number {i}") for i in range(40)]
    read, written = [], []

    def write(index, values):
        read.append(llm.engine.scheduler.prompt_tokens)
        written.append((index, values["text"]))

    encoder = PromptEncoder(lambda default: SamplingParams(temperature=0), False, None, False)
    assert answer_file._answer_all(llm, prompts, encoder, write) == 0
    assert sorted(written) == [(i, "Hey") for i in range(40)]
    assert read[0] * 10 < read[-1], "three prompts of forty"


def test_a_slow_first_answer_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(answer_file, "FIRST_SECONDS", 0)
    llm = make_llm(("</think>", "Hey"))
    queue, added = llm.engine.queue, []
    monkeypatch.setattr(llm.engine, "queue", lambda request: added.append(request) or queue(request))
    step, counts = llm.engine.step, []
    monkeypatch.setattr(llm.engine, "step", lambda: counts.append(len(added)) or step())
    encoder = PromptEncoder(lambda default: SamplingParams(temperature=0), False, None, False)
    prompts = [Prompt(i, f"prompt {i}", f"number {i}") for i in range(40)]
    assert answer_file._answer_all(llm, prompts, encoder, lambda *_: None) == 0
    assert counts[0] == 40


def test_closing_the_answers_ends_what_runs(llm):
    prompts = [Prompt(i, f"prompt {i}", f"number {i}") for i in range(4)]
    encoder = PromptEncoder(
        lambda llm: SamplingParams(max_tokens=1 + llm.default_params.max_tokens), False, None, False
    )
    answers = answer_file._answers(llm, prompts, encoder, lambda: None)
    next(answers)
    answers.close()
    assert llm.stats().running == llm.stats().waiting == llm.stats().pages_used == 0


def test_an_interrupted_batch_says_how_far_it_came(tmp_path, monkeypatch):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [{"custom_id": str(i), "url": "/v1/completions", "body": {"prompt": "Hi"}} for i in range(3)]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(requests, answers, *_):
        for request, status in zip(requests, (200, 500), strict=False):
            record = {"id": "x", "custom_id": request.custom_id, "response": {"status_code": status}}
            answers.append(record)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[f"{cli.__package__}.batch"], "run", run)
    for done in (1, 2):
        result = CliRunner().invoke(cli.app, ["batch", str(source), str(output)])
        assert f"\n{done} of 3 answers are in {output}; the same command goes on there\n" in result.stderr
        assert result.exit_code != 0
